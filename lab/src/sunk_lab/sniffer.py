"""What crosses the network: every TCP connection of this machine's interfaces, the loopback among them.

A program of its own takes the packets, so that none is lost while a test is busy: ``python -m
sunk_lab.sniffer FILE``. It needs root. IPv4 only, as the lab is.

Source: packet(7), tcp(7).
"""

import contextlib
import signal
import socket
import struct
import sys
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from sunk_lab.errors import LabError
from sunk_lab.processes import Processes, wait_for

_RECORD: Final = struct.Struct("!16s4sH4sHII")
_IPV4: Final = 0x0800
_ALL: Final = 0x0003
_OUTGOING: Final = 4
_SOL_PACKET: Final = 263
_STATISTICS: Final = 6
_ROOM: Final = 1 << 28
"""Bytes that may wait in the kernel."""
_FORCE_ROOM: Final = 33
"""SO_RCVBUFFORCE: more than the machine lets others have."""
_LONGEST: Final = 1 << 17
_SHORTEST: Final = 20
"""A header of IPv4, and one of TCP."""
_PAUSE_S: Final = 0.2
_PATIENCE_S: Final = 120.0
_GAP: Final = b"\0gap\0"
_NAME: Final = "sniffer"


class Way(NamedTuple):
    """One direction of a connection, as one interface saw it."""

    interface: str
    source: str
    source_port: int
    target: str
    target_port: int


@dataclass
class Capture:
    """What was sent each way, in order, with what was not seen marked."""

    streams: dict[Way, bytes] = field(default_factory=dict[Way, bytes], repr=False)
    lost: int = 0
    """Packets that the kernel had no room for."""

    def carried(self, secret: str) -> set[Way]:
        """Return the ways on which *secret* went."""
        wanted = secret.encode()
        return {way for way, sent in self.streams.items() if wanted in sent}


@contextlib.contextmanager
def sniffing(folder: Path) -> Generator[Capture]:
    """Take what crosses the network meanwhile; the capture is complete when the context has ended.

    Raises:
        LabError: It does not start, such as for want of root.
    """
    processes, file = Processes(folder), folder / "packets"
    processes.spawn(_NAME, [sys.executable, "-m", "sunk_lab.sniffer", str(file)])

    def has_begun() -> bool:
        processes.require(_NAME)
        return file.exists()

    wait_for(f"the sniffer, see {processes.log_of(_NAME)}", has_begun, pause_s=0.01)
    made = Capture()
    try:
        yield made
    finally:
        processes.kill(_NAME, signal.SIGTERM, patience_s=_PATIENCE_S)
    count_file = _told(file)
    if not count_file.exists():
        raise LabError(f"the sniffer did not end by itself, see {processes.log_of(_NAME)}")
    made.streams, made.lost = read(file.read_bytes()), int(count_file.read_text())


def read(data: bytes) -> dict[Way, bytes]:
    """Return what was sent each way, of the records that the program has written."""
    segments: dict[Way, dict[int, bytes]] = {}
    for way, number, payload in _records(data):
        of_way = segments.setdefault(way, {})
        if len(payload) > len(of_way.get(number, b"")):
            of_way[number] = payload
    return {way: joined(of_way) for way, of_way in segments.items()}


def _told(file: Path) -> Path:
    """Return where the program says, at its end, how many packets were lost."""
    return file.with_suffix(".lost")


def joined(segments: Mapping[int, bytes]) -> bytes:
    """Return the bytes of one direction: *segments* by sequence number, which begins again after 2^32.

    What was sent twice is there once, and a mark is where something was not seen.
    """
    first = next(iter(segments), 0)
    made, end = bytearray(), None
    for offset, payload in sorted((_after(first, number), data) for number, data in segments.items()):
        if end is not None and offset > end:
            made += _GAP
        known = 0 if end is None else max(0, end - offset)
        made += payload[known:]
        end = max(end if end is not None else offset, offset + len(payload))
    return bytes(made)


def _after(first: int, number: int) -> int:
    """Return how far *number* is behind *first*; below zero if it is before."""
    distance = (number - first) % (1 << 32)
    return distance if distance < 1 << 31 else distance - (1 << 32)


def _records(data: bytes) -> Iterator[tuple[Way, int, bytes]]:
    at = 0
    while at < len(data):
        interface, source, source_port, target, target_port, number, length = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        name = interface.rstrip(b"\0").decode()
        way = Way(name, socket.inet_ntoa(source), source_port, socket.inet_ntoa(target), target_port)
        yield way, number, data[at : at + length]
        at += length


def segment(packet: bytes) -> tuple[bytes, int, bytes, int, int, bytes] | None:
    """Return source, port, target, port, sequence number and payload of a packet; None without payload."""
    if len(packet) < _SHORTEST or packet[9] != socket.IPPROTO_TCP:
        return None
    total = int.from_bytes(packet[2:4]) or len(packet)  # Zero where it is longer than 64 KiB.
    tcp = packet[(packet[0] & 15) * 4 : total]
    if len(tcp) < _SHORTEST:
        return None
    source_port, target_port, number = struct.unpack_from("!HHI", tcp)
    payload = tcp[(tcp[12] >> 4) * 4 :]
    return (packet[12:16], source_port, packet[16:20], target_port, number, payload) if payload else None


def main(path: str) -> None:
    """Write what comes to *path* until SIGTERM; what has come before it is written too."""
    has_ended, seen, wanted, lost = False, 0, None, 0

    def end(_number: int, _frame: object) -> None:
        nonlocal has_ended
        has_ended = True

    signal.signal(signal.SIGTERM, end)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL)) as found:
        found.setsockopt(socket.SOL_SOCKET, _FORCE_ROOM, _ROOM)
        found.settimeout(_PAUSE_S)
        new = Path(path).with_suffix(".new")
        with new.open("wb") as file:
            new.rename(path)
            while wanted is None or seen < wanted:
                if has_ended and wanted is None:
                    came, lost = struct.unpack("II", found.getsockopt(_SOL_PACKET, _STATISTICS, 8))
                    wanted = came - lost  # What comes later does not count.
                    continue
                try:
                    packet, (interface, protocol, kind, *_) = found.recvfrom(_LONGEST)
                except TimeoutError:
                    if wanted is not None:
                        break
                    continue
                seen += 1
                # The loopback shows each packet twice.
                if protocol != _IPV4 or (kind == _OUTGOING and interface == "lo"):
                    continue
                if part := segment(packet):
                    *address, payload = part
                    file.write(_RECORD.pack(interface.encode()[:16], *address, len(payload)) + payload)
        _told(Path(path)).write_text(str(lost))


if __name__ == "__main__":
    main(sys.argv[1])
