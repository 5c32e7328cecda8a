"""One leader, fenced: it stops before its lease can end, and every write may ask whether it still leads.

What must stay true: what a holder believes of its own lease is never longer than what others believe. The
holder counts from *before* it sent the last renewal that succeeded, the others from when it arrived. A
process that finds that the lease is no longer its own stops at once, however long it would have lasted. A
record that was lost (NATS without its disk, an older copy of it, somebody's purge) tells nobody that there is
a holder: a process that takes such a lease works only after a whole TTL, by when a holder has stopped that
nobody answers. Tokens are the server's time, so they go on growing whatever was lost.

Source: NATS ADR-48 (a put drops the TTL, so each renewal states it again); a bucket with history 1.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

import anyio
import msgspec
from nats.js.errors import NoStreamResponseError

from sunk_events import subjects
from sunk_runtime.errors import (
    BusUnavailableError,
    ConflictError,
    JetStreamRejectedError,
    LostLeadershipError,
    TransientError,
)
from sunk_runtime.jetstream import Bus
from sunk_runtime.metrics import LEADER

log = logging.getLogger(__name__)

MARGIN_SHARE: Final = 0.2
"""Of the TTL: the holder stops this much before others may begin."""
RENEW_S: Final = 1.0
"""How often a lease is renewed, one of a short TTL more often: so soon a holder learns that it lost it."""
AGAIN_S: Final = 0.2
"""How soon a renewal that failed is tried again: a second one must fit into a short TTL."""
LOOK_S: Final = 0.5
"""How often others look whether it is free, those of a short TTL more often."""
RELEASE_S: Final = 2.0
"""How long giving a lease back may hold up who ends: another takes it over when it has run out."""


class Lease(Protocol):
    """A lease somewhere. Each call has a time-out well below the TTL."""

    @property
    def name(self) -> str:
        """What is led."""
        ...

    @property
    def ttl_s(self) -> float:
        """How long it lasts without renewal."""
        ...

    @property
    def was_given_up(self) -> bool:
        """Whether what was acquired last was given up, had ended, or was ours since it was known to be so.

        Else its record may have been lost, and another may believe that it holds it.
        """
        ...

    async def acquire(self) -> int | None:
        """Take it if it is free; return the fencing token, which only ever grows, or None."""
        ...

    async def renew(self) -> int | None:
        """Hold it for another TTL; return the fencing token, or None when it is not ours any more."""
        ...

    async def release(self) -> None:
        """Give it up, so that another need not wait; not holding it is success."""
        ...


class Leadership:
    """What a leader holds: whether it may still write, and the token that fences its writes."""

    def __init__(self, name: str, token: int, until: float) -> None:
        self.name = name
        self.token = token
        self._until = until

    @property
    def is_valid(self) -> bool:
        """Whether nobody else can lead now."""
        return time.monotonic() < self._until

    @property
    def left_s(self) -> float:
        """For how many seconds it holds without another renewal."""
        return max(0.0, self._until - time.monotonic())

    def check(self) -> None:
        """Raise `LostLeadershipError` unless we still lead. Call it right before each write."""
        if not self.is_valid:
            raise LostLeadershipError(f"{self.name}: the lease may have ended")

    def extend(self, token: int, until: float) -> None:
        """Note a renewal."""
        self.token, self._until = token, until

    def end(self) -> None:
        """Note that it is over: another holds it."""
        self._until = 0.0


async def lead(lease: Lease, work: Callable[[Leadership], Awaitable[None]]) -> None:
    """Run *work* whenever we hold *lease*, cancelled before it can end; until cancelled or *work* fails."""
    LEADER.labels(lease.name).set(0)  # A process that never leads says so too.
    while True:
        sent = time.monotonic()
        token = None
        with _unreachable_is_logged(lease, acquire_s(lease.ttl_s)):
            token = await lease.acquire()
        if token is None:
            await anyio.sleep(min(lease.ttl_s / 6, LOOK_S))
            continue
        leadership = Leadership(lease.name, token, sent + lease.ttl_s * (1 - MARGIN_SHARE))
        try:
            await _lead_once(lease, leadership, work)
        finally:
            leadership.end()
            LEADER.labels(lease.name).set(0)
            with anyio.move_on_after(min(lease.ttl_s, RELEASE_S), shield=True), _unreachable_is_logged(lease):
                await lease.release()
        log.warning("no longer leading", extra={"lease": lease.name})


async def _lead_once(
    lease: Lease, leadership: Leadership, work: Callable[[Leadership], Awaitable[None]]
) -> None:
    async with anyio.create_task_group() as tasks:

        async def keep() -> None:
            has_failed = False
            while leadership.is_valid:
                with anyio.move_on_after(leadership.left_s):  # A call that hangs must not outlast the lease.
                    soon = leadership.left_s / 3  # One that was long in coming has little left.
                    await anyio.sleep(min(soon, renew_after_s(lease.ttl_s, has_failed=has_failed)))
                    has_failed = True
                    sent = time.monotonic()
                    with _unreachable_is_logged(lease):
                        token = await lease.renew()
                        has_failed = False
                        if token is None:
                            leadership.end()
                        else:
                            leadership.extend(token, sent + lease.ttl_s * (1 - MARGIN_SHARE))
            tasks.cancel_scope.cancel()

        tasks.start_soon(keep)
        if not lease.was_given_up:
            await anyio.sleep(lease.ttl_s)
        log.info("leading", extra={"lease": lease.name, "token": leadership.token})
        LEADER.labels(lease.name).set(1)
        await work(leadership)
        tasks.cancel_scope.cancel()


def renew_after_s(ttl_s: float, *, has_failed: bool) -> float:
    """Return how long after the last renewal the next one follows; sooner after one that failed."""
    return min(ttl_s / 20, AGAIN_S) if has_failed else min(ttl_s / 4, RENEW_S)


def call_s(ttl_s: float) -> float:
    """Return how long a renewal, or a release, may take."""
    return ttl_s / 3


def acquire_s(ttl_s: float) -> float:
    """Return how long it may take to acquire a lease: two calls or three, and it must still be ours after."""
    return ttl_s * 0.6


@contextmanager
def _unreachable_is_logged(lease: Lease, limit_s: float = 0.0) -> Generator[None]:
    """Bound what is done with *lease*, and only log that nothing is known of how it ended."""
    try:
        with anyio.fail_after(limit_s or call_s(lease.ttl_s)):
            yield
    except (TransientError, ConflictError, TimeoutError) as error:
        log.warning(
            "lease call failed", extra={"lease": lease.name, "error": str(error) or type(error).__name__}
        )


class _Holder(msgspec.Struct, frozen=True):
    holder: str


class BusLease:
    """A lease in the lease bucket of *cluster*: compare-and-set with a TTL; its time is the token."""

    def __init__(self, bus: Bus, cluster: str, name: str, holder: str, *, ttl_s: int = 3) -> None:
        self._bus = bus
        self._subject = subjects.key_subject(subjects.lease_bucket(cluster), name)
        self._stream = subjects.bucket_stream(subjects.lease_bucket(cluster))
        self.name: Final = name
        self._holder = holder
        self.ttl_s: Final = float(ttl_s)
        self._ttl_s = ttl_s
        self._revision = 0
        self._token = 0
        self.was_given_up = False
        """Whether what was acquired last was known to be free. What is ours at first was of a process before
        us in this container: whether it was known to be free then is forgotten."""

    async def acquire(self) -> int | None:
        """Take the lease if nobody holds it, or if what is stored is our own lost answer."""
        revision, holder, is_over = await self._look()
        if holder is None:  # Before the write: if its answer is lost, the lease is ours at the next look.
            self.was_given_up = is_over
        if holder not in {None, self._holder} or not await self._is_written(revision):
            return None
        # Microseconds since 1970 by the server's clock: revisions begin anew with their bucket.
        try:
            stored = await self._bus.js.get_msg(self._stream, seq=self._revision)
        except JetStreamRejectedError:
            return None  # We were held up for so long that it ended.
        taken = stored.time.timestamp() if stored.time else 0.0
        self._token = max(self._token + 1, int(taken * 1_000_000))
        return self._token

    async def renew(self) -> int | None:
        """Write the lease again with its whole TTL, if it is still ours."""
        if await self._is_written(self._revision):
            return self._token
        # A renewal whose answer was lost is ours all the same, and nobody came in between.
        revision, holder, _ = await self._look()
        is_ours = holder == self._holder and await self._is_written(revision)
        return self._token if is_ours else None

    async def release(self) -> None:
        """Mark the lease free, if it is still ours.

        That is looked up: a renewal that was under way when we had to end is ours all the same, and in a
        store that is new our revision may be another's.
        """
        headers = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
        for _ in range(2):  # The look may be answered before a renewal that was sent earlier.
            revision, holder, _ = await self._look()
            if holder != self._holder:
                break
            with suppress(ConflictError):
                await self._bus.publish(
                    self._subject, b"", expected_revision=revision, ttl_s=60, headers=headers
                )
                return
        log.debug("another replica has the lease already")

    async def _look(self) -> tuple[int, str | None, bool]:
        """Return the stored revision, who holds the lease, None: nobody, and if its holder knows of that.

        It ended by its time to live, or was given up as we do, which states one; a deletion by hand does not.
        """
        found = await self._bus.last(self._stream, self._subject)
        if found is None:
            return 0, None, False
        revision, message = found
        if "Nats-Marker-Reason" in message.headers or "KV-Operation" in message.headers:
            return revision, None, "Nats-TTL" in message.headers
        try:
            return revision, msgspec.json.decode(message.data, type=_Holder).holder, False
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return revision, "", False  # Somebody's, but not ours.

    async def _is_written(self, revision: int) -> bool:
        data = msgspec.json.encode(_Holder(self._holder))
        try:
            self._revision = await self._bus.publish(
                self._subject, data, expected_revision=revision, ttl_s=self._ttl_s
            )
        except ConflictError:
            return False
        except BusUnavailableError as error:
            if isinstance(error.__cause__, NoStreamResponseError):  # Nobody else misses a bucket of leases.
                await self._bus.provision_again()
            raise
        return True
