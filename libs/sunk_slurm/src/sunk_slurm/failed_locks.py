"""How many nodes failed locks may drain at once: one blocked eviction must not drain a fleet.

What must stay true: of all nodes at most ``max(2, 1 %)`` are drained by failed locks, counted from what Slurm
shows and from the leaves given that it does not show yet. A counter begins with what Slurm shows, and with
the leaves that are kept in the states of locks.
"""

import re
from datetime import datetime, timedelta
from typing import Final

from sunk_events.locks import FailedLock, LockState
from sunk_events.nodes import SlurmNodeState
from sunk_runtime.views import StateView

REASON_PREFIX: Final = "k8s: prolog pre-hook failed"
"""How the reason of such a drain begins; the hook gateway words it, the syncer lifts it."""
_POD: Final = re.compile(r"(?<![^ :(])[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9.-]*")
"""After a space or a colon; what follows a Pod says what keeps it, and no namespace has a dot."""
LEAVE_S: Final = 120.0
"""How long a leave counts as a drain that Slurm does not show."""


class FailedLocks:
    """The nodes that failed locks have drained, or were given leave to."""

    def __init__(self) -> None:
        self._drained: set[str] = set()
        self._leaves: dict[str, float] = {}
        """Until when each leave counts, by node."""

    async def follow(self, nodes: StateView[SlurmNodeState]) -> None:
        """Take over what Slurm shows of *nodes*, until cancelled."""
        async for node in nodes.changes():
            self.take(node, nodes.get(node))

    def take(self, node: str, state: SlurmNodeState | None) -> None:
        """Take over what Slurm shows of *node*; None: it has no such node."""
        if is_drained_by_lock(state):
            self._drained.add(node)
        else:
            self._drained.discard(node)

    def recall(self, lock: LockState, now: datetime, now_s: float) -> None:
        """Take over the leave that *lock* keeps, for as long as it still counts.

        Args:
            lock: What the bus has of a node's lock.
            now: What its times are compared with.
            now_s: A clock that never goes back.
        """
        if lock.failed is not None and (left_s := _left_s(lock.failed, now)) > 0:
            self.give_leave(lock.node, now_s, for_s=min(left_s, LEAVE_S))

    def may_drain(self, node: str, total: int, now_s: float) -> bool:
        """Whether *node*, one of *total*, may be drained because a lock failed.

        Args:
            node: The node.
            total: How many nodes there are.
            now_s: A clock that never goes back.
        """
        self._leaves = {given: until for given, until in self._leaves.items() if until > now_s}
        return len((self._drained | self._leaves.keys()) - {node}) < drains_at_most(total)

    def give_leave(self, node: str, now_s: float, *, for_s: float = LEAVE_S) -> None:
        """Count *node* as drained from now on, until Slurm shows it."""
        self._leaves[node] = now_s + for_s


def drains_at_most(total: int) -> int:
    """Return how many of *total* nodes failed locks may drain at once."""
    return max(2, total // 100)


def drained_for(state: SlurmNodeState | None, lock: LockState | None) -> tuple[str, ...]:
    """Return the Pods that a node is drained for, as ``namespace/name``, if a failed lock set the drain.

    They are kept in its *lock*. The drain's reason names the first few: all that is known where the prolog
    had its refusal from the hook gateway alone, or the bus lost what it had.
    """
    if state is None or not is_drained_by_lock(state):
        return ()
    kept = lock.failed.in_the_way if lock is not None and lock.failed is not None else ()
    return tuple(dict.fromkeys((*kept, *_POD.findall(state.reason.removeprefix(REASON_PREFIX)))))


def still_failed(
    lock: LockState | None, state: SlurmNodeState | None, now: datetime, *, is_member: bool
) -> FailedLock | None:
    """Return what of a failed lock is to be kept: it counts, or its node may yet be drained for it.

    One that Slurm does not know, and that no NodeSet has any more, is a ghost: *is_member* says so.
    """
    failed = lock.failed if lock is not None else None
    if failed is None or _left_s(failed, now) > 0:
        return failed
    if state is None:
        return failed if is_member else None
    return failed if is_drained_by_lock(state) else None


def _left_s(failed: FailedLock, now: datetime) -> float:
    return (failed.at + timedelta(seconds=LEAVE_S) - now).total_seconds()


def is_drained_by_lock(state: SlurmNodeState | None) -> bool:
    """Whether a failed lock has drained the node of *state*."""
    return state is not None and state.is_drain and state.reason.startswith(REASON_PREFIX)
