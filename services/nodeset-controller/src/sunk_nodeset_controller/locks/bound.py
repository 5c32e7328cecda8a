"""How many nodes failed locks may drain at once: one blocked eviction must not drain a fleet.

What must stay true: of all nodes at most ``max(2, 1 %)`` are drained by failed locks, counted from what the
bus shows and from the leaves given that it does not show yet. The one who decides leads, so the count is
one; after a change of hands it begins with what the bus shows.
"""

from collections.abc import Collection
from typing import Final

from sunk_events.nodes import SlurmNodeState
from sunk_runtime.views import StateView

REASON_PREFIX: Final = "k8s: prolog pre-hook failed"
"""How the reason of such a drain begins; the gateway words it, the syncer lifts it."""
LEAVE_S: Final = 120.0
"""How long a leave counts as a drain that the bus does not show."""


def is_drain_allowed(node: str, drained: Collection[str], total: int) -> bool:
    """Whether *node* may be drained too, with *drained* of *total* nodes drained by failed locks."""
    return len(set(drained) - {node}) < max(2, total // 100)


class Leaves:
    """Who may drain their node."""

    def __init__(self, nodes: StateView[SlurmNodeState]) -> None:
        self._nodes = nodes
        self._given: dict[str, float] = {}
        """Until when each leave counts, by node."""

    def is_allowed(self, node: str, now_s: float, *, is_last: bool) -> bool:
        """Whether *node* may be drained, because a lock failed.

        Args:
            node: The node.
            now_s: The event loop's clock.
            is_last: Nobody asks for this lock again before its prolog gives up: the leave is given.
        """
        self._given = {given: until for given, until in self._given.items() if until > now_s}
        drained = {
            state.node
            for state in self._nodes.values()
            if state.is_drain and state.reason.startswith(REASON_PREFIX)
        }
        allowed = is_drain_allowed(node, drained | self._given.keys(), len(self._nodes))
        if allowed and is_last:
            self._given[node] = now_s + LEAVE_S
        return allowed
