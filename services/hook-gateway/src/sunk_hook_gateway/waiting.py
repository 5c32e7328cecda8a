"""Who waits for a node's lock or a job's placement is woken when its state changes."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

import anyio

from sunk_events.locks import LockState
from sunk_events.placements import PlacementState
from sunk_runtime.views import StateView

K = TypeVar("K")


class Watch:
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


class Watches(Generic[K]):
    """The watches of each key, for as long as somebody holds them."""

    def __init__(self) -> None:
        self._held: dict[K, set[Watch]] = {}

    @contextmanager
    def of(self, key: K) -> Generator[Watch]:
        """Yield a watch that is told of each change of *key*."""
        watch = Watch()
        self._held.setdefault(key, set()).add(watch)
        try:
            yield watch
        finally:
            self._held[key].discard(watch)
            if not self._held[key]:
                del self._held[key]

    def notify(self, key: K) -> None:
        """Tell who watches *key*."""
        for watch in self._held.get(key, ()):
            watch.notify()


class Locks:
    """Changes of locks, by Slurm node."""

    def __init__(self, view: StateView[LockState]) -> None:
        self._view = view
        self._watches = Watches[str]()

    def watch(self, node: str) -> AbstractContextManager[Watch]:
        """Watch the lock of *node*."""
        return self._watches.of(node)

    async def run(self) -> None:
        """Wake who waits, until cancelled."""
        async for node in self._view.changes():
            self._watches.notify(node)


class Placements:
    """Placements by their job; the bucket has them by the uid of their Pod."""

    def __init__(self, view: StateView[PlacementState]) -> None:
        self._view = view
        self._uid_by_job: dict[int, str] = {}
        self._job_by_uid: dict[str, int] = {}
        self._watches = Watches[int]()

    @property
    def is_complete(self) -> bool:
        """A job that has none here has none."""
        return self._view.is_complete

    def of_job(self, job: int) -> PlacementState | None:
        """Return the placement whose present job is *job*. None means none only if the view is complete."""
        uid = self._uid_by_job.get(job)
        placement = self._view.get(uid) if uid else None
        return placement if placement is not None and placement.job == job else None

    def watch(self, job: int) -> AbstractContextManager[Watch]:
        """Watch the placement of *job* come, change and go."""
        return self._watches.of(job)

    async def find(self, job: int, *, within_s: float) -> PlacementState | None:
        """Return the placement of *job*, waiting a little: a script may be quicker than its state."""
        with self.watch(job) as watch, anyio.move_on_after(within_s):
            while (placement := self.of_job(job)) is None:
                await watch.wait()
            return placement
        return self.of_job(job)

    async def run(self) -> None:
        """Follow the bucket and wake who waits, until cancelled."""
        async for uid in self._view.changes():
            self._follow(uid)

    def _follow(self, uid: str) -> None:
        placement = self._view.get(uid)
        # A gang's members share its job; what the job is told is in the gang's own placement.
        job = placement.job if placement and not placement.gang else None
        before = self._job_by_uid.pop(uid, None)
        if before is not None and before != job:
            self._uid_by_job.pop(before, None)
            self._watches.notify(before)
        if job is not None:
            self._job_by_uid[uid] = job
            self._uid_by_job[job] = uid
            self._watches.notify(job)
