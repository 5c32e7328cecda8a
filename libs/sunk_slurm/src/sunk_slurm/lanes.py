"""Connections to one server, each with a pool of its own.

httpcore's pool looks at every one of its connections, with system calls, whenever a request begins or ends:
with nine of them that is more than a third of what a look at one job costs us. Which connection is free is
known here without that.

Source: httpcore 1.0.9, ``AsyncConnectionPool._assign_requests_to_connections``.
"""

from collections.abc import AsyncIterator, Callable
from typing import cast

import httpx


class Lanes(httpx.AsyncBaseTransport):
    """At most *count* requests at once; whoever asks limits itself to that."""

    def __init__(self, count: int) -> None:
        context = httpx.create_ssl_context(trust_env=False)  # One for all: each reads every root certificate.
        limits = httpx.Limits(max_connections=1)
        self._all = [
            httpx.AsyncHTTPTransport(verify=context, trust_env=False, limits=limits) for _ in range(count)
        ]
        self._free = list(self._all)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request*; its connection is free again when the response is closed.

        Raises:
            httpx.PoolTimeout: every connection is in use; nothing was sent.
            httpx.ReadError: the connection ended; it may have been sent.
        """
        if not self._free:
            raise httpx.PoolTimeout("every connection is in use", request=request)
        lane = self._free.pop()  # The one used last, which is open the most likely.
        try:
            response = await lane.handle_async_request(request)
        except (AttributeError, OSError) as error:
            # Of a connection that is reset as soon as it is made anyio finds no peer, and uvloop no socket.
            self._free.append(lane)
            raise httpx.ReadError("the connection was reset", request=request) from error
        except BaseException:
            self._free.append(lane)
            raise
        body = cast(httpx.AsyncByteStream, response.stream)  # As httpx' own client takes for granted.
        response.stream = _Body(body, lambda: self._free.append(lane))
        return response

    async def aclose(self) -> None:
        """Close every connection."""
        for lane in self._all:
            await lane.aclose()


class _Body(httpx.AsyncByteStream):
    """A response's body that says when it is closed."""

    def __init__(self, body: httpx.AsyncByteStream, closed: Callable[[], None]) -> None:
        self._body = body
        self._closed: Callable[[], None] | None = closed

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._body)

    async def aclose(self) -> None:
        try:
            await self._body.aclose()
        finally:
            if (closed := self._closed) is not None:
                self._closed = None
                closed()
