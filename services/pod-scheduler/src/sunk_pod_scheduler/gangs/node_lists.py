"""The lists of nodes that the Pods of one gang name: each is in memory once, and there are few.

One job has one list of nodes to take and one to leave out, so Pods that name many others are no gang. Each
may name thousands of nodes: without a bound a gang of thousands of Pods needs more memory than there is.
"""

from typing import Final

from msgspec.structs import replace

from sunk_pod_scheduler.gangs.model import MemberSeen
from sunk_pod_scheduler.podspec.annotations import NAMES_MAX, JobOptions

GANG_NAMES_MAX: Final = 4 * NAMES_MAX
"""Names in all lists of a gang that differ."""
REMEMBERED_MAX: Final = 256
"""Names of a Pod that is kept as it was read, from one look at its gang to the next."""
TOO_MANY: Final = (
    "sunk.coreweave.com/required-nodes, excluded-nodes: the Pods of its gang name more than "
    f"{GANG_NAMES_MAX} nodes, in lists that differ: name the same nodes in each"
)

_Names = tuple[str, ...]


class NodeLists:
    """Collects the lists of one gang, at one look."""

    def __init__(self) -> None:
        self._known: dict[_Names, _Names] = {}
        self._left = GANG_NAMES_MAX

    def shared(self, member: MemberSeen) -> MemberSeen:
        """Return *member* with the lists that others have too; refused, without any, if they are too many."""
        requested = member.pod.requested
        if requested is None or not (requested.required_nodes or requested.excluded_nodes):
            return member
        lists = self._shared(requested.required_nodes), self._shared(requested.excluded_nodes)
        if None in lists:
            problems = (*member.pod.problems, TOO_MANY)
            return replace(member, wanted=None, pod=replace(member.pod, requested=None, problems=problems))
        same = replace(requested, required_nodes=lists[0], excluded_nodes=lists[1])
        wanted = None if member.wanted is None else replace(member.wanted, requested=same)
        return replace(member, wanted=wanted, pod=replace(member.pod, requested=same))

    def _shared(self, names: _Names) -> _Names | None:
        """Return the first list that was equal to *names*; None: there is no room for another."""
        if names not in self._known:
            if len(names) > self._left:
                return None
            self._left -= len(names)
        return self._known.setdefault(names, names)


def is_remembered(member: MemberSeen) -> bool:
    """Whether *member* may be kept as it was read: of all gangs together there is no bound."""
    requested = member.pod.requested or JobOptions()
    return len(requested.required_nodes) + len(requested.excluded_nodes) <= REMEMBERED_MAX
