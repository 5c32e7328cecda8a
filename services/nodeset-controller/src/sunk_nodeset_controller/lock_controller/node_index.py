"""Which Slurm node has which Node, as the bus has it: an index over the states of NodeSet Pods.

What must stay true: a Node has at most one Slurm node, of whichever Slurm cluster, whatever is left of former
ones; who has a Pod there comes before who only had one; every cluster comes to the same.
"""

from typing import Final, NamedTuple

from sunk_events.nodesets import KubePodState
from sunk_runtime.views import StateView


class Member(NamedTuple):
    """A Slurm node of a Slurm cluster."""

    cluster: str
    node: str


class MembersOnNodes:
    """The Slurm node of each Node. It takes in what has changed whenever it is asked."""

    def __init__(self, *views: StateView[KubePodState]) -> None:
        self._views = {view.cluster: view for view in views}
        self._kube_node: dict[Member, str] = {}
        self._members: dict[str, set[Member]] = {}
        self._changes: Final = {view.cluster: view.changes() for view in views}

    def owner(self, kube_node: str) -> Member | None:
        """Return the Slurm node that has *kube_node*; None where none has."""
        for cluster, changes in self._changes.items():
            for node in changes.taken():
                self._take(Member(cluster, node))
        members = self._members.get(kube_node, ())
        found = {one: state for one in members if (state := self._views[one.cluster].get(one.node))}
        return max(found, key=lambda one: (_PLACE.index(found[one].phase), one), default=None)

    def _take(self, member: Member) -> None:
        """Take *member* over as it is now."""
        before = self._kube_node.pop(member, "")
        if before:
            self._members[before].discard(member)
            if not self._members[before]:
                del self._members[before]
        state = self._views[member.cluster].get(member.node)
        if state is not None and state.kube_node:
            self._kube_node[member] = state.kube_node
            self._members.setdefault(state.kube_node, set()).add(member)


_PLACE: Final = ("gone", "terminating", "waiting", "running")
"""Sorts those that say that a Node is theirs: who is there last, the rest by name."""
