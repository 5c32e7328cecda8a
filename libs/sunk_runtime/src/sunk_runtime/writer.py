"""StateWriter: fact first, then state. The one writer of a bucket, whose retries change nothing.

What must stay true: a state is stored only on the revision it was decided upon; a fact is published before
the state that says it was, so a crash in between repeats it, under the same id, and never skips it. Only a
stream of facts that is full does not stop the state: such a fact is counted and gone. A state that failed to
be told is told whole before another one, its facts first: they may have been published or not, and what ends
it is to be published too. Only what no retry can help is not told again.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Final, Generic, NoReturn, TypeVar

import msgspec
from prometheus_client import Counter

from sunk_events import subjects
from sunk_events.base import Event, State, caused
from sunk_events.codec import OversizeError, UndecodableError, decode_state, encode
from sunk_runtime.errors import ConflictError, FullError, PermanentError
from sunk_runtime.fencing import Fence
from sunk_runtime.jetstream import Bus
from sunk_runtime.metrics import FACTS, FACTS_REFUSED
from sunk_runtime.streams import MARKER_TTL_S
from sunk_runtime.tracing import cause_now, here, span
from sunk_runtime.views import StateView

S = TypeVar("S", bound=State)

_DELETION: Final = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}


class _Owed(msgspec.Struct, Generic[S], frozen=True):
    """A state of which it is not known that it is stored, nor that its facts are published."""

    revision: int
    """The revision that it replaces, which the facts' ids name."""
    state: S | None
    facts: tuple[Event, ...]


