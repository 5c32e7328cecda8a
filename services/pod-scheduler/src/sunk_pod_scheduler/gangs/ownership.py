"""The owner of a job: one Pod, or a gang. What differs between the two for the executor is here alone."""

from collections.abc import Mapping

from sunk_events.placements import PlacementState
from sunk_kube.pods import Pod
from sunk_pod_scheduler.gangs.model import GangSeen
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement import ownership as of_a_pod
from sunk_pod_scheduler.placement.marks import Claim
from sunk_pod_scheduler.placement.model import Observed
from sunk_pod_scheduler.placement.ownership import Owner

AnySeen = Observed | GangSeen
Pods = Mapping[str, Pod]
"""Pods by uid, as they were looked at: the one, or all of the gang."""


def owner(seen: AnySeen) -> Owner:
    """Return whose the job is that *seen* tells of: all members of a gang ask for one Slurm user."""
    if isinstance(seen, Observed):
        return of_a_pod.owner(seen)
    placement, found = seen.placement, newest(seen)
    users = (one.wanted.identity.user_id for one in seen.members.values() if one.wanted is not None)
    return Owner(
        uid=seen.uid,
        attempt=placement.attempt if placement is not None else found.attempt if found is not None else 0,
        user_id=next(users, None),
        name="" if placement is None else f"{placement.namespace}/{placement.pod}",
        submitted=None if placement is None else placement.submitted,
    )


def newest(seen: GangSeen) -> Claim | None:
    """Return what the members that are well say of their job, where it is not stored; of several, the last.

    Of claims of one attempt those whose job we have signed come first: another number may be anybody's.
    """
    claims = [one.pod.claim for one in seen.members.values() if one.pod.claim is not None and one.is_well]
    return max(claims, key=lambda one: (one.attempt, one.is_signed), default=None)


def name(seen: AnySeen) -> str:
    """Return the Pod, or the gang, as people call it."""
    if isinstance(seen, Observed):
        return f"Pod {owner(seen).name}"
    return f"{seen.kind} {seen.namespace}/{seen.name}"


def admin_comment(seen: AnySeen) -> str:
    """Return what the job is to say of whose it is."""
    roster = None if seen.placement is None else seen.placement.roster
    size = "" if isinstance(seen, Observed) else f", {len(roster.members) if roster else 0} Pods"
    whose = owner(seen)
    return marks.admin_comment(name(seen) + size, whose.uid, whose.attempt)


def uids(seen: AnySeen) -> list[str]:
    """Return the uids of the members with a seat in the job."""
    if isinstance(seen, Observed):
        return [seen.uid]
    roster = None if seen.placement is None else seen.placement.roster
    return [] if roster is None else [member.uid for member in roster.members]


def seated(seen: AnySeen, pods: Pods) -> list[Pod]:
    """Return the Pods that have a seat."""
    return [pods[uid] for uid in uids(seen) if uid in pods]


def settled(seen: AnySeen) -> dict[str, PlacementState | None]:
    """Return by uid what was looked at and holds while nothing is to be done."""
    if isinstance(seen, Observed):
        is_to_be_adopted = seen.placement is None and seen.pod is not None and seen.pod.claim is not None
        return {} if is_to_be_adopted else {seen.uid: seen.placement}
    is_its_own = seen.placement is not None or not seen.members
    return {**seen.seats, **({seen.uid: seen.placement} if is_its_own else {})}
