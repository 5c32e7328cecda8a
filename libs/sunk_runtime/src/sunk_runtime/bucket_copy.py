"""What a process knows of a bucket: the states, their revisions, and which of them are in doubt; no I/O.

What must stay true: what is older than what was known is taken over only where the bucket itself went back,
and it is in doubt until the bucket's owner has written it again, or has had `DOUBT_S` for it. A value that
cannot be read is *unknown*: the last one that could be read stays. Each consumer of changes gets every key at
least once, and the latest state only.
"""

import time
from collections.abc import AsyncGenerator
from datetime import datetime
from itertools import takewhile
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio
import msgspec

from sunk_events.base import UNKNOWN, Cause, State, event_id
from sunk_runtime.bucket_read import Found, WholeRead
from sunk_runtime.changes import Changes
from sunk_runtime.clock import now
from sunk_runtime.errors import TransientError
from sunk_runtime.metrics import VIEW_COMPLETE
from sunk_runtime.recovery import Recovery

S = TypeVar("S", bound=State)

DOUBT_S: Final = 30.0
"""What a bucket that went back holds is not decided upon for so long, while its owner writes it anew: it
looks at all that it has, and another one may have to take over first."""


class Entry(msgspec.Struct, Generic[S], frozen=True):
    """A state and the revision that stored it."""

    value: S
    revision: int
    stored: datetime
    """When the server stored it, on our clock: how far these two are apart is known."""


class BucketCopy(Generic[S]):
    """The states of one bucket, as far as they are known."""

    def __init__(self, bucket: str) -> None:
        self.bucket: Final = bucket
        self.recovery: Final = Recovery()
        """Told whenever the view is complete again."""
        self.undecodable: set[str] = set()
        """Keys whose present value could not be read: unknown, not absent."""
        self._entries: dict[str, Entry[S]] = {}
        self._revisions: dict[str, int] = {}
        """The newest last, unless the bucket went back since it was sorted."""
        self._is_sorted = True
        self._stored_s_of: dict[str, float] = {}
        """When the server stored these, on its clock; not of what we wrote and were not told yet."""
        self._traces: dict[str, str] = {}
        """In which trace these were written, of those of which that is recorded."""
        self._listeners: WeakKeyDictionary[Changes, None] = WeakKeyDictionary()
        """A listener that is no longer used goes by itself."""
        self._complete = anyio.Event()
        self._doubtful: set[str] = set()
        """Keys that went back, or went, with the bucket, and were not written since."""
        self._doubtful_until = float("-inf")
        self._went_back = float("-inf")
        """When a key was last seen to go back, or to go, with the bucket."""
        self._highest = 0
        """Of the revisions since the last whole read, and of those that it found."""
        self._known_since = float("inf")
        """When this was complete for the first time."""
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
    def went_back_s(self) -> float:
        """Seconds since revisions were last seen to be given again (it went back); infinite: never."""
        return time.monotonic() - self._went_back

    @property
    def known_s(self) -> float:
        """Seconds since this was complete for the first time; minus infinity: it never was."""
        return time.monotonic() - self._known_since

    @property
    def is_untouched(self) -> bool:
        """The bucket holds nothing, not even that something was deleted: perhaps it was lost."""
        return not self._revisions

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
            raise TransientError(
                f"state {self.bucket} lost its latest messages and is written again", retry_after_s=0.5
            )

    def get(self, key: str) -> S | None:
        """Return the state of *key*. None means absent only if the view is complete."""
        entry = self._entries.get(key)
        return entry.value if entry else None

    def entry(self, key: str) -> Entry[S] | None:
        """Return the state of *key* with its revision."""
        return self._entries.get(key)

    def stored(self, key: str) -> datetime | None:
        """Return when the server stored the state of *key*, on our clock; None: there is none.

        To be compared with times of our own, or of other states: the writer may have a clock that is off.
        """
        entry = self._entries.get(key)
        return entry.stored if entry else None

    def revision(self, key: str) -> int:
        """Return the revision of *key*, of its deletion marker too; 0 if it never was."""
        return self._revisions.get(key, 0)

    def after(self, revision: int) -> tuple[int, list[str]]:
        """Return the newest revision, and the keys that were written, or went, after *revision*.

        A key that went is known for an hour. Where the bucket went back, newer states have older revisions
        (`went_back_s`).
        """
        if not self._is_sorted:
            self._revisions = dict(sorted(self._revisions.items(), key=lambda item: item[1]))
            self._is_sorted = True
        newer = takewhile(lambda item: item[1] > revision, reversed(self._revisions.items()))
        return next(reversed(self._revisions.values()), 0), [key for key, _ in newer]

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
        """Yield each key that went back, or went, with the bucket: for its writer."""
        changes = self.changes()
        for key in self._doubtful:
            changes.add(key)
        async for key in changes:
            if self.is_doubtful(key):
                yield key

    def apply_own(
        self, key: str, value: S | None, revision: int, *, stored: datetime | None = None, trace: str = ""
    ) -> None:
        """Take over what we have written ourselves, just now or when it was *stored*, before we are told."""
        if revision > self._revisions.get(key, 0):
            self._believe_of(key, Found(value, revision, stored or now(), 0.0, trace=trace))

    def correct(self, key: str, value: S | None, revision: int, *, stored: datetime | None = None) -> None:
        """Take over what the bucket's leader has of *key*, be it older than what we know: it went back."""
        went_back = revision < self._revisions.get(key, 0)
        self._believe_of(key, Found(value, revision, stored or now(), 0.0))
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
            self._add_change(key)

    def _forget_gone(self, until_s: float) -> None:
        """Forget keys that went before *until_s*; not all, or the bucket would seem untouched."""
        gone = self._stored_s_of.keys() - self._entries.keys() - self.undecodable
        for key in gone if self._entries else ():
            if self._stored_s_of[key] < until_s:
                self._drop(key)

    def _take_over(self, reading: WholeRead[S]) -> set[str]:
        """Take over a whole read, but not what came during it; return the keys that went back, or went."""
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
        self._highest = max(self._revisions.values(), default=0)
        return went_back

    def _doubt(self, keys: set[str]) -> None:
        self._doubtful |= keys
        self._went_back = time.monotonic()
        self._doubtful_until = self._went_back + DOUBT_S

    def _believe_of(self, key: str, found: Found[S]) -> None:
        """Take over what was *found*, whatever was known."""
        was_known = self._revisions.get(key, 0) == found.revision
        is_same = was_known and found.is_readable == (key not in self.undecodable)
        is_same = is_same and (not found.is_readable or self.get(key) == found.value)
        if not is_same and found.revision <= self._highest:
            self._went_back = time.monotonic()  # Another message had that revision.
        self._highest = max(self._highest, found.revision)
        self._note_revision(key, found.revision)
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
        self._add_change(key)

    def _note_revision(self, key: str, revision: int) -> None:
        self._revisions.pop(key, None)
        self._is_sorted = self._is_sorted and revision >= next(reversed(self._revisions.values()), 0)
        self._revisions[key] = revision

    def _add_change(self, key: str) -> None:
        for listener in tuple(self._listeners):
            listener.add(key)

    def _set_complete(self, *, is_complete: bool) -> None:
        VIEW_COMPLETE.labels(self.bucket).set(is_complete)
        if is_complete:
            self._known_since = min(self._known_since, time.monotonic())
            self._complete.set()
            self.recovery.announce()
        elif self._complete.is_set():
            self._complete = anyio.Event()
