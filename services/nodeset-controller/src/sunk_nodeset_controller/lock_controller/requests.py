"""Questions about a node that wait for an answer, and what its epilogs said: kept in this process only.

Losing it is harmless: prologs ask again, holders stand on the Node, and Slurm says who has left.
"""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

import anyio

from sunk_events.base import UNKNOWN, Cause
from sunk_events.locks import LockLevel
from sunk_nodeset_controller.locks.eviction import EvictionAttempt
from sunk_nodeset_controller.locks.model import Answer, Blockers, Granted, LockRequest, NotRunning

WAITED_MAX_S: Final = 3600.0


class PendingReply:
    """One question that is being held."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        """The last word."""
        self.trouble = "the lock was not looked at yet"
        """Why there is no word at all."""
        self._answered = anyio.Event()

    def reply(self, answer: Answer) -> None:
        """Take *answer*; a final one ends the wait."""
        self.answer = answer
        if is_final(answer):
            self._answered.set()

    async def wait(self, within_s: float) -> None:
        """Return at the final answer, or after *within_s*."""
        with anyio.move_on_after(within_s):
            await self._answered.wait()


class LockRequests:
    """The questions about one node's lock that wait for an answer, and what its looks have found."""

    def __init__(self) -> None:
        self.idle_since: datetime | None = None
        self.clear_since: dict[LockLevel, datetime] = {}
        """Since when every look has found nobody in the way."""
        self.driven: frozenset[str] = frozenset()
        """The Pods that were in the way at the last look and that Kubernetes drives out, by uid."""
        self.looked_at: datetime | None = None
        """When the Pods were looked at last."""
        self.attempts: dict[str, EvictionAttempt] = {}
        """The evictions that were tried, by the Pod's uid."""
        self.released: dict[int, datetime] = {}
        self.waiting_since: dict[int, datetime] = {}
        """Since when each job that is not granted waits, asked for or not."""
        self._requests: dict[int, LockRequest] = {}
        self._waiters: dict[int, set[PendingReply]] = {}
        self._undone: list[anyio.Event] = []

    @property
    def requests(self) -> tuple[LockRequest, ...]:
        """The questions that wait, one a job."""
        return tuple(self._requests.values())

    @property
    def is_empty(self) -> bool:
        """Nothing is worth remembering."""
        pending = self._waiters or self._undone or self.released
        found = self.clear_since or self.attempts or self.waiting_since
        return not pending and not found and self.idle_since is None

    @contextmanager
    def asking(
        self,
        job: int,
        level: LockLevel,
        now: datetime,
        *,
        waited_s: float = 0.0,
        cause: Cause = UNKNOWN,
    ) -> Generator[PendingReply]:
        """Hold a question of *job* while the context lasts; several of one job are one ask."""
        before = self._requests.get(job)
        if before is None or (level == "strict" and before.level == "normal"):
            since = now - timedelta(seconds=min(waited_s, WAITED_MAX_S)) if waited_s else None
            self._requests[job] = LockRequest(
                job=job, level=level, requested_at=now, since=since, cause=cause
            )
        waiter = PendingReply()
        self._waiters.setdefault(job, set()).add(waiter)
        try:
            yield waiter
        finally:
            self._waiters[job].discard(waiter)
            if not self._waiters[job]:
                del self._waiters[job]
                self._requests.pop(job, None)

    def reply(self, job: int, answer: Answer) -> None:
        """Tell *answer* to all that wait for *job*; after a final one the ask is done."""
        for waiter in self._waiters.get(job, ()):
            waiter.reply(answer)
        if is_final(answer):
            self._requests.pop(job, None)

    def trouble(self, text: str) -> None:
        """Tell everybody why there is no answer."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.trouble = text

    def looked(self, seen: Blockers, now: datetime) -> None:
        """Take what a look at the Pods has found."""
        self.looked_at = now
        levels: tuple[LockLevel, ...] = ("normal", "strict")
        self.clear_since = {level: self.clear_since.get(level, now) for level in levels if not seen.of(level)}

    def clear(self) -> None:
        """Forget what was seen of a Node that is gone, or another's; its questions still wait."""
        self.idle_since, self.looked_at = None, None
        self.clear_since, self.attempts, self.waiting_since = {}, {}, {}
        self.driven = frozenset()
        self.released.clear()

    def release(self, job: int, now: datetime) -> anyio.Event:
        """Note that *job*'s epilog ran; the event tells that the Node says so too."""
        self.released[job] = now
        done = anyio.Event()
        self._undone.append(done)
        return done

    @contextmanager
    def carrying_out(self) -> Generator[None]:
        """Carry out the releases noted so far: they are done when the context ends without an error."""
        batch, self._undone = self._undone, []
        try:
            yield
        except BaseException:
            self._undone += batch
            raise
        for done in batch:
            done.set()


def is_final(answer: Answer) -> bool:
    """Whether nothing better than *answer* will come."""
    return isinstance(answer, Granted | NotRunning)
