"""Who has which seat of a gang, as far as its Pods tell, and whether they are enough."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from sunk_events.placements import Gang, GangMember, PlacementState
from sunk_pod_scheduler.gangs.model import GangSeen, MemberSeen
from sunk_pod_scheduler.placement.job_claims import is_claimed
from sunk_pod_scheduler.placement.model import JobGone

_SHOWN: Final = 4


def seats_from_pods(seen: GangSeen, record: PlacementState, gang: Gang) -> Gang:
    """Return *gang* as its Pods remember it, where what is stored is older: a running member has its seat.

    A Pod that is on a Node of the stored job, and claims that job, was bound by us, and has its rank. Any
    seat was stored before.
    """
    nodes = {kube_node: node for node, kube_node in seen.kube_nodes.items()}
    if isinstance(seen.job, JobGone):  # Then nothing tells of the job's nodes but where its Pods are.
        nodes.update((one.pod.kube_node, one.node) for one in seen.members.values() if one.node)
    bound = {
        uid: one
        for uid, one in seen.members.items()
        if one.is_well and one.pod.kube_node in nodes and is_claimed(one.pod.claim, record)
    }
    seats = {member.uid for member in gang.members}
    replacements = {one.rank: one for uid, one in bound.items() if uid not in seats}
    members: list[GangMember] = []
    for rank, member in enumerate(gang.members):
        is_free = not is_well(seen, member) and not is_on_node(seen, member)
        one = replacements.get(rank) if is_free else bound.get(member.uid)
        node = "" if one is None else nodes[one.pod.kube_node]
        if one is None or member.node not in {"", node} or (member.node and not is_free):
            members.append(member)
        else:
            members.append(replace(member, uid=one.uid, pod=one.pod.name, node=node, vacant=None))
    return replace(gang, members=tuple(members))


def left(seen: GangSeen, gang: Gang) -> str:
    """Return which members are dead or dying, for people; empty where all is well.

    A seat of which nothing is known but that it is vacant had no member since the bus lost the gang.
    """
    names = [member.pod for member in gang.members if member.pod and not is_well(seen, member)]
    return f"Pod {_listed(names)}" if names else ""


def are_enough(seen: GangSeen, gang: Gang) -> bool:
    """Whether the gang may go on with the members that it has."""
    least = gang.min_available or len(gang.members)
    return sum(is_well(seen, member) for member in gang.members) >= least


def occupied(seen: GangSeen, gang: Gang, now: datetime) -> Gang:
    """Return *gang* without the nodes of seats that are empty: they may be others' by now.

    A member that left and was not noted yet has no seat either: nobody holds it for the gang's next job.
    """
    noted = (vacated(seen, member, now) for member in gang.members)
    members = tuple(
        replace(one, node="") if one.is_empty and not is_on_node(seen, one) else one for one in noted
    )
    return replace(gang, members=members) if any(one.node for one in members) else gang


def exit_code(seen: GangSeen, gang: Gang) -> int:
    """Return with what the first member that failed has failed.

    A member that was deleted has not failed: how its program answers SIGTERM says nothing of its work, and
    its workload may be done with it.
    """
    found = (one.pod for member in gang.members if (one := seen.members.get(member.uid)) is not None)
    return next((pod.exit_code for pod in found if pod.exit_code and not pod.is_terminating), 0)


def is_well(seen: GangSeen, member: GangMember) -> bool:
    """Whether it lives, or has done its work."""
    found = seen.members.get(member.uid)
    return member.has_succeeded or (found is not None and found.is_able)


def is_on_node(seen: GangSeen, member: GangMember) -> bool:
    """Whether a kubelet may still run something of it."""
    found = seen.members.get(member.uid)
    return found is not None and found.is_on_node


def vacated(seen: GangSeen, member: GangMember, now: datetime) -> GangMember:
    """Return *member* with the moment from which its seat is empty, if it has died."""
    return member if member.vacant or is_well(seen, member) else replace(member, vacant=now)


def count_done(members: Iterable[MemberSeen], owners: set[str]) -> int:
    """Return how many have done their work, of those whose workload is there still to make the others anew.

    A Pod that nobody made is not made anew: it counts for no gang but its own.
    """
    return sum(one.has_succeeded and bool(one.owner) and one.owner in owners for one in members)


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
