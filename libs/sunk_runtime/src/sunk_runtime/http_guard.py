"""Limits on what comes before a request is one, and after its answer; and word of callers that hang up.

uvicorn with httptools has no such limits, and tells of a caller that went only to who asks for more of the
body: a task for each call that is held. It starts TLS before it knows of a connection, and waits for the
handshake for a minute: here a connection is let in first.

asyncio is used directly as uvicorn's protocols are asyncio's: callbacks with a transport and timers.

What must stay true: a connection whose request head is too large, or does not come, is closed, as is one
whose body goes on after the answer; one that waits for its answer is left alone, and one between two requests
gives way to a new one only where there are too many.
"""

import asyncio
import asyncio.sslproto
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import anyio
from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sunk_runtime.http_door import Door

HEAD_MAX: Final = 32 * 1024
"""Bytes of request line and headers; a ServiceAccount's token is one or two thousand."""
HEAD_TIMEOUT_S: Final = 10.0
"""From the connection, TLS included, or from the first byte of a later request, to the end of its headers;
and from an answer to the end of a body that was not waited for."""
asyncio.sslproto.SSLProtocol.max_size = 16 * 1024
"""A record of TLS: what asyncio reads at a time, in a buffer that each connection keeps for as long as it is
held. With asyncio's 256 KiB five thousand prologs were more than the gateway's memory."""


class Line:
    """The caller's end of one connection."""

    def __init__(self) -> None:
        self.common_name = ""
        """Of the client certificate that the TLS context verified; empty: it verified none."""
        self._is_dead = False
        self._scopes: set[anyio.CancelScope] = set()

    @contextmanager
    def ending(self, scope: anyio.CancelScope) -> Generator[None]:
        """Cancel *scope* when the caller hangs up while the context lasts, or has done so before."""
        if self._is_dead:
            scope.cancel()
        self._scopes.add(scope)
        try:
            yield
        finally:
            self._scopes.discard(scope)

    def die(self) -> None:
        """Take note that the caller hung up."""
        self._is_dead = True
        for scope in self._scopes:
            scope.cancel()


def line_of(request: Request) -> Line:
    """Return the line that *request* came in by."""
    return cast("Line", request.state.line)


def common_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the one common name of a verified *certificate*, as `ssl` has it; empty: none, or several."""
    parts = [part for names in (certificate or {}).get("subject", ()) for part in names]
    found = [str(value) for key, value in parts if key == "commonName"]
    return found[0] if len(found) == 1 else ""


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, door: Door, tls: ssl.SSLContext | None, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own, passed on
        super().__init__(*args, **kwargs)
        self._door: Final = door
        self._tls: Final = tls
        self._raw: asyncio.Transport | None = None
        """The connection itself, below TLS."""
        self._handshake: asyncio.Task[None] | None = None
        self._early = b""
        """What came before TLS was there to read it, which is the handshake's; later what came with the end
        of the handshake, before we had word of that."""
        self._is_tls_there = False
        self._is_begun = False
        """Requests may come: uvicorn has the transport."""
        self._is_lost = False
        self._is_body_due = False
        """The head of a request came, and its body not to the end."""
        self._head_bytes = 0
        """Received of a head that is not complete."""
        self._header_bytes = 0
        """Of the headers of this request, for all of them may come at once."""
        self._head_due: asyncio.TimerHandle | None = None
        """Runs while a head is awaited, or the rest of a body that nobody reads."""
        self._line = Line()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Await the first head, if there is room."""
        self._raw = raw = cast("asyncio.Transport", transport)
        peer = raw.get_extra_info("peername")
        if not self._door.enter(self, str(peer[0]) if peer else ""):
            raw.abort()
            return
        self._await_head()
        if self._tls is None:
            self._begin(raw)
        else:
            self.connections.add(self)
            self._handshake = self.loop.create_task(self._shake_hands(raw, self._tls))

    def connection_lost(self, exc: Exception | None) -> None:
        """Await nothing any more, and tell who answers."""
        self._is_lost = True
        self._head_came()
        self._door.leave(self)
        self.connections.discard(self)
        if self._is_begun:
            super().connection_lost(exc)
        self._line.die()

    def cut(self) -> None:
        """End the connection at once, whatever it does."""
        self._door.leave(self)
        if self._raw is not None:
            self._raw.abort()

    def shutdown(self) -> None:
        """End the connection when its request is answered, now if there is none."""
        if self._is_begun:
            super().shutdown()
        else:
            self.cut()

    def data_received(self, data: bytes) -> None:
        """Parse *data*, and give up on a head that goes on and on, or on a body that nobody reads."""
        if not self._is_begun:
            self._early += data
            if not self._is_tls_there and self._raw is not None:
                self._raw.pause_reading()  # TLS goes on reading.
            return
        super().data_received(data)
        if self._head_due is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_MAX and not self.transport.is_closing():
                if self._is_body_due:
                    self.transport.close()
                else:
                    self.send_400_response("Request head is too large.")

    def on_message_begin(self) -> None:
        """Await the head of a request."""
        super().on_message_begin()
        self.scope.setdefault("state", {})["line"] = self._line
        self._header_bytes = 0
        if self._head_due is None:
            self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; an error ends the connection with 400."""
        super().on_header(name, value)
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > HEAD_MAX:
            raise ValueError("request head is too large")

    def on_headers_complete(self) -> None:
        """Serve the request, whose body has its own limits until it is answered."""
        self._head_came()
        self._is_body_due = True
        self._door.begin(self)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Take note that the body came to its end, whatever reads it."""
        super().on_message_complete()
        self._is_body_due = False
        self._head_came()

    def on_response_complete(self) -> None:
        """Wait for the next request, and not for long for the rest of this one."""
        super().on_response_complete()
        if self.cycle.response_complete:  # Else another request has come meanwhile, and is answered now.
            self._door.wait(self)
            if self._is_body_due and not self._is_lost:
                self._await_head()

    def _begin(self, transport: asyncio.Transport) -> None:
        self._is_begun = True
        self._line.common_name = common_name(transport.get_extra_info("peercert"))
        super().connection_made(transport)

    async def _shake_hands(self, raw: asyncio.Transport, context: ssl.SSLContext) -> None:
        self._is_tls_there = True
        hello, self._early = self._early, b""
        if hello:  # On a busy machine it comes first, with uvloop. Never is it read as what TLS had said.
            self.loop.call_soon(_hand_over, raw, hello)
        try:
            transport = await self.loop.start_tls(
                raw,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=HEAD_TIMEOUT_S,
                ssl_shutdown_timeout=HEAD_TIMEOUT_S,
            )
        except OSError:  # What came is no TLS, or not in time; or nothing comes any more.
            transport = None
        if transport is None or transport.is_closing():
            if not self._is_lost:
                self.connection_lost(None)
            return
        self._begin(transport)
        self.data_received(self._early)

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._head_due = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _head_came(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _give_up(self) -> None:
        self._head_due = None
        self.cut()


def _hand_over(raw: asyncio.Transport, data: bytes) -> None:
    """Give TLS, which is about to begin, what came before it was there."""
    protocol = raw.get_protocol()
    if isinstance(protocol, GuardedProtocol):
        raw.abort()  # `start_tls` refused the transport.
        return
    tls = cast("asyncio.BufferedProtocol", protocol)
    while data:
        buffer = memoryview(tls.get_buffer(len(data)))
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        tls.buffer_updated(taken)
        data = data[taken:]
