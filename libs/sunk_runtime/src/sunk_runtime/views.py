# pyright: reportUnknownMemberType=false
"""StateView: a whole bucket, then what changes.

What must stay true: a view says when it is complete, and until then nobody may conclude that a key is
absent; it is complete only when it has read all that the bucket's leader had when the read began, as the
replica that it reads may lag; after any gap it reads the whole bucket again, and then believes the bucket,
whatever it knew before: a bucket can go back, to an older copy of NATS' store, or be purged. What is older
than what was known is believed only with the whole read, and the view is not complete before the bucket's
owner has written those keys anew, or has had `DOUBT_S` for it; the owner's own view is complete at once, and
who decides on it without writing it asks that it be *settled*. A value that cannot be read is *unknown*, the
last one that could be read stays; each consumer of changes gets every key at least once, the latest state
only.
"""

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio
import msgspec
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo, StreamState

from sunk_events import subjects
from sunk_events.base import UNKNOWN, Cause, State, event_id
from sunk_events.codec import UndecodableError, decode_state
from sunk_runtime.changes import Changes
from sunk_runtime.dead import bury
from sunk_runtime.errors import BusUnavailableError, JetStreamRejectedError, SunkError, TransientError
from sunk_runtime.jetstream import Bus, Message
from sunk_runtime.metrics import VIEW_AGE, VIEW_COMPLETE, VIEW_KEYS, VIEW_READS
from sunk_runtime.pull import create_consumer, pulling
from sunk_runtime.recovery import Recovery
from sunk_runtime.streams import MARKER_TTL_S

log = logging.getLogger(__name__)

S = TypeVar("S", bound=State)

_CONSUMER: Final = ConsumerConfig(
    deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
    ack_policy=AckPolicy.NONE,
    mem_storage=True,
    num_replicas=1,
    inactive_threshold=30,
)


IDLE_MAX: Final = 5
"""Heartbeats in the middle of a whole read before it begins anew: a marker may have aged out meanwhile."""
BEHIND_MAX: Final = 2
"""The same where nothing is pending, but the leader has more: another replica may have it."""
CHECK_S: Final = 30.0
"""How often a view asks whether its bucket still holds what it held: nobody is told of a purge."""
CHECK_TIMEOUT_S: Final = 1.0
MARKERS_S: Final = 2.0 * MARKER_TTL_S
"""So long after its end a key is remembered, longer than its marker lasts: of all jobs ever are many."""
DOUBT_S: Final = 30.0
"""What a bucket that went back holds is not decided upon for so long, while its owner writes it anew: it
looks at all that it has, and another one may have to take over first."""


class Entry(msgspec.Struct, Generic[S], frozen=True):
    """A state and the revision that stored it."""

    value: S
    revision: int
    stored: datetime
    """When the server stored it, on our clock: how far they are apart is known, unlike of who wrote it."""


class _Found(msgspec.Struct, Generic[S], frozen=True):
    """What the bucket has of a key."""

    value: S | None
    revision: int
    stored: datetime
    stored_s: float
    """When the server stored it, on its clock; 0 where that is not known."""
    is_readable: bool = True
    trace: str = ""
    """The trace in which it was written, where that is recorded."""


class _Reading(Generic[S]):
    """A whole read that is under way: the keys so far, and whether they are all."""

    def __init__(
        self, reach: int, pending: int, before: dict[str, int], *, followed: int, last: int, stored_s: float
    ) -> None:
        self.keys: set[str] = set()
        self.before: Final = before
        """What revisions were known when the read began; a key that has another was written since."""
        self.followed: Final = followed
        """How far the bucket was followed before: a key of before that was not known was gone by then."""
        self.last = last
        """The last message that the bucket was given, as far as this read knows."""
        self.older: dict[str, _Found[S]] = {}
        """Either a replica that lags has it, and something newer follows, or the bucket went back.

        It went back, too, where a revision is not lower but was stored before: two copies of one store may
        have gone on apart.
        """
        self.anew: set[str] = set()
        """Those of them that were stored after what was known: no older copy of the store has them so."""
        self.newest = float("-inf")
        """When the newest message that was read was stored."""
        self.newest_s = 0.0
        """The same on the server's clock."""
        self.stored_s: Final = stored_s
        """When the newest message was stored that was known when the read began."""
        self._reach = reach
        """The leader's last message when the read began; a replica that lags has yet to come there."""
        self._pending = pending
        self._idle = 0
        self.is_over = not pending and not reach

    def took(self, key: str, at: Msg.Metadata) -> None:
        self.keys.add(key)
        self.newest_s = max(self.newest_s, at.timestamp.timestamp())
        self.last = max(self.last, at.sequence.stream)
        self._pending = at.num_pending
        self.is_over = self.is_over or (not at.num_pending and at.sequence.stream >= self._reach)

    def heard(self, *, is_idle: bool) -> None:
        """Note a sign of life; raise `BusUnavailableError` if there were too many without a delivery."""
        self._idle += is_idle
        if self._idle > IDLE_MAX:
            raise BusUnavailableError("what was pending did not come")
        if self._idle > BEHIND_MAX and not self._pending:
            raise BusUnavailableError("the replica that was read is behind the leader")


