"""Whose a gang's job is."""

from sunk_pod_scheduler.gangs.model import GangSeen
from sunk_pod_scheduler.placement.marks import Claim
from sunk_pod_scheduler.placement.ownership import Owner


def owner(seen: GangSeen) -> Owner:
    """Return whose the job is that *seen* tells of: all members ask for one Slurm user."""
    record, found = seen.record, newest(seen)
    users = (one.wanted.identity.user_id for one in seen.members.values() if one.wanted is not None)
    return Owner(
        uid=seen.id,
        attempt=record.attempt if record is not None else found.attempt if found is not None else 0,
        user_id=next(users, None),
        name="" if record is None else f"{record.namespace}/{record.pod}",
        submitted=None if record is None else record.submitted,
    )


def newest(seen: GangSeen) -> Claim | None:
    """Return what the members that are well say of their job, where it is not stored; of several, the last.

    Of claims of one attempt those whose job we have signed come first: another number may be anybody's.
    """
    claims = [one.pod.claim for one in seen.members.values() if one.pod.claim is not None and one.is_well]
    return max(claims, key=lambda one: (one.attempt, one.is_signed), default=None)
