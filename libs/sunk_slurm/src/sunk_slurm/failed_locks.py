"""How many nodes failed locks may drain at once: one blocked eviction must not drain a fleet.

What must stay true: of all nodes at most ``max(2, 1 %)`` are drained by failed locks, counted from what Slurm
shows and from the leaves given that it does not show yet. Losing the leaves is harmless within that bound
only once: whoever begins to count begins with what Slurm shows.
"""

import re
from typing import Final

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


def drained_for(state: SlurmNodeState | None) -> tuple[str, ...]:
    """Return the Pods that the drain of a node names, as ``namespace/name``, if a failed lock set it."""
    if state is None or not is_drained_by_lock(state):
        return ()
    return tuple(dict.fromkeys(_POD.findall(state.reason.removeprefix(REASON_PREFIX))))


def is_drained_by_lock(state: SlurmNodeState | None) -> bool:
    """Whether a failed lock has drained the node of *state*."""
    return state is not None and state.is_drain and state.reason.startswith(REASON_PREFIX)