class StateView(Generic[S]):
    """All states of one kind of one cluster, kept current by `run`."""

    def __init__(self, bus: Bus, cluster: str, kind: type[S]) -> None:
        self.kind = kind
        self.bucket: Final = subjects.bucket(cluster, kind)
        self.cluster: Final = cluster
        self.recovery: Final = Recovery()
        """Told whenever the view is complete again."""
        self.undecodable: set[str] = set()
        """Keys whose present value could not be read: unknown, not absent."""
        self._bus = bus
        self._stream = subjects.bucket_stream(self.bucket)
        self._entries: dict[str, Entry[S]] = {}
        self._revisions: dict[str, int] = {}
        self._stored_s_of: dict[str, float] = {}
        """When the server stored these, on its clock; not of what we wrote and were not told yet."""
        self._traces: dict[str, str] = {}
        """In which trace these were written, of those of which that is recorded."""
        self._listeners: WeakKeyDictionary[Changes, None] = WeakKeyDictionary()
        """Who stopped listening is gone by itself."""
        self._complete = anyio.Event()
        self._heard = time.monotonic()
        self._created = ""
        """When the bucket was made: a newer one counts its revisions from 1 again."""
        self._written_since = float("inf")
        """Since when the bucket was written to, as far as we know; infinite while it never was."""
        self._newest = float("-inf")
        """When the newest message was stored."""
        self._stored_s = 0.0
        """The same on the server's clock, as far as the bucket was read as a whole and followed."""
        self._followed = 0
        """The last message that we know the bucket was given."""
        self._awaited = 0
        """The last one that it was given by the check before: by the next one it has come, or is gone."""
        self._reading: _Reading[S] | None = None
        self._doubtful: set[str] = set()
        """Keys that went back, or went, with the bucket, and were not written since."""
        self._doubtful_until = float("-inf")
        self._is_ours = False

    @property
    def is_complete(self) -> bool:
        """The whole bucket was read since the last gap: a key that is not here does not exist."""
        return self._complete.is_set()

    def own(self) -> None:
        """Have it that we write the bucket: where it went back nobody but us puts that right."""
        self._is_ours = True

    def is_doubtful(self, key: str) -> bool:
        """Whether *key* went back with its bucket and was not written since."""
        return key in self._doubtful

    @property
    def is_settled(self) -> bool:
        """Complete, and nothing of it is in doubt, also where another loop of ours is to write it anew."""
        return self.is_complete and not self._is_in_doubt

    @property
    def _is_in_doubt(self) -> bool:
        return bool(self._doubtful) and time.monotonic() < self._doubtful_until

    @property
    def created(self) -> str:
        """When the bucket was made, in the server's words; another one has lost what the first one held."""
        return self._created

    @property
    def is_untouched(self) -> bool:
        """The bucket holds nothing, not even that something was deleted: perhaps it was lost."""
        return not self._revisions

    @property
    def written_for_s(self) -> float:
        """Seconds since when its owner writes to the bucket; minus infinity where nobody ever did.

        While that is not long, a key that is not here proves nothing: the bucket may have been lost.
        """
        return time.monotonic() - self._written_since

    @property
    def newest_age_s(self) -> float:
        """Seconds since the bucket was written to last, on the server's clock; infinite: it never was."""
        return time.monotonic() - self._newest

    @property
    def age_s(self) -> float:
        """Seconds since the server gave a sign of life; more than a few mean that this may be stale."""
        return time.monotonic() - self._heard

    async def complete(self) -> None:
        """Return when the view is complete."""
        while not self.is_complete:
            await self._complete.wait()

    def require_complete(self) -> None:
        """Raise `TransientError` while the view is not complete."""
        if not self.is_complete:
            raise TransientError(f"state {self.bucket} is not read yet", retry_after_s=0.5)

    def require_settled(self) -> None:
        """Raise `TransientError` while the view is not complete, or in doubt."""
        self.require_complete()
        if not self.is_settled:
            raise TransientError(f"state {self.bucket} went back and is written anew", retry_after_s=0.5)

    def get(self, key: str) -> S | None:
        """Return the state of *key*. None means absent only if the view is complete."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def entry(self, key: str) -> Entry[S] | None:
        """Return the state of *key* with its revision."""
        return self._entries.get(key)

    def stored(self, key: str) -> datetime | None:
        """Return when the server stored the state of *key*, on our clock; None: there is none.

        To be compared with times of our own, or of other states: who wrote it may have a clock that is off.
        """
        entry = self._entries.get(key)
        return entry.stored if entry else None

    def revision(self, key: str) -> int:
        """Return the revision of *key*, of its deletion marker too; 0 if it never was."""
        return self._revisions.get(key, 0)

    def event(self, key: str, revision: int | None = None) -> Cause:
        """Return the event that made *key* what it is, or was by *revision*: the message in the bucket."""
        newest = self.revision(key)
        revision = newest if revision is None else revision
        trace = self._traces.get(key, "") if revision == newest else ""
        return Cause(event_id(self.bucket, key, revision), trace) if revision else UNKNOWN

    def values(self) -> list[S]:
        """Return every state, in no order."""
        return [entry.value for entry in self._entries.values()]

    def keys(self) -> list[str]:
        """Return every key, in no order."""
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def changes(self) -> Changes:
        """Return a stream of keys: all that are known now, then each that changes or goes."""
        changes = Changes(self._entries)
        self._listeners[changes] = None
        return changes

    async def doubts(self) -> AsyncGenerator[str]:
        """Yield each key that went back, or went, with the bucket: for who writes it."""
        changes = self.changes()
        for key in self._doubtful:
            changes.add(key)
        async for key in changes:
            if self.is_doubtful(key):
                yield key

    async def run(self) -> None:
        """Read, follow, and read again after each gap, until cancelled."""
        VIEW_AGE.labels(self.bucket).set_function(lambda: self.age_s)
        VIEW_KEYS.labels(self.bucket).set_function(lambda: len(self._entries))
        while True:
            try:
                await self._read()
            except TransientError as error:
                log.warning("view reads again", extra={"bucket": self.bucket, "error": str(error)})
            except SunkError as error:
                log.error("view has no bucket", extra={"bucket": self.bucket, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
                await self._bus.provision_again()
            self._reading = None
            self._set_complete(is_complete=False)
            await anyio.sleep(0.3)

    def apply_own(
        self, key: str, value: S | None, revision: int, *, stored: datetime | None = None, trace: str = ""
    ) -> None:
        """Take over what we have written ourselves, just now or when it was *stored*, before we are told."""
        if revision > self._revisions.get(key, 0):
            self._believe_of(key, _Found(value, revision, stored or now(), 0.0, trace=trace))

    def correct(self, key: str, value: S | None, revision: int, *, stored: datetime | None = None) -> None:
        """Take over what the bucket's leader has of *key*, be it older than what we know: it went back."""
        went_back = revision < self._revisions.get(key, 0)
        self._believe_of(key, _Found(value, revision, stored or now(), 0.0))
        if went_back:
            self._doubt({key})

    def drop(self, key: str) -> None:
        """Take over that the bucket holds nothing of *key*, not even the marker of its deletion."""
        was_there = key in self._entries
        self._drop(key)
        if was_there:
            self._doubt({key})

    def _drop(self, key: str) -> None:
        self._revisions.pop(key, None)
        self._stored_s_of.pop(key, None)
        self._traces.pop(key, None)
        self._doubtful.discard(key)
        was_known = self._entries.pop(key, None) is not None or key in self.undecodable
        self.undecodable.discard(key)
        if was_known:
            self._tell(key)

    async def _read(self) -> None:
        VIEW_READS.labels(self.bucket).inc()
        info = await self._bus.js.stream_info(self._stream)
        await self._note_bucket(info)
        before = dict(self._revisions)
        keys = subjects.bucket_keys(self.bucket)
        last = await self._bus.last(self._stream, keys)
        consumer, pending = await create_consumer(
            self._bus, self._stream, _CONSUMER.evolve(filter_subject=keys)
        )
        self._reading = _Reading(
            last[0] if last else 0,
            pending,
            before,
            followed=self._followed,
            last=info.state.last_seq,
            stored_s=self._stored_s,
        )
        await self._follow(consumer)

    async def _note_bucket(self, info: StreamInfo) -> None:
        """Take what the server says of the bucket as a whole; also a key that is gone was written once.

        A bucket may have been made long before its owner came to write it: its oldest message tells. Where
        all are gone even their markers are, so it was written long ago.
        """
        created, before = str(info.created), self._created
        if not info.state.last_seq:
            self._written_since = float("inf")
        elif not before:
            oldest = await self._oldest(info.state) or info.created or now()
            ours = timedelta(seconds=self._bus.clock.skew_s)
            self._written_since = time.monotonic() - max(0.0, (now() + ours - oldest).total_seconds())
        elif created != before or self._written_since == float("inf"):
            self._written_since = time.monotonic()
        self._created = created

    async def _oldest(self, state: StreamState) -> datetime | None:
        """Return when the oldest message was stored: nats-py drops what the server says of it."""
        if not state.messages:
            return None
        try:
            return (await self._bus.js.get_msg(self._stream, seq=state.first_seq)).time
        except JetStreamRejectedError as error:
            raise BusUnavailableError("the oldest message has gone meanwhile") from error

    def _note_stored(self, at: Msg.Metadata) -> None:
        moment = time.monotonic()
        self._written_since = min(self._written_since, moment)
        age_s = time.time() + self._bus.clock.skew_s - at.timestamp.timestamp()
        stored = moment - max(0.0, age_s)
        self._newest = max(self._newest, stored)
        if self._reading is None:
            self._stored_s = max(self._stored_s, at.timestamp.timestamp())
        else:
            self._reading.newest = max(self._reading.newest, stored)

    async def _follow(self, consumer: str) -> None:
        """Take over what *consumer* delivers, at first the whole bucket."""
        expected, reached, checked = 1, 0, time.monotonic()
        async with pulling(self._bus, self._stream, consumer) as pull:
            while True:
                if self._reading is not None and self._reading.is_over:
                    self._finish(self._reading)
                self._believe()
                batch = await pull.batch()
                self._heard = time.monotonic()
                if self._reading is not None:
                    self._reading.heard(is_idle=not batch)
                for message in batch:
                    at, revision = message.metadata, message.metadata.sequence.stream
                    if at.sequence.consumer != expected:
                        raise BusUnavailableError(f"delivery {expected} was missed")
                    if revision <= reached:
                        raise BusUnavailableError(f"the bucket went back from {reached} to {revision}")
                    expected, reached = expected + 1, revision
                    self._note_stored(at)
                    key = await self._take(message, at)
                    if self._reading is not None:
                        self._reading.took(key, at)
                    else:
                        self._followed = revision
                if self._reading is None and time.monotonic() - checked > CHECK_S:
                    await self._check()
                    self._forget_gone()
                    checked = time.monotonic()

    def _forget_gone(self) -> None:
        """Forget keys that are gone for good; not all, lest the bucket seem untouched."""
        until_s = self._stored_s - MARKERS_S
        gone = self._stored_s_of.keys() - self._entries.keys() - self.undecodable
        for key in gone if self._entries else ():
            if self._stored_s_of[key] < until_s:
                self._drop(key)

    async def _check(self) -> None:
        """Raise `BusUnavailableError` if another client emptied the bucket; no answer is no news."""
        state: StreamState | None = None
        with anyio.move_on_after(CHECK_TIMEOUT_S), suppress(SunkError):
            state = (await self._bus.js.stream_info(self._stream)).state
        if state is not None:
            self._require_held(state)

    def _require_held(self, state: StreamState) -> None:
        last = state.last_seq
        if last > max(self._followed, self._awaited):
            self._awaited = last
            return  # What is still to come may be in place of what we know.
        held = [revision for key in self._entries if (revision := self._revisions[key]) <= last]
        if len(held) > state.messages or min(held, default=state.first_seq) < state.first_seq:
            raise BusUnavailableError("another client removed the content of the bucket")

    def _finish(self, reading: _Reading[S]) -> None:
        """Take over what went back, forget what the bucket no longer has, but not what came while we read."""
        self._reading = None
        self._followed, self._awaited = reading.last, 0
        self._stored_s = max(self._stored_s, reading.newest_s)
        went_back: set[str] = set()
        for key, found in reading.older.items():
            if self._revisions.get(key, 0) == reading.before.get(key, 0):
                self._believe_of(key, found)
                if key not in reading.anew:
                    went_back.add(key)
        for key in {**self._entries, **self._revisions}.keys() - reading.keys:
            if self._revisions.get(key, 0) == reading.before.get(key, 0):
                if key in self._entries:
                    went_back.add(key)
                self._drop(key)
        if went_back:
            if reading.keys:
                self._newest = reading.newest
            self._doubt(went_back)
            log.warning("bucket went back", extra={"bucket": self.bucket, "keys": len(went_back)})

    def _doubt(self, keys: set[str]) -> None:
        self._doubtful |= keys
        self._doubtful_until = time.monotonic() + DOUBT_S

    def _believe(self) -> None:
        """Be complete once the bucket is read and none of it is in doubt."""
        if self._reading is not None or self.is_complete:
            return
        if not self._is_in_doubt:
            self._doubtful.clear()
        if self._is_ours or not self._doubtful:
            self._set_complete(is_complete=True)

    async def _take(self, message: Message, at: Msg.Metadata) -> str:
        """Take over what came, and return its key."""
        try:
            key = subjects.key_of(self.bucket, message.subject)
        except ValueError:
            await self._bury(message, at, "the key is no UTF-8")
            return message.subject
        found, reason = self._read_value(message, at)
        if self._is_news(key, found):
            self._believe_of(key, found)
        if reason:
            await self._bury(message, at, reason)
        return key

    def _read_value(self, message: Message, at: Msg.Metadata) -> tuple[_Found[S], str]:
        """Return what *message* says, and why it cannot be read if it cannot."""
        revision, stored_s = at.sequence.stream, at.timestamp.timestamp()
        trace = message.headers.get("traceparent", "")
        if "Nats-Marker-Reason" in message.headers or message.headers.get("KV-Operation") in {"DEL", "PURGE"}:
            return _Found(None, revision, now(), stored_s, trace=trace), ""
        stored = at.timestamp - timedelta(seconds=self._bus.clock.skew_s)
        try:
            value = decode_state(self.kind, message.data)
            return _Found(value, revision, stored, stored_s, trace=trace), ""
        except UndecodableError as error:
            return _Found(None, revision, stored, stored_s, is_readable=False), str(error)

    async def _bury(self, message: Message, at: Msg.Metadata, reason: str) -> None:
        msg_id = f"{self.bucket}:{at.sequence.stream}"
        await bury(self._bus, self.cluster, message, f"{self.bucket}: {reason}", msg_id=msg_id)

    def _is_news(self, key: str, found: _Found[S]) -> bool:
        """Whether what the bucket tells of *key* is to be believed now.

        What is not newer is our own write, told again; or an older one, overtaken by it. Only in a whole read
        the bucket may have gone back: what is older is kept until the read is over, and one revision may be
        of another value. A key that is not known, and was written before we came so far, was gone.
        """
        known, reading = self._revisions.get(key, 0), self._reading
        if reading is None or known != reading.before.get(key, 0):
            if found.revision == known:
                self._stored_s_of[key] = found.stored_s
            return found.revision > known
        if known:
            stored_s = self._stored_s_of.get(key)  # None: we wrote it, so it was there after all we know.
            is_news = found.revision >= known and found.stored_s >= (stored_s or 0)
            is_anew = stored_s is not None and found.stored_s > stored_s
        else:
            is_anew = found.stored_s > reading.stored_s
            is_news = found.revision > reading.followed and is_anew
        if not is_news:
            reading.older[key] = found
            (reading.anew.add if is_anew else reading.anew.discard)(key)
        return is_news

    def _believe_of(self, key: str, found: _Found[S]) -> None:
        """Take over what was *found*, whatever was known."""
        was_known = self._revisions.get(key, 0) == found.revision
        is_same = was_known and found.is_readable == (key not in self.undecodable)
        is_same = is_same and (not found.is_readable or self.get(key) == found.value)
        self._revisions[key] = found.revision
        if found.stored_s:
            self._stored_s_of[key] = found.stored_s
        else:
            self._stored_s_of.pop(key, None)
        if found.trace:
            self._traces[key] = found.trace
        elif not was_known:
            self._traces.pop(key, None)
        if is_same:
            return  # Read once more: nobody need look at it again.
        self._doubtful.discard(key)
        if not found.is_readable:
            self.undecodable.add(key)
            return
        self.undecodable.discard(key)
        if found.value is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = Entry(found.value, found.revision, found.stored)
        self._tell(key)

    def _tell(self, key: str) -> None:
        for listener in tuple(self._listeners):
            listener.add(key)

    def _set_complete(self, *, is_complete: bool) -> None:
        VIEW_COMPLETE.labels(self.bucket).set(is_complete)
        if is_complete:
            self._complete.set()
            self.recovery.announce()
        elif self._complete.is_set():
            self._complete = anyio.Event()


def now() -> datetime:
    """Return the time, for shells; pure code is given it."""
    return datetime.now(UTC)


@asynccontextmanager
async def following(*views: StateView[Any]) -> AsyncGenerator[None]:
    """Run *views* while the context lasts."""
    async with anyio.create_task_group() as tasks:
        for view in views:
            tasks.start_soon(view.run)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
