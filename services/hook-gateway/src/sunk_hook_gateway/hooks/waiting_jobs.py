"""Which nodes each job waits for, and how often jobs that wait are told of it. Pure."""

from collections.abc import Collection

from sunk_events.locks import LockState
from sunk_slurm.leaving import is_waiting


class WaitingJobs:
    """The nodes that each job waits for, from the state of every lock."""

    def __init__(self) -> None:
        self._nodes: dict[int, set[str]] = {}
        self._jobs: dict[str, frozenset[int]] = {}

    def take(self, node: str, lock: LockState | None) -> None:
        """Take over the *lock* of *node*; None: it has none."""
        before = self._jobs.pop(node, frozenset[int]())
        holders = lock.holders if lock is not None else ()
        after = frozenset(one.job for one in holders if is_waiting(lock, one.job))
        for job in before - after:
            self._nodes[job].discard(node)
            if not self._nodes[job]:
                del self._nodes[job]
        for job in after:
            self._nodes.setdefault(job, set()).add(node)
        if after:
            self._jobs[node] = after

    def nodes(self, job: int) -> Collection[str]:
        """Return the nodes that *job* waits for."""
        return self._nodes.get(job, ())


class Rounds:
    """Lets so many through in each round, so that a burst is spread."""

    def __init__(self, at_once: int, round_s: float) -> None:
        self._at_once = at_once
        self._round_s = round_s
        self._began = float("-inf")
        self._let_through = 0

    def wait_s(self, now_s: float) -> float:
        """Return 0 and count one that goes through now, or how long it is to the next round.

        Args:
            now_s: A clock that never goes back.
        """
        if now_s >= self._began + self._round_s:
            self._began, self._let_through = now_s, 0
        if self._let_through >= self._at_once:
            return self._began + self._round_s - now_s
        self._let_through += 1
        return 0.0
