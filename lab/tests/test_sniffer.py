"""The sniffer sees what crosses the loopback, wherever a segment ends."""

import socket
import struct
from pathlib import Path

import pytest

from sunk_lab.sniffer import joined, segment, sniffing


@pytest.mark.parametrize(
    ("segments", "sent"),
    [
        pytest.param({10: b"pass", 14: b"word"}, b"password", id="in two"),
        pytest.param({14: b"word", 10: b"pass"}, b"password", id="the second first"),
        pytest.param({10: b"passwo", 14: b"word"}, b"password", id="a part twice"),
        pytest.param({10: b"password", 12: b"ss"}, b"password", id="a part of what is there"),
        pytest.param({0xFFFFFFFE: b"pa", 0: b"ss"}, b"pass", id="numbers that begin again"),
        pytest.param({10: b"pa", 14: b"word"}, b"pa\0gap\0word", id="not all was seen"),
        pytest.param({}, b"", id="nothing"),
    ],
)
def test_segments_are_joined(segments: dict[int, bytes], sent: bytes) -> None:
    assert joined(segments) == sent


def test_what_is_no_tcp_is_left_out() -> None:
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28, 0, 0, 64, socket.IPPROTO_UDP, 0, bytes(4), bytes(4))

    assert segment(header + bytes(8)) is None
    assert segment(b"") is None


@pytest.mark.lab
def test_it_sees_a_password_that_is_sent_and_none_that_is_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, sniffing(tmp_path) as capture:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as accepted:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for half in (b"the-secret-", b"of-this-test"):
                client.sendall(half)
                assert accepted.recv(100) == half

    assert {way.target_port for way in capture.carried("the-secret-of-this-test")} == {port}
    assert capture.carried("another-secret") == set()
    sent = [capture.streams[way] for way in capture.streams if way.target_port == port]
    assert sent == [b"the-secret-of-this-test"]
