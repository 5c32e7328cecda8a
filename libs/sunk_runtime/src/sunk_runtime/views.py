"""StateView: a whole bucket, then what changes. StateWriter: fact first, then state.

What must stay true: a view says when it is complete, and until then nobody may conclude that a key is
absent; after any gap it reads the whole bucket again; a value that cannot be read is *unknown*, the last
one that could be read stays; each consumer of changes gets every key at least once, the latest state only.
"""

import logging
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

import anyio
import msgspec

from sunk_events import subjects
from sunk_events.base import Event, State
from sunk_events.codec import UndecodableError, decode_state, encode
from sunk_runtime.dead import bury
from sunk_runtime.errors import BusUnavailableError, ConflictError, SunkError, TransientError
from sunk_runtime.jetstream import MARKER_TTL_S, Bus, Message
from sunk_runtime.metrics import FACTS, VIEW_COMPLETE, VIEW_READS
from sunk_runtime.pull import create_consumer, position, pulling

log = logging.getLogger(__name__)

S = TypeVar("S", bound=State)

_CONSUMER: Final[dict[str, Any]] = {
    "deliver_policy": "last_per_subject",
    "ack_policy": "none",
    "replay_policy": "instant",
    "mem_storage": True,
    "num_replicas": 1,
    "inactive_threshold": 30_000_000_000,
}


IDLE_MAX: Final = 5
"""Heartbeats in the middle of a whole read before it begins anew: a marker may have aged out meanwhile."""


class Entry(msgspec.Struct, Generic[S], frozen=True):
    """A state and the revision that stored it."""

    value: S
    revision: int


