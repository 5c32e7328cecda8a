"""Who waits for a node's lock or a job's placement is woken when its state changes."""

import random
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Final, Generic, TypeVar
from zlib import crc32

import anyio

from sunk_events.base import Reply
from sunk_events.locks import LockState
from sunk_events.placements import PlacementState
from sunk_events.requests import Later
from sunk_hook_gateway.hooks.components import JobOnNode
from sunk_hook_gateway.hooks.waiting_jobs import WaitingJobs
from sunk_runtime.views import StateView
from sunk_slurm.granted_locks import is_granted

K = TypeVar("K")


REMIND_S: Final = 60.0
"""A lock that is noted as asked for tells of its change, and what manages locks needs no reminder: asked for
all the same, for the bus may have lost the change."""
LATER_MAX_S: Final = 4.0
"""After a long wait it asks less often: an answerer with no time left must not spend it on questions."""
AGAIN_S: Final = 1.0
"""A Pod is asked for this often, a lock that nobody could tell of at first; both at once when they change."""


def pause_s(reply: Reply | None, waited_s: float = 0.0) -> float:
    """Return how long to wait before asking again, spread so that a fleet does not ask at once."""
    if reply is None:
        wait_s = 0.3
    elif isinstance(reply, Later):
        wait_s = min(max(min(reply.retry_after_s, AGAIN_S), waited_s / 8), LATER_MAX_S)
    else:
        wait_s = AGAIN_S
    return max(0.02, wait_s * random.uniform(0.7, 1.3))  # noqa: S311 - spreads callers, no secret


def reminder_s(node: str, waited_s: float) -> float:
    """Return how long to wait before a lock that is noted as asked for is asked for all the same.

    By the prolog's own time, whatever the length of its calls, and another on each node.
    """
    return REMIND_S - (waited_s + crc32(node.encode())) % REMIND_S


class Notification:
    """Remembers that something changed until it is waited for: look, wait, look again misses nothing."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def notify(self) -> None:
        """Let the present wait end, or the next one at once."""
        self._event.set()

    async def wait(self) -> None:
        """Return when something has changed since the last wait ended."""
        await self._event.wait()
        self._event = anyio.Event()

    async def wait_for(self, within_s: float) -> None:
        """Return when something has changed since the last wait ended, or after *within_s*."""
        with anyio.move_on_after(within_s):
            await self.wait()


class Notifications(Generic[K]):
    """The notifications of each key, for as long as a caller holds them; in the order in which they came."""

    def __init__(self) -> None:
        self._held: dict[K, dict[Notification, None]] = {}

    @contextmanager
    def of(self, key: K) -> Generator[Notification]:
        """Yield a notification that is told of each change of *key*."""
        notification = Notification()
        self._held.setdefault(key, {})[notification] = None
        try:
            yield notification
        finally:
            del self._held[key][notification]
            if not self._held[key]:
                del self._held[key]

    def notify(self, key: K) -> None:
        """Wake the waits for *key*."""
        for notification in self._held.get(key, ()):
            notification.notify()


class Locks:
    """Changes of locks, by Slurm node."""

    def __init__(self, view: StateView[LockState]) -> None:
        self._view = view
        self._notifications = Notifications[str]()
        self._waiting = WaitingJobs()

    def waited_for(self, node: str, job: int) -> list[LockState] | None:
        """Return the locks that *job* waits for because of Pods; None: another of its nodes speaks for it.

        Of all the prologs of a job that of the first node speaks.
        """
        nodes = self._waiting.nodes(job)
        if nodes and min(nodes) != node:
            return None
        return [lock for one in nodes if (lock := self._view.get(one)) is not None]

    def get(self, node: str) -> LockState | None:
        """Return the lock of *node* as the bus has it; None: it has none, or is not read yet."""
        return self._view.get(node)

    def is_waited_for(self, node: str, job: int) -> bool:
        """Whether the bus says that the lock of *node* is asked for by *job* and not granted yet."""
        lock = self._view.get(node)
        return lock is not None and any(one.job == job and one.granted is None for one in lock.holders)

    def left(self, others: Iterable[JobOnNode], since: datetime) -> list[JobOnNode]:
        """Return those of *others* that have no lock granted after *since*."""
        return [(job, node) for job, node in others if not is_granted(self._view.get(node), job, since)]

    async def granted(self, others: Iterable[JobOnNode], since: datetime) -> None:
        """Return when each of *others* has a lock granted after *since*."""
        while left := self.left(others, since):
            _, node = left[0]
            with self.notified_of(node) as notification:
                while self.left(left[:1], since):
                    await notification.wait()

    def is_placeholder(self, node: str, job: int) -> bool:
        """Whether *job* asked for *node* as only placeholders do."""
        lock = self._view.get(node)
        return lock is not None and any(one.job == job and one.level == "strict" for one in lock.holders)

    def notified_of(self, node: str) -> AbstractContextManager[Notification]:
        """Notice changes of the lock of *node*."""
        return self._notifications.of(node)

    async def run(self) -> None:
        """Wake waiting calls, until cancelled."""
        async for node in self._view.changes():
            self._waiting.take(node, self._view.get(node))
            self._notifications.notify(node)


class Placements:
    """Placements by their job; the bucket has them by the uid of their Pod."""

    def __init__(self, view: StateView[PlacementState]) -> None:
        self._view = view
        self._uid_by_job: dict[int, str] = {}
        self._job_by_uid: dict[str, int] = {}
        self._notifications = Notifications[int]()

    @property
    def is_complete(self) -> bool:
        """A job that has none here has none."""
        return self._view.is_complete

    async def complete(self) -> None:
        """Return when placements are read, and none of them is one that the bus went back to."""
        await self._view.complete()

    def of_job(self, job: int) -> PlacementState | None:
        """Return the placement whose present job is *job*. None means none only if the view is complete."""
        uid = self._uid_by_job.get(job)
        placement = self._view.get(uid) if uid else None
        return placement if placement is not None and placement.job == job else None

    def now(self, placement: PlacementState) -> PlacementState | None:
        """Return the placement of the same Pod as it is now, whatever its job is by now."""
        return self._view.get(placement.uid)

    def notified_of(self, job: int) -> AbstractContextManager[Notification]:
        """Notice that the placement of *job* comes, changes or goes."""
        return self._notifications.of(job)

    async def find(self, job: int, *, within_s: float) -> PlacementState | None:
        """Return the placement of *job*, waiting a little: a script may be quicker than its state."""
        with self.notified_of(job) as notification, anyio.move_on_after(within_s):
            while (placement := self.of_job(job)) is None:
                await notification.wait()
            return placement
        return self.of_job(job)

    async def run(self) -> None:
        """Follow the bucket and wake waiting calls, until cancelled."""
        async for uid in self._view.changes():
            self._follow(uid)

    def _follow(self, uid: str) -> None:
        placement = self._view.get(uid)
        # A gang's members share its job; what the job is told is in the gang's own placement.
        job = placement.job if placement and not placement.gang else None
        before = self._job_by_uid.pop(uid, None)
        if before is not None and before != job:
            if self._uid_by_job.get(before) == uid:  # Another's by now, where numbers are given anew.
                del self._uid_by_job[before]
            self._notifications.notify(before)
        if job is not None:
            self._job_by_uid[uid] = job
            other = self.of_job(job)
            is_lost = placement is not None and placement.lost is not None
            if not (
                is_lost and other is not None and other.lost is None
            ):  # Else the number is the other's by now.
                self._uid_by_job[job] = uid
            self._notifications.notify(job)
