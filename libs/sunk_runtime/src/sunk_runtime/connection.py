# pyright: reportUnknownMemberType=false
"""One connection to NATS, which comes back for ever.

What must stay true: it reconnects for ever; whoever waits for an answer hears at once when the connection
breaks, as the answer went with it; a connection that nats-py gave up for good ends the process.

Source: nats-py 2.16. What is sent while there is no connection is kept and goes out at the reconnect.
"""

import logging
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.js.errors import APIError
from nats.js.errors import Error as JetStreamError

from sunk_events.codec import MAX_BYTES
from sunk_runtime.errors import BusUnavailableError, ConflictError, PermanentError, SunkError
from sunk_runtime.metrics import CONNECTED, RECONNECTS
from sunk_runtime.recovery import Recovery
from sunk_runtime.streams import HEADERS_MAX

log = logging.getLogger(__name__)

RECONNECT_S: Final = 0.25
_WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
_SERVERS_FAULT: Final = 500


class Connection:
    """A client of NATS, what its server said last, and who waits for its answers."""

    def __init__(self) -> None:
        self.client = Client()
        self.last_error = ""
        """What the server said last; a denied publish is only a time-out to its caller."""
        self.breaks = 0
        """How often the connection broke."""
        self.reconnects = 0
        """How often it came back."""
        self.recovery = Recovery()
        """Told whenever it came back."""
        self._closed = anyio.Event()
        self._is_up = False
        self._scopes: set[anyio.CancelScope] = set()

    @property
    def waiting(self) -> int:
        """How many calls wait for an answer now."""
        return len(self._scopes)

    @asynccontextmanager
    async def awaiting(self, doing: str) -> AsyncGenerator[None]:
        """Raise our errors for nats-py's, and one at once if the connection breaks meanwhile.

        Raises:
            ConflictError, PermanentError: JetStream refused.
            BusUnavailableError: no answer came; what was asked may have been done all the same.
        """
        scope = anyio.CancelScope()
        self._scopes.add(scope)
        try:
            with scope:
                yield
        except NoRespondersError:
            raise
        except (NatsError, JetStreamError, OSError, TimeoutError) as error:
            raise self._ours(doing, error) from error
        finally:
            self._scopes.discard(scope)
        if scope.cancelled_caught:
            raise BusUnavailableError(f"{doing}: the connection broke")

    def hint(self) -> str:
        """Return what the server said last, for the end of an error's text."""
        return f" ({self.last_error})" if self.last_error else ""

    async def open(self, name: str, *, servers: list[str], user: str, password: str | None) -> None:
        """Connect as *name*, trying until NATS is there.

        Raises:
            PermanentError: NATS refuses *user*.
        """

        async def on_error(error: Exception) -> None:
            self.last_error = str(error)
            if not self._is_up and "authorization" in str(error).lower():
                raise PermanentError(f"NATS refuses user {user!r}: {error}")
            log.warning("bus error", extra={"error": str(error) or type(error).__name__})

        options: dict[str, Any] = {
            "servers": servers,
            "name": name,
            "error_cb": on_error,
            "disconnected_cb": self._on_disconnect,
            "reconnected_cb": self._on_reconnect,
            "closed_cb": self._on_close,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_S * random.uniform(0.8, 1.2),  # noqa: S311 - spreads a fleet, no secret
            "connect_timeout": 2,
            "ping_interval": 10,
            "max_outstanding_pings": 2,
            "inbox_prefix": f"_INBOX.{name}".encode(),
            "user": user or None,
            "password": password,
        }
        await self.client.connect(**options)
        self.last_error = ""
        self._is_up = True
        CONNECTED.set(1)
        if self.client.max_payload < MAX_BYTES + HEADERS_MAX:
            # The server would end the connection for good over the first message that is larger.
            raise PermanentError(
                f"max_payload of the server is {self.client.max_payload} bytes, needed are "
                f"{MAX_BYTES + HEADERS_MAX}: raise it in the server's configuration (its default is 1 MiB)"
            )

    async def close(self) -> None:
        """End it, whatever state it is in."""
        self._is_up = False
        CONNECTED.set(0)
        with anyio.move_on_after(2, shield=True):
            await self.client.close()

    async def fail_when_closed(self) -> None:
        """End the process when nats-py gave up for good: the platform starts it anew."""
        await self._closed.wait()
        raise PermanentError("the connection to NATS was closed for good")

    def _ours(self, doing: str, error: Exception) -> SunkError:
        """Return our error for one of nats-py's."""
        if not isinstance(error, APIError):
            return BusUnavailableError(f"{doing}: {type(error).__name__}{self.hint()}")
        if error.err_code in _WRONG_LAST_SEQUENCE:
            return ConflictError(f"{doing}: {error.description}")
        if error.code is not None and error.code < _SERVERS_FAULT:
            return PermanentError(f"{doing}: {error.description} ({error.err_code})")
        return BusUnavailableError(f"{doing}: {error.description}")

    async def _on_disconnect(self) -> None:
        if self._is_up:
            log.warning("bus disconnected", extra={"waiting": self.waiting})
        self.breaks += 1
        CONNECTED.set(0)
        for scope in self._scopes:
            scope.cancel()

    async def _on_reconnect(self) -> None:
        self.last_error = ""
        self.reconnects += 1
        RECONNECTS.inc()
        CONNECTED.set(1)
        log.info("bus reconnected")
        self.recovery.announce()

    async def _on_close(self) -> None:
        self._closed.set()


@asynccontextmanager
async def connected(
    name: str, *, servers: list[str], user: str, password: str | None
) -> AsyncGenerator[Connection]:
    """Hold a connection while the context lasts.

    Raises:
        PermanentError: NATS refuses *user*; on the way out, if the connection was closed for good.
    """
    connection = Connection()
    try:
        await connection.open(name, servers=servers, user=user, password=password)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.fail_when_closed)
            try:
                yield connection
            finally:
                tasks.cancel_scope.cancel()
    finally:
        await connection.close()
