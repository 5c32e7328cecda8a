"""Connections to one server through aiohttp, whose parser is written in C, with httpx' requests and errors.

A look at a job costs half the processor time that it costs through httpcore, h11 and anyio's streams, and
thousands of looks are most of what the syncer does. What must stay true: what may have been sent is never
called unsent; no request is one too many.

Source: aiohttp 3.14, ``ClientSession``; httpx, "Custom transports".
"""

from collections.abc import AsyncIterator, Callable
from typing import Final

import aiohttp
import httpx
from yarl import URL

CONNECT_TIMEOUT_S: Final = 3.0
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S)
"""Each call has a deadline of its own."""
_UNASKED: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""What aiohttp would put in by itself."""


class Lanes(httpx.AsyncBaseTransport):
    """At most *count* requests at once; whoever asks limits itself to that."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._context: Final = httpx.create_ssl_context(trust_env=False)  # Once: it reads every certificate.
        self._opened: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send *request*; its connection is free again when the response is closed.

        Raises:
            httpx.PoolTimeout: every connection is in use; nothing was sent.
            httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol: nothing was sent either.
            httpx.ReadError: the connection ended, or what came is not HTTP; it may have been sent. What HTTP
                calls idempotent was sent a second time by then.
        """
        if not self._free:
            raise httpx.PoolTimeout("every connection is in use")
        self._free -= 1
        try:
            answer = await self._sent(request)
        except BaseException:
            self._free += 1
            raise
        return httpx.Response(answer.status, stream=_Body(answer, self._take_back))

    async def aclose(self) -> None:
        """Close every connection."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    async def _sent(self, request: httpx.Request) -> aiohttp.ClientResponse:
        try:
            return await self._session().request(
                request.method,
                URL(str(request.url), encoded=True),
                data=request.content or None,
                headers=[(name.decode(), value.decode()) for name, value in request.headers.raw],
                skip_auto_headers=_UNASKED,
                allow_redirects=False,
                timeout=_TIMEOUT,
            )
        except aiohttp.ClientConnectorError as error:
            raise httpx.ConnectError(str(error)) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise httpx.ConnectTimeout(str(error)) from error
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
            raise httpx.UnsupportedProtocol(str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _read_error(error) from error

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            connector = aiohttp.TCPConnector(limit=0, ssl=self._context)
            cookies = aiohttp.DummyCookieJar()
            self._opened = aiohttp.ClientSession(
                connector=connector, cookie_jar=cookies, auto_decompress=False
            )
        return self._opened

    def _take_back(self) -> None:
        self._free += 1


class _Body(httpx.AsyncByteStream):
    """A response's body that says when it is closed."""

    def __init__(self, answer: aiohttp.ClientResponse, closed: Callable[[], None]) -> None:
        self._answer = answer
        self._closed: Callable[[], None] | None = closed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._answer.content.iter_any():
                yield part
        except (aiohttp.ClientError, OSError) as error:
            raise _read_error(error) from error

    async def aclose(self) -> None:
        if (closed := self._closed) is not None:
            self._closed = None
            if not self._answer.content.at_eof():
                self._answer.close()  # Not handed back: what is left would be the next one's answer.
            self._answer.release()
            closed()


def _read_error(error: Exception) -> httpx.ReadError:
    return httpx.ReadError(f"{type(error).__name__}: {error}")
