# pyright: reportUnknownMemberType=false
"""One connection to NATS, which comes back for ever.

What must stay true: it reconnects for ever; a call that waits for an answer ends at once when the connection
breaks, as the answer went with it, and when NATS denies the subject, as none will come; a connection that
nats-py gave up for good ends the process.

Source: nats-py 2.16, which tells a denial to `error_cb` only, in lower case. What is sent while there is no
connection is kept and goes out at the reconnect.
"""

import logging
import random
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import msgspec
from anyio.abc import TaskGroup
from nats.errors import NoRespondersError
from nats.js.errors import Error as JetStreamError

from sunk_events import subjects
from sunk_events.codec import MAX_BYTES
from sunk_runtime.acks import Acks
from sunk_runtime.bus_tls import Trust, refusal
from sunk_runtime.client import Client
from sunk_runtime.errors import BusUnavailableError, PermanentError, SunkError
from sunk_runtime.metrics import CONNECTED, RECONNECTS
from sunk_runtime.nats_errors import BROKEN, as_ours, is_of_the_connection
from sunk_runtime.recovery import Recovery
from sunk_runtime.streams import HEADERS_MAX

log = logging.getLogger(__name__)

RECONNECT_S: Final = 0.25
_DENIED: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')


class _Wait(msgspec.Struct, eq=False):
    """Somebody who waits, for what, and what ended that."""

    doing: str
    scope: anyio.CancelScope
    needed: tuple[str, ...]
    """The subjects without which it cannot end well."""
    is_for_answer: bool
    ended: SunkError | None = None

    def end(self, error: SunkError) -> None:
        self.ended = error
        self.scope.cancel()

    def needs(self, subject: str) -> bool:
        """Whether it needs *subject*, which NATS says in lower case."""
        return any(subject == needed.lower() for needed in self.needed)


