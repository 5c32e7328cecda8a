"""Which Slurm node has which Node, as the bus has it: an index over the states of NodeSet Pods.

What must stay true: a Node has at most one Slurm node, whatever is left of former ones; who has a Pod there
comes before who only had one.
"""

from typing import Final

from sunk_events.nodesets import KubePodState
from sunk_runtime.views import StateView


class MembersOnNodes:
    """Who has each Node. It takes in what has changed whenever it is asked."""

    def __init__(self, view: StateView[KubePodState]) -> None:
        self._view = view
        self._kube_node: dict[str, str] = {}
        self._nodes: dict[str, set[str]] = {}
        self._changes: Final = view.changes()

    def owner(self, kube_node: str) -> str:
        """Return the Slurm node that has *kube_node*; nothing where none has."""
        for node in self._changes.taken():
            self._take(node)
        found = [state for node in self._nodes.get(kube_node, ()) if (state := self._view.get(node))]
        first = max(found, key=_claim, default=None)
        return first.pod if first is not None else ""

    def _take(self, node: str) -> None:
        """Take *node* over as it is now."""
        before = self._kube_node.pop(node, "")
        if before:
            self._nodes[before].discard(node)
            if not self._nodes[before]:
                del self._nodes[before]
        state = self._view.get(node)
        if state is not None and state.kube_node:
            self._kube_node[node] = state.kube_node
            self._nodes.setdefault(state.kube_node, set()).add(node)


_PLACE: Final = ("gone", "terminating", "waiting", "running")


def _claim(state: KubePodState) -> tuple[int, str]:
    """Sorts those that say that a Node is theirs: who is there last, the rest by name."""
    return _PLACE.index(state.phase), state.pod