class StateWriter(Generic[S]):
    """The one writer of a bucket. It reads its own bucket through *view* to know what was before.

    A service that writes as leader hands its leadership in as *fence*: each write asks it, and carries its
    token.
    """

    def __init__(self, bus: Bus, view: StateView[S], *, fence: Fence | None) -> None:
        view.own()
        self.view = view
        self._bus = bus
        self._fence = fence
        self._owed: dict[str, _Owed[S]] = {}

    async def record(self, key: str, state: S, facts: Iterable[Event] = (), *, revision: int) -> None:
        """Publish *facts*, then store *state*: a crash in between repeats a fact and never skips one.

        Args:
            key: The entity, unescaped.
            state: Its new state. An equal one (but for ``changed``) is not written, unless it came back with
                an older bucket: then others wait to hear that it holds.
            facts: What happened; their ids name *revision*, their cause is that of `because`.
            revision: The revision of the state that was decided upon, `StateView.revision`.

        Raises:
            ConflictError: somebody wrote the key in between; look again.
            LostLeadershipError: we no longer lead; what was not written yet is not written.
            BusUnavailableError: nothing is known of the write; do the same again.
        """
        owed = await self._pay(key, state, revision)
        before = None if key in self.view.undecodable else self.view.get(key)
        is_stored = before is not None and is_same(before, state) and not self.view.is_doubtful(key)
        if is_stored and self.view.revision(key) == revision:
            return
        await self._store(key, _Owed(revision, state, (*owed, *_with_cause(facts))))

    async def forget(self, key: str, facts: Iterable[Event] = (), *, revision: int) -> None:
        """Publish *facts*, then delete *key*, leaving a marker for those who look away; gone is success.

        One that went with an older bucket gets its marker again: others wait to hear that it is gone. Raises
        as `record` does; also where something is owed of a key that is not stored, which is to be told first.
        """
        owed = await self._pay(key, None, revision)
        is_gone = self.view.is_complete and self.view.get(key) is None and key not in self.view.undecodable
        if is_gone and not self.view.is_doubtful(key):
            return
        await self._store(key, _Owed(revision, None, (*owed, *_with_cause(facts))))

    async def _pay(self, key: str, state: S | None, revision: int) -> tuple[Event, ...]:
        """Tell the state that is owed, if *state* is another one; else return its facts, to be told with it.

        Else what happened in between would be told by nobody: what is decided next is decided on what is
        stored, and knows nothing of it.

        Raises:
            ConflictError: it is stored now: look again, and decide upon it.
        """
        owed = self._owed.get(key)
        if owed is None:
            return ()
        if owed.revision != revision or self.view.revision(key) != revision:
            del self._owed[key]  # Somebody has written since, or this very write came through.
            return ()
        if not _is_equal(owed.state, state):
            await self._pay_whole(key, owed)
        return owed.facts

    async def _pay_whole(self, key: str, owed: _Owed[S]) -> NoReturn:
        await self._store(key, owed)
        raise ConflictError(f"{key}: its earlier facts are published only now")

    async def _store(self, key: str, owed: _Owed[S]) -> None:
        """Publish the facts of *owed*, then store its state; owe it until that is known to have been done."""
        self._owed.pop(key, None)
        data = b"" if owed.state is None else encode(owed.state)
        if owed.facts:
            self._owed[key] = owed
        try:
            await self._publish_facts(owed.facts)
            await self._write(key, owed.state, data, owed.revision)
        except (PermanentError, OversizeError):
            self._owed.pop(key, None)
            raise

    async def _publish_facts(self, facts: Iterable[Event]) -> None:
        for event in {event.id: event for event in facts}.values():
            try:
                await publish(self._bus, self.view.cluster, event, fence=self._fence)
            except FullError:  # If all of NATS is full the state is refused too, and both come again.
                FACTS_REFUSED.labels(type(event).__name__).inc()

    async def _write(self, key: str, state: S | None, data: bytes, revision: int) -> None:
        subject, trace = subjects.key_subject(self.view.bucket, key), ""
        ttl_s, headers = (MARKER_TTL_S, _DELETION) if state is None else (None, {})
        try:
            with span("store", self.view.kind.__name__, subject):
                stored = await self._bus.publish(
                    subject, data, expected_revision=revision, ttl_s=ttl_s, headers=headers, fence=self._fence
                )
                trace = here("").trace
        except ConflictError:
            # The revision we know may be older than our own last write, whose answer was lost.
            if self.view.revision(key) != revision:
                raise
            stored = await self._adopt(key, subject, state, revision)
        self._owed.pop(key, None)
        self.view.apply_own(key, state, stored, trace=trace)

    async def _adopt(self, key: str, subject: str, state: S | None, revision: int) -> int:
        """Return the stored revision if what is stored is what we meant to store, else raise."""
        found = await self._bus.last(subjects.bucket_stream(self.view.bucket), subject)
        is_over = self.view.revision(key) != revision  # The view heard of another meanwhile.
        if found is None:
            if is_over:
                raise ConflictError(
                    f"{key}: the decision was made on revision {revision}, which is no longer stored"
                )
            was_absent = self.view.get(key) is None and key not in self.view.undecodable
            self.view.drop(key)
            if state is None:
                return 0
            if was_absent:  # Only the marker of its deletion aged out: absent is what was decided upon.
                data = encode(state)
                return await self._bus.publish(subject, data, expected_revision=0, fence=self._fence)
            raise ConflictError(f"{key}: revision {revision} was deleted")
        stored, message = found
        is_marker = "KV-Operation" in message.headers or "Nats-Marker-Reason" in message.headers
        with suppress(UndecodableError):  # The view will hear of it by itself.
            value = None if is_marker else decode_state(self.view.kind, message.data)
            if not is_over:  # Be it older than what we knew: then the bucket went back.
                self.view.correct(key, value, stored)
        if is_marker and state is None:
            return stored
        if not is_marker and state is not None and message.data == encode(state):
            return stored
        raise ConflictError(f"{key}: revision {stored} is stored, but the decision was made on {revision}")


def is_same(before: State, after: State) -> bool:
    """Whether two states differ in nothing but when they began."""
    return msgspec.structs.replace(before, changed=after.changed) == after


def _with_cause(facts: Iterable[Event]) -> tuple[Event, ...]:
    cause = cause_now()
    return tuple(caused(fact, cause) for fact in facts)


def _is_equal(owed: State | None, state: State | None) -> bool:
    return state is None if owed is None else state is not None and is_same(owed, state)


async def publish(bus: Bus, cluster: str, event: Event, *, fence: Fence | None = None) -> None:
    """Publish *event*; twice is once within the stream's duplicate window.

    Raises:
        LostLeadershipError: the *fence* says that we no longer lead.
        BusUnavailableError: it may or may not have been stored; publish it again.
    """
    subject = subjects.fact(cluster, event)
    with span("publish", type(event).__name__, subject):
        await bus.publish(subject, encode(event), msg_id=event.id, fence=fence)
    _facts_of(type(event)).inc()


@cache
def _facts_of(kind: type[Event]) -> Counter:
    return FACTS.labels(kind.__name__)