class Connection:
    """A client of NATS, what its server said last, and who waits for its answers."""

    def __init__(self) -> None:
        self.client = Client()
        self._acks = Acks(self.client)
        self.last_error = ""
        """What the server said last; a denied publish is only a time-out to its caller."""
        self.breaks = self.reconnects = 0
        """How often the connection broke, and came back."""
        self.recovery = Recovery()
        """Told whenever it came back."""
        self._closed = anyio.Event()
        self._is_up = False
        self._user = ""
        self._trust: Trust | None = None
        self._waits: dict[_Wait, None] = {}
        """In the order in which they began: the one that waits longest ends first."""
        self._tasks: TaskGroup | None = None

    def beside(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run *work* as long as the connection is held."""
        if self._tasks is not None:
            self._tasks.start_soon(work)

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """End the process when nats-py gave up for good, while the context lasts."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._fail_when_closed)
            try:
                yield
            finally:
                self._tasks.cancel_scope.cancel()

    @property
    def waiting(self) -> int:
        """How many calls wait for an answer now."""
        return sum(wait.is_for_answer for wait in self._waits)

    @asynccontextmanager
    async def awaiting(self, doing: str, *needed: str) -> AsyncGenerator[None]:
        """Raise our errors for nats-py's, and one at once if the connection breaks meanwhile.

        Args:
            doing: What is done, for the errors' texts.
            needed: The subjects that it publishes to; NATS denying one ends it at once, too.

        Raises:
            ConflictError, PermanentError: JetStream refused, or NATS denies us a subject.
            BusUnavailableError: no answer came; what was asked may have been done all the same.
        """
        with self._ended_early(doing, needed, is_for_answer=True):
            try:
                yield
            except NoRespondersError:
                raise
            except (*BROKEN, JetStreamError, TimeoutError) as error:
                if not is_of_the_connection(error):
                    raise
                raise as_ours(doing, error, self.hint()) from error

    async def stored(self, subject: str, data: bytes, headers: dict[str, str], timeout_s: float) -> int:
        """Store *data* in the stream of *subject* and return its sequence there; the same errors.

        Thousands do so at once, so this is `awaiting` without its contexts.
        """
        doing = f"publish on {subject}"
        wait = _Wait(doing, anyio.CancelScope(), (subject,), is_for_answer=True)
        self._waits[wait] = None
        try:
            with wait.scope:
                return await self._acks.publish(subject, data, headers, timeout_s)
        except (*BROKEN, JetStreamError, TimeoutError) as error:
            if not is_of_the_connection(error):
                raise
            raise as_ours(doing, error, self.hint()) from error
        finally:
            self._waits.pop(wait, None)
        raise wait.ended or BusUnavailableError(f"{doing}: given up")

    @contextmanager
    def permitted(self, doing: str, *needed: str) -> Generator[None]:
        """Raise `PermanentError` as soon as NATS denies us one of the subjects *needed*."""
        with self._ended_early(doing, needed, is_for_answer=False):
            yield

    @contextmanager
    def _ended_early(self, doing: str, needed: tuple[str, ...], *, is_for_answer: bool) -> Generator[None]:
        wait = _Wait(doing, anyio.CancelScope(), needed, is_for_answer)
        self._waits[wait] = None
        try:
            with wait.scope:
                yield
        finally:
            self._waits.pop(wait, None)
        was_cut = wait.scope.cancelled_caught or not is_for_answer  # An answer that came counts.
        if was_cut and wait.ended is not None:
            raise wait.ended

    def hint(self) -> str:
        """Return what the server said last, for the end of an error's text."""
        return f" ({self.last_error})" if self.last_error else ""

    async def open(
        self,
        name: str,
        *,
        servers: list[str],
        user: str,
        password: Callable[[], str] | None,
        credentials: str | None = None,
        trust: Trust | None = None,
    ) -> None:
        """Connect as *name*, trying until NATS is there.

        Raises:
            PermanentError: NATS refuses *user*, or we its certificate.
        """
        self._trust = trust

        async def on_error(error: Exception) -> None:
            self.last_error = str(error)
            if not self._is_up and "authorization" in str(error).lower():
                raise PermanentError(f"NATS refuses user {user!r}: {error}")
            refused = refusal(error, has_ca_file=trust is not None)
            if refused and not self._is_up:
                raise PermanentError(refused)
            log.warning("bus error", extra={"error": refused or str(error) or type(error).__name__})
            if found := _DENIED.search(str(error).lower()):
                self._deny(found[1], found[2])

        self._user = user or urlsplit(servers[0]).username or ""
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
            "flush_timeout": 2,
            "ping_interval": 10,
            "max_outstanding_pings": 2,
            "inbox_prefix": subjects.inbox(self._user or name).encode(),
            "user": user or None,
            "password": password,
            "user_credentials": credentials,
            "tls": trust and trust.context,
        }
        await self.client.connect(**options)
        await self._acks.listen()
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
        with anyio.move_on_after(2, shield=True), suppress(*BROKEN):  # What is kept cannot go out.
            await self.client.close()

    async def _fail_when_closed(self) -> None:
        await self._closed.wait()
        raise PermanentError("the connection to NATS was closed for good")

    def _deny(self, what: str, subject: str) -> None:
        """End every wait that needs *subject*."""
        for wait in self._waits:
            if wait.needs(subject):
                text = f"NATS denies user {self._user!r} the {what} to {subject!r}"
                source = "permissions are made by sunk_events.permissions, see docs/security.md"
                wait.end(PermanentError(f"{wait.doing}: {text}; {source}"))

    async def _on_disconnect(self) -> None:
        if self._is_up:
            log.warning("bus disconnected", extra={"waiting": self.waiting})
        self.breaks += 1
        if self._trust is not None:
            self._trust.read_again()
        CONNECTED.set(0)
        for wait in self._waits:
            if wait.is_for_answer:
                wait.end(BusUnavailableError(f"{wait.doing}: the connection broke"))

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
    name: str,
    *,
    servers: list[str],
    user: str,
    password: Callable[[], str] | None,
    credentials: str | None = None,
    trust: Trust | None = None,
) -> AsyncGenerator[Connection]:
    """Hold a connection while the context lasts.

    Args:
        name: What NATS shows us as.
        servers: Their addresses.
        user: Who we are; empty where an address says it, or NATS has no users.
        password: Asked at each connect, as a password may have been changed since the last.
        credentials: NATS' own file of a user's JWT and seed, instead of both.
        trust: Whose certificates we accept; without it a server's that needs TLS must be of a public CA.

    Raises:
        PermanentError: NATS refuses *user*, or we its certificate; on the way out, if it was closed for good.
    """
    connection = Connection()
    try:
        await connection.open(
            name, servers=servers, user=user, password=password, credentials=credentials, trust=trust
        )
        async with connection.held():
            yield connection
    finally:
        await connection.close()
