"""Which Pods belong to which gang, and what each was at the last look at it.

What must stay true: a Pod is in one gang at most; one with a stored seat keeps it, whatever the Pod says.
"""

from collections.abc import Iterable

from sunk_events.placements import PlacementState
from sunk_kube.pods import Pod
from sunk_kube.wellknown import ANNOTATION_JOB
from sunk_pod_scheduler.gangs.model import MemberSeen
from sunk_pod_scheduler.gangs.node_lists import is_remembered
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.gang_membership import membership
from sunk_runtime.views import StateView


class GangIndex:
    """The Pods of each gang of one cluster, as far as this process has met them."""

    def __init__(self, placements: StateView[PlacementState], key: bytes) -> None:
        self._placements = placements
        self._key = key
        self._members: dict[str, set[str]] = {}
        """The uids of the Pods of each gang, until they are gone, or in another."""
        self._gang_by_uid: dict[str, str] = {}
        """The same the other way round: a Pod is in one gang at most."""
        self._held: dict[str, str] = {}
        """The gang of each Pod that is being submitted with it right now."""
        self._shown: dict[str, tuple[Pod, MemberSeen]] = {}
        """What Pods are as they decide: each look at a gang asks for it, and few of its Pods have changed."""

    @property
    def known(self) -> int:
        """How many gangs there are, about."""
        return len(self._members)

    def size_of(self, gang: str) -> int:
        """How many Pods of *gang* are known."""
        return len(self._members.get(gang, ()))

    def know(self, gang: str, uid: str) -> None:
        """Remember that a Pod belongs to *gang*, and to no other."""
        if self._gang_by_uid.get(uid, gang) != gang:
            self.leave(uid)
        self._gang_by_uid[uid] = gang
        self._members.setdefault(gang, set()).add(uid)

    def leave(self, uid: str) -> None:
        """Remember that a Pod is in no gang."""
        self._shown.pop(uid, None)
        if (gang := self._gang_by_uid.pop(uid, None)) is not None:
            left = self._members.get(gang, set())
            left.discard(uid)
            if not left:
                self._members.pop(gang, None)

    def seat_of(self, uid: str) -> str:
        """Return the gang whose job is meant for the Pod too, whatever it says of itself by now."""
        if (held := self._held.get(uid)) is not None:
            return held
        gang = self._gang_by_uid.get(uid, "")
        record = self._placements.get(gang) if gang else None
        if record is None or record.roster is None or record.phase == "refused":
            return ""
        return gang if any(member.uid == uid for member in record.roster.members) else ""

    def learn(self) -> None:
        """Read from what is stored who has a seat, for a process that has seen nothing yet."""
        for state in self._placements.values():
            for member in () if state.roster is None else state.roster.members:
                self.know(state.uid, member.uid)

    def hold(self, gang: str, uids: Iterable[str]) -> bool:
        """Keep Pods from being placed otherwise while *gang* is submitted; False: one is elsewhere by now."""
        found = [*uids]
        if any(self._gang_by_uid.get(uid) != gang or self._held.get(uid, gang) != gang for uid in found):
            return False
        self._held.update(dict.fromkeys(found, gang))
        return True

    def let_go(self, gang: str) -> None:
        """End what `hold` began: what is stored keeps them now."""
        for uid in [uid for uid, holder in self._held.items() if holder == gang]:
            del self._held[uid]

    def uids(self, gang: str) -> frozenset[str]:
        """Return the uids of the Pods that are known to belong to *gang*."""
        return frozenset(self._members.get(gang, ()))

    def forget(self, gang: str) -> None:
        """Forget a gang without Pods."""
        self._members.pop(gang, None)

    def belongs(self, gang: str, pod: Pod) -> bool:
        """Whether *pod* is of the gang, and neither placed alone nor with others."""
        uid, claim = pod.metadata.uid, pod.metadata.annotations.get(ANNOTATION_JOB, "")
        state = self._placements.get(uid)
        if self._held.get(uid, gang) != gang or (state is not None and state.gang != gang):
            return False
        if state is not None or marks.read_claim(self._key, gang, claim) is not None:
            return True
        related = membership(pod)
        is_alone = marks.read_claim(self._key, uid, claim) is not None
        return related is not None and related.id == gang and not is_alone

    def as_before(self, pod: Pod) -> MemberSeen | None:
        """Return what *pod* was at the last look, if it has not changed since."""
        before = self._shown.get(pod.metadata.uid)
        return before[1] if before is not None and before[0] is pod else None

    def remember(self, pod: Pod, found: MemberSeen) -> None:
        """Keep what *pod* is now, for the next look, unless that takes much memory."""
        if is_remembered(found):
            self._shown[pod.metadata.uid] = pod, found
        else:
            self._shown.pop(pod.metadata.uid, None)
