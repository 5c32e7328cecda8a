"""HTTP/1.1 as models of servers answer it: requests one after the other on each connection, streams too.

For one that has an ASGI application there is uvicorn, which works as well.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from sunk_simulation.loop import PROCESS, Process
from sunk_simulation.network import NetworkLoop


class Request(msgspec.Struct, frozen=True):
    """What was asked."""

    method: str
    path: str
    query: Mapping[str, str]
    """The last of each name."""
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes
    pairs: tuple[tuple[str, str], ...] = ()
    """The whole query."""
    client: str = ""
    """The address of who asks."""


class Reply(msgspec.Struct, frozen=True):
    """What is answered. A body that comes bit by bit is a generator: its end ends the answer."""

    status: int = 200
    body: bytes | AsyncGenerator[bytes, None] = b""
    headers: Mapping[str, str] = {}
    is_broken: bool = False
    """Break the connection instead of answering, after what was asked took effect."""


Answer = Callable[[Request], Awaitable[Reply]]


class _Connection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, answer: Answer) -> None:
        self._answer: Final = answer
        self._buffer = b""
        self._asked: deque[Request] = deque()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (request := self._next()) is not None:
            self._asked.append(request)
        if self._asked and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def _next(self) -> Request | None:
        head, ends, rest = self._buffer.partition(b"\r\n\r\n")
        if not ends:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        size = int(headers.get("content-length", 0))
        if len(rest) < size:
            return None
        self._buffer = rest[size:]
        parts = urlsplit(target)
        pairs = tuple(parse_qsl(parts.query, keep_blank_values=True))
        client = self._transport.get_extra_info("peername")[0] if self._transport is not None else ""
        return Request(method, unquote(parts.path), dict(pairs), headers, rest[:size], pairs, client)

    async def _work(self) -> None:
        while self._asked:
            reply = await self._answer(self._asked.popleft())
            if reply.is_broken:
                self._write_end()
                return
            await self._send(reply)
        self._task = None

    async def _send(self, reply: Reply) -> None:
        body = reply.body
        headers = dict(reply.headers)
        if isinstance(body, bytes):
            headers["Content-Length"] = str(len(body))
            self._write(_head(reply.status, headers) + body)
            return
        headers["Transfer-Encoding"] = "chunked"
        self._write(_head(reply.status, headers))
        try:
            async for part in body:
                if not part:  # It would be the end.
                    continue
                self._write(b"%x\r\n%b\r\n" % (len(part), part))
        finally:
            await body.aclose()
        self._write(b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _write_end(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


def listen(process: Process, port: int, answer: Answer) -> None:
    """Let *process* answer HTTP on *port*, from now on."""
    loop = process.loop
    assert isinstance(loop, NetworkLoop)
    process.run(lambda: loop.network.listen(process, "", port, lambda: _Connection(answer)))


async def serve(port: int, answer: Answer) -> None:
    """Answer HTTP on *port* in the process that calls this, for as long as it lives."""
    listen(PROCESS.get(), port, answer)
    await asyncio.get_running_loop().create_future()
