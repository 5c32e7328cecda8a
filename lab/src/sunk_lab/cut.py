"""A cable between a client and a server that can be cut, mended and pulled out: a TCP proxy.

While it is cut no byte passes either way and the connections stay, as when a network is gone: neither side is
told. What was on its way arrives after the mending, as TCP would send it again.
"""

import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.abc import SocketAttribute, SocketStream

_CHUNK: Final = 65536


class Cable:
    """One address to connect to; what comes there goes on to the server. Make it with `cable`."""

    def __init__(self, host: str, port: int) -> None:
        self._server: Final = (host, port)
        self._whole = anyio.Event()
        self._whole.set()
        self._ends: set[SocketStream] = set()
        self.port = 0

    @property
    def url(self) -> str:
        """Return where clients of NATS connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections go through it now, as far as it was told."""
        return len(self._ends) // 2

    def cut(self) -> None:
        """Let nothing through any more; being cut is success."""
        if self._whole.is_set():
            self._whole = anyio.Event()

    def mend(self) -> None:
        """Let through again, what waited first; being whole is success."""
        self._whole.set()

    async def reset(self) -> None:
        """End every connection with RST, as a router that forgot them does; new ones are taken."""
        for end in list(self._ends):
            raw: socket.socket = end.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's, not Django's
            if raw.fileno() < 0:
                continue  # It ended with the other end of its connection, meanwhile.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await end.aclose()

    async def join(self, client: SocketStream) -> None:
        """Carry one connection until either side ends it."""
        await self._whole.wait()
        async with client:
            try:
                server = await anyio.connect_tcp(*self._server)
            except OSError:
                return  # Nobody listens there now: the client is told by its own end.
            async with server, anyio.create_task_group() as tasks:
                self._ends |= {client, server}
                try:
                    tasks.start_soon(self._carry, client, server, tasks.cancel_scope)
                    await self._carry(server, client, tasks.cancel_scope)
                finally:
                    self._ends -= {client, server}

    async def _carry(self, source: SocketStream, target: SocketStream, ended: anyio.CancelScope) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                data = await source.receive(_CHUNK)
                await self._whole.wait()
                await target.send(data)
        await self._whole.wait()  # That an end went away is not seen through a cut.
        ended.cancel()


@asynccontextmanager
async def cable(url: str) -> AsyncGenerator[Cable]:
    """Lay a cable to the server at *url* for as long as the context lasts."""
    host, _, port = url.removeprefix("nats://").partition(":")
    laid = Cable(host, int(port))
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        laid.port = int(listener.extra(SocketAttribute.local_port))  # noqa: S610 - anyio's, not Django's
        tasks.start_soon(listener.serve, laid.join)
        try:
            yield laid
        finally:
            tasks.cancel_scope.cancel()