class Changes:
    """The keys of a view that changed, each once until it is taken."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = dict.fromkeys(keys)
        self._news = anyio.Event()

    def add(self, key: str) -> None:
        """Remember *key*; it being remembered already is fine."""
        self._keys[key] = None
        self._news.set()

    def __aiter__(self) -> "Changes":
        return self

    async def __anext__(self) -> str:
        while not self._keys:
            self._news = anyio.Event()
            await self._news.wait()
        key = next(iter(self._keys))
        del self._keys[key]
        return key


class StateView(Generic[S]):
    """All states of one kind of one cluster, kept current by `run`."""

    def __init__(self, bus: Bus, cluster: str, kind: type[S]) -> None:
        self.kind = kind
        self.bucket: Final = subjects.bucket(cluster, kind)
        self.cluster: Final = cluster
        self.undecodable: set[str] = set()
        """Keys whose present value could not be read: unknown, not absent."""
        self._bus = bus
        self._stream = subjects.bucket_stream(self.bucket)
        self._entries: dict[str, Entry[S]] = {}
        self._revisions: dict[str, int] = {}
        self._listeners: list[Changes] = []
        self._complete = anyio.Event()
        self._heard = time.monotonic()
        self._created = ""
        """When the bucket was made: a newer one counts its revisions from 1 again."""

    @property
    def is_complete(self) -> bool:
        """The whole bucket was read since the last gap: a key that is not here does not exist."""
        return self._complete.is_set()

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

    def get(self, key: str) -> S | None:
        """Return the state of *key*. None means absent only if the view is complete."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def entry(self, key: str) -> Entry[S] | None:
        """Return the state of *key* with its revision."""
        return self._entries.get(key)

    def revision(self, key: str) -> int:
        """Return the revision of *key*, of its deletion marker too; 0 if it never was."""
        return self._revisions.get(key, 0)

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
        self._listeners.append(changes)
        return changes

    async def run(self) -> None:
        """Read, follow, and read again after each gap, until cancelled."""
        while True:
            try:
                await self._read()
            except TransientError as error:
                log.warning("view reads again", extra={"bucket": self.bucket, "error": str(error)})
            except SunkError as error:
                log.error("view has no bucket", extra={"bucket": self.bucket, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
                await self._bus.provision_again()
            self._set_complete(is_complete=False)
            await anyio.sleep(0.3)

    def apply_own(self, key: str, value: S | None, revision: int) -> None:
        """Take over what we have written ourselves before the server tells us."""
        self._apply(key, value, revision)

    def drop(self, key: str) -> None:
        """Take over that the bucket holds nothing of *key*, not even the marker of its deletion."""
        self._revisions.pop(key, None)
        was_known = self._entries.pop(key, None) is not None or key in self.undecodable
        self.undecodable.discard(key)
        if was_known:
            self._tell(key)

    async def _read(self) -> None:
        VIEW_READS.labels(self.bucket).inc()
        created = str((await self._bus.api(f"STREAM.INFO.{self._stream}", {}))["created"])
        if created != self._created:
            self._created = created
            self._revisions.clear()
        before = dict(self._revisions)
        consumer, pending = await create_consumer(
            self._bus, self._stream, {**_CONSUMER, "filter_subject": subjects.bucket_keys(self.bucket)}
        )
        seen: set[str] | None = set()
        expected, idle = 1, 0
        async with pulling(self._bus, self._stream, consumer) as pull:
            if not pending:
                seen = self._finish(set(), before)
            while True:
                message = await pull.next()
                self._heard = time.monotonic()
                if message is None:
                    idle += 1
                    if seen is not None and idle > IDLE_MAX:
                        raise BusUnavailableError("what was pending did not come")
                    continue
                at = position(message.reply)
                if at.consumer_seq != expected:
                    raise BusUnavailableError(f"delivery {expected} was missed")
                expected += 1
                key = await self._take(message, at.stream_seq)
                if seen is not None:
                    seen.add(key)
                    if not at.pending:
                        seen = self._finish(seen, before)

    def _finish(self, seen: set[str], before: Mapping[str, int]) -> None:
        """Forget what the bucket no longer has, but not what we wrote while we read, and be complete."""
        for key in {**self._entries, **self._revisions}.keys() - seen:
            if self._revisions.get(key, 0) == before.get(key, 0):
                self.drop(key)
        self._set_complete(is_complete=True)

    async def _take(self, message: Message, revision: int) -> str:
        """Take over what came, and return its key."""
        try:
            key = subjects.key_of(self.bucket, message.subject)
        except ValueError:
            await self._bury(message, revision, "the key is no UTF-8")
            return message.subject
        await self._take_value(key, message, revision)
        return key

    async def _take_value(self, key: str, message: Message, revision: int) -> None:
        if "Nats-Marker-Reason" in message.headers or message.headers.get("KV-Operation") in {"DEL", "PURGE"}:
            self._apply(key, None, revision)
            return
        try:
            value = decode_state(self.kind, message.data)
        except UndecodableError as error:
            self.undecodable.add(key)
            self._revisions[key] = revision
            await self._bury(message, revision, str(error))
            return
        self._apply(key, value, revision)

    async def _bury(self, message: Message, revision: int, reason: str) -> None:
        msg_id = f"{self.bucket}:{revision}"
        await bury(self._bus, self.cluster, message, f"{self.bucket}: {reason}", msg_id=msg_id)

    def _apply(self, key: str, value: S | None, revision: int) -> None:
        if revision <= self._revisions.get(key, 0):
            return  # Our own write, told again; or an older one, overtaken by it.
        self._revisions[key] = revision
        self.undecodable.discard(key)
        if value is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = Entry(value, revision)
        self._tell(key)

    def _tell(self, key: str) -> None:
        for listener in self._listeners:
            listener.add(key)

    def _set_complete(self, *, is_complete: bool) -> None:
        VIEW_COMPLETE.labels(self.bucket).set(is_complete)
        if is_complete:
            self._complete.set()
        elif self._complete.is_set():
            self._complete = anyio.Event()


class StateWriter(Generic[S]):
    """The one writer of a bucket. It reads its own bucket through *view* to know what was before."""

    def __init__(self, bus: Bus, view: StateView[S]) -> None:
        self.view = view
        self._bus = bus

    async def record(self, key: str, state: S, facts: Iterable[Event] = (), *, revision: int) -> None:
        """Publish *facts*, then store *state*: a crash in between repeats a fact and never skips one.

        Args:
            key: The entity, unescaped.
            state: Its new state. An equal one (but for ``changed``) is not written.
            facts: What happened; their ids name *revision*.
            revision: The revision of the state that was decided upon, `StateView.revision`.

        Raises:
            ConflictError: somebody wrote the key in between; look again.
            BusUnavailableError: nothing is known of the write; do the same again.
        """
        before = None if key in self.view.undecodable else self.view.get(key)
        if before is not None and is_same(before, state) and self.view.revision(key) == revision:
            return
        for event in facts:
            await publish(self._bus, self.view.cluster, event)
        await self._write(key, state, encode(state), revision, {})

    async def forget(self, key: str, facts: Iterable[Event] = (), *, revision: int) -> None:
        """Publish *facts*, then delete *key*, leaving a marker for those who look away; gone is success."""
        if self.view.is_complete and self.view.get(key) is None and key not in self.view.undecodable:
            return
        for event in facts:
            await publish(self._bus, self.view.cluster, event)
        await self._write(key, None, b"", revision, {"KV-Operation": "PURGE", "Nats-Rollup": "sub"})

    async def _write(
        self, key: str, state: S | None, data: bytes, revision: int, headers: Mapping[str, str]
    ) -> None:
        subject = subjects.key_subject(self.view.bucket, key)
        ttl_s = MARKER_TTL_S if state is None else None
        try:
            stored = await self._bus.publish(
                subject, data, expected_revision=revision, ttl_s=ttl_s, headers=headers
            )
        except ConflictError:
            # The revision we know may be older than our own last write, whose answer was lost.
            if self.view.revision(key) != revision:
                raise
            stored = await self._adopt(key, subject, state, revision)
        self.view.apply_own(key, state, stored)

    async def _adopt(self, key: str, subject: str, state: S | None, revision: int) -> int:
        """Return the stored revision if what is stored is what we meant to store, else raise."""
        found = await self._bus.last(subjects.bucket_stream(self.view.bucket), subject)
        if found is None:
            was_absent = self.view.get(key) is None and key not in self.view.undecodable
            self.view.drop(key)
            if state is None:
                return 0
            if was_absent:  # Only the marker of its deletion aged out: absent is what was decided upon.
                return await self._bus.publish(subject, encode(state), expected_revision=0)
            raise ConflictError(f"{key}: revision {revision} was deleted")
        stored, message = found
        is_marker = "KV-Operation" in message.headers or "Nats-Marker-Reason" in message.headers
        if is_marker and state is None:
            return stored
        if not is_marker and state is not None and message.data == encode(state):
            return stored
        with suppress(UndecodableError):  # The view will hear of it by itself.
            value = None if is_marker else decode_state(self.view.kind, message.data)
            self.view.apply_own(key, value, stored)
        raise ConflictError(f"{key}: stored is revision {stored}, decided was on {revision}")


def is_same(before: State, after: State) -> bool:
    """Whether two states differ in nothing but when they began."""
    return msgspec.structs.replace(before, changed=after.changed) == after


async def publish(bus: Bus, cluster: str, event: Event) -> None:
    """Publish *event*; twice is once within the stream's duplicate window.

    Raises:
        BusUnavailableError: it may or may not have been stored; publish it again.
    """
    await bus.publish(subjects.fact(cluster, event), encode(event), msg_id=event.id)
    FACTS.labels(type(event).__name__).inc()


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
