"""Connections to one server, each used by one request at a time, and then by the next.

Source: httpx' own transports; each of httpx' errors means what it means there.
"""

from collections.abc import AsyncIterator, Callable
from typing import Final

import httpx

from sunk_slurm.connection import Connection, connected
from sunk_slurm.trust import Trust

CONNECT_TIMEOUT_S: Final = 3.0


class Lanes(httpx.AsyncBaseTransport):
    """At most *count* requests at once; whoever asks limits itself to that."""

    def __init__(self, count: int, trust: Trust | None = None) -> None:
        self._trust = trust or Trust()
        self._free = count
        self._idle: list[Connection] = []
        self._is_closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request*; its connection is free again when the response is closed.

        Raises:
            httpx.PoolTimeout: every connection is in use; nothing was sent.
            httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol: nothing was sent either.
            httpx.TransportError: it may have been sent.
        """
        if not self._free:
            raise httpx.PoolTimeout("every connection is in use")
        self._free -= 1
        connection = None
        try:
            connection = self._open() or await connected(request.url, CONNECT_TIMEOUT_S, self._trust)
            status = await connection.ask(request)
        except BaseException:
            self._take_back(connection)
            raise
        return httpx.Response(status, stream=_Body(connection, self._take_back))

    async def aclose(self) -> None:
        """Close every connection, those in use when they come back."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _open(self) -> Connection | None:
        """Return the connection that was used last, which is open the most likely."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_free:
                return connection
            connection.close()
        return None

    def _take_back(self, connection: Connection | None) -> None:
        self._free += 1
        if connection is None:
            return
        if connection.is_done and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()


class _Body(httpx.AsyncByteStream):
    """A response's body; its connection goes back when it is closed."""

    def __init__(self, connection: Connection, take_back: Callable[[Connection], None]) -> None:
        self._connection: Connection | None = connection
        self._take_back = take_back

    def __aiter__(self) -> AsyncIterator[bytes]:
        if self._connection is None:
            raise httpx.StreamClosed
        return self._connection.body()

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._take_back(connection)
