"""Limits on what comes before a request is one, and word of callers that hang up.

uvicorn with httptools has no such limits, and tells of a caller that went only to who asks for more of the
body: a task for each call that is held.

asyncio is used directly as uvicorn's protocols are asyncio's: callbacks with a transport and timers.

What must stay true: a connection whose request head is too large, or does not come, is closed; one that is
between two requests, or waits for its answer, is left alone.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, cast

import anyio
from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_MAX: Final = 32 * 1024
"""Bytes of request line and headers; a ServiceAccount's token is one or two thousand."""
HEAD_TIMEOUT_S: Final = 10.0
"""From the connection, or from the first byte of a later request, to the end of its headers."""


class Line:
    """The caller's end of one connection."""

    def __init__(self) -> None:
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


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - uvicorn's own, passed on
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        """Received of a head that is not complete."""
        self._header_bytes = 0
        """Of the headers of this request, for all of them may come at once."""
        self._head_due: asyncio.TimerHandle | None = None
        """Runs while a head is awaited."""
        self._line = Line()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Await the first head."""
        super().connection_made(cast("asyncio.Transport", transport))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Await nothing any more, and tell who answers."""
        self._head_came()
        super().connection_lost(exc)
        self._line.die()

    def data_received(self, data: bytes) -> None:
        """Parse *data*, and give up on a head that goes on and on."""
        super().data_received(data)
        if self._head_due is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_MAX and not self.transport.is_closing():
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
        """Serve the request, whose body has its own limits."""
        self._head_came()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._head_due = self.loop.call_later(HEAD_TIMEOUT_S, self._give_up)

    def _head_came(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _give_up(self) -> None:
        self._head_due = None
        if not self.transport.is_closing():
            self.transport.close()
