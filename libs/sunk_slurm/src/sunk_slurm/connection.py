"""One connection to a server, one request after the other: h11 speaks HTTP, asyncio carries it.

httpx puts httpcore and anyio's streams between the two, at twice the processor time of a call, and thousands
of looks are most of what the syncer does. What must stay true: a body is whole, or an error says that it is
not; a connection on which something is left over, or that was given up half-way, is not used again.

slurmrestd 26.05 sends "Connection: Close" with the answer to many an error, and after it the head of another
answer. h11 leaves that aside; llhttp, and so aiohttp and httptools, refuses the whole.

Source: h11 0.16, "Re-using a connection".
"""

import asyncio
import select
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, cast

import h11
import httpx

from sunk_slurm.trust import Trust

HEAD_MAX: Final = 64 * 1024
"""An answer's head is a few hundred bytes."""
_END: Final = h11.EndOfMessage()


class Connection(asyncio.Protocol):
    """A connection that `connected` made. `close` it."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)
        self._transport: asyncio.Transport | None = None
        self._unread = select.poll()
        """Says whether something waits to be read; before there is a connection nothing does."""
        self._has_ended = False
        self._news: asyncio.Future[None] | None = None

    @property
    def is_done(self) -> bool:
        """Whether the last answer was read whole, and nothing has come after it yet."""
        is_whole = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        return is_whole and not self._has_ended and not self._http.trailing_data[0]

    @property
    def is_free(self) -> bool:
        """Whether another request may be sent: nothing waits to be read, not even the server's end of it."""
        return self.is_done and not self._unread.poll(0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over what writes."""
        self._transport = cast(asyncio.Transport, transport)
        self._unread.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """Keep *data* for whoever waits for it."""
        self._http.receive_data(data)
        self._wake()

    def eof_received(self) -> None:
        """Note that nothing more comes."""
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        del exc
        self._end()

    def close(self) -> None:
        """End it now, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    async def ask(self, request: httpx.Request) -> int:
        """Send *request* and return the answer's status; its body is yet to be read.

        Raises:
            httpx.TransportError: no answer came, or none of HTTP; the request may have been carried out.
        """
        with _translated():
            if self._http.our_state is h11.DONE:
                self._http.start_next_cycle()
            target = request.extensions.get("target") or request.url.raw_path
            headers = _with_headers(tuple(request.headers.raw)).headers
            self._write(h11.Request(method=request.method, target=target, headers=headers), request.content)
            while not isinstance(event := await self._event(), h11.Response):
                """A status below 200 only announces the answer."""
            return event.status_code

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body as they come.

        Raises:
            httpx.TransportError: its end does not come.
        """
        with _translated():
            while isinstance(event := await self._event(), h11.Data):
                yield bytes(event.data)

    def _write(self, head: h11.Request, content: bytes) -> None:
        events = (head, h11.Data(data=content), _END) if content else (head, _END)
        written = b"".join(self._http.send(event) or b"" for event in events)
        if self._transport is not None:
            self._transport.write(written)

    async def _event(self) -> h11.Event:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if not isinstance(event, h11.Event) or isinstance(event, h11.ConnectionClosed):
            raise httpx.ReadError("the server ended the connection")
        return event

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._http.receive_data(b"")
            self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


async def connected(url: httpx.URL, timeout_s: float, trust: Trust) -> Connection:
    """Return a connection to the server of *url*.

    Raises:
        httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol: there is none.
    """
    if url.scheme not in {"http", "https"}:
        raise httpx.UnsupportedProtocol(f"{url.scheme!r} is neither http nor https")
    is_tls = url.scheme == "https"
    made = asyncio.get_running_loop().create_connection(
        Connection, url.host, url.port or (443 if is_tls else 80), ssl=trust.context if is_tls else None
    )
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await made
    except TimeoutError as error:
        raise httpx.ConnectTimeout(f"no connection within {timeout_s:g} s") from error
    except OSError as error:
        raise httpx.ConnectError(str(error)) from error
    return connection


@lru_cache(maxsize=16)
def _with_headers(headers: tuple[tuple[bytes, bytes], ...]) -> h11.Request:
    """Return a request that has *headers* as h11 wants them: until the token is renewed they are the same."""
    return h11.Request(method="GET", target="/", headers=list(headers))


@contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except h11.RemoteProtocolError as error:
        raise httpx.RemoteProtocolError(str(error)) from error
    except h11.LocalProtocolError as error:
        raise httpx.LocalProtocolError(str(error)) from error
