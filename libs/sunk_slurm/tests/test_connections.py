"""Connections over TLS that break as they are made or later: an outage that is told; none is left behind."""

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from threading import Thread

import anyio
import anyio.lowlevel
import pytest

from sunk_lab.tls import TlsProxy
from sunk_runtime.testing import until
from sunk_slurm.call import Call
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.server import Server
from sunk_slurm.trust import Trust

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(
        "anyio_backend",
        [
            pytest.param(("asyncio", {"use_uvloop": False}), id="asyncio"),
            pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
        ],
    ),
]

LOOK = Call(name="node", doing="look at node n1", path="node/n1", version="v0.0.44")
NOBODY = "http://127.0.0.1:1"


class OneToken:
    def current(self) -> str:
        return "token"

    def renew(self) -> None:
        """It is the only one."""


@pytest.fixture
def tls(tmp_path: Path) -> TlsProxy:
    """What a server with TLS needs."""
    made = TlsProxy(NOBODY, tmp_path)
    made.certify("first")
    return made


async def test_a_server_that_wants_a_certificate_of_us_is_an_outage_that_says_why(tls: TlsProxy) -> None:
    """It says so once we believe to be connected: by then the request may have been sent."""
    tls.context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=refuse_one, args=(listener, tls.context)).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        server = Server(url, OneToken(), trust=Trust(tls.ca_file))
        with pytest.raises(SlurmUnavailableError, match=r"SSLError: .*CERTIFICATE_REQUIRED") as raised:
            await server.ask(LOOK)
        await server.close()

    assert raised.value.is_sent


def refuse_one(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Fail the handshake of one connection, and wait for its end."""
    connection, _ = listener.accept()
    with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as spoken:
        with suppress(ssl.SSLError):
            spoken.do_handshake()
        with suppress(OSError), socket.socket(fileno=spoken.detach()) as plain:
            while plain.recv(65536):
                pass


async def test_calls_that_are_given_up_as_their_connection_is_made_cost_others_none(tls: TlsProxy) -> None:
    tls.context.maximum_version = ssl.TLSVersion.TLSv1_2  # There the server is the first to be done.
    spoken = open_ = 0
    is_well = False
    made = anyio.Event()

    async def answer(received: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal spoken, open_
        spoken += 1
        open_ += 1
        made.set()
        with suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while await received.readuntil(b"\r\n\r\n"):
                if is_well:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        open_ -= 1
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls.context)
    url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    server = Server(url, OneToken(), trust=Trust(tls.ca_file))
    try:
        for turns in range(100):
            made = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.ask, LOOK)
                await made.wait()
                for _ in range(turns % 5):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        before, is_well = spoken, True
        for _ in range(3):
            await server.ask(LOOK)
    finally:
        await server.close()
        listening.close()
    await until(lambda: not open_)

    assert spoken == before + 1
