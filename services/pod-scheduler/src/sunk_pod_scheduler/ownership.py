"""Whether a job that carries a Pod's number is its placeholder. Pure.

What must stay true: nothing is cancelled, released, written to or bound by a job without our mark for this
Pod and attempt, or of another Slurm user than the one it was submitted for. Numbers are given anew where
slurmctld has lost its state, and users write what they like into what they own.
"""

from datetime import datetime

import msgspec
from msgspec.structs import replace

from sunk_events.placements import PlacementState
from sunk_pod_scheduler.marks import Claim, Mark
from sunk_pod_scheduler.model import AnyJob, JobGone, JobSeen, Observed


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose placeholder a job is to be."""

    uid: str
    """The Pod's, or its gang's key."""
    attempt: int
    user_id: int | None = None
    """The Slurm user that the Pod asks for, where that is known: marks of earlier versions do not say it."""
    name: str = ""
    """``namespace/name``, as the job is called."""
    submitted: datetime | None = None
    """When Slurm took the job, where that was seen."""


def is_whose(mark: Mark | None, owner: Owner, user_id: int) -> bool:
    """Whether a job of *user_id* with the verified *mark* is *owner*'s."""
    if mark is None or (mark.uid, mark.attempt) != (owner.uid, owner.attempt):
        return False
    return mark.user_id is not None or owner.user_id in {None, user_id}


def own(job: AnyJob, owner: Owner) -> AnyJob:
    """Return *job* as *owner* may see it: a number that is another's job by now is no job of his.

    One that Slurm took in the same second is still his, whatever its user has written over the mark since,
    and so is one that its user had requeued: his Pod ends with it, but nothing is done to it. Else a user
    could have his Pod's job taken for one that slurmctld has lost, and get another ahead of everybody.
    """
    if not isinstance(job, JobSeen) or is_whose(job.mark, owner, job.user_id):
        return job
    if owner.submitted is not None:
        # The Pod's user may have been edited since: the moment alone tells.
        was_his = job.is_requeued and owner.user_id in {None, job.user_id}
        is_same = job.submitted == owner.submitted or was_his
        return replace(job, is_marked=False) if is_same else JobGone(is_taken=True)
    if job.mark is None and owner.name and (job.name, job.user_id) == (owner.name, owner.user_id):
        return replace(job, is_marked=False)
    return JobGone(is_taken=True)


def is_overtaken(placement: PlacementState | None, claim: Claim | None) -> bool:
    """Whether the Pod had a later job than its *placement* knows of: NATS came back with an older store.

    An attempt is stored before its job is submitted, and signed on the Pod only afterwards.
    """
    if placement is None or placement.gang or claim is None or not claim.is_signed:
        return False
    return claim.attempt > placement.attempt


def owner(seen: Observed) -> Owner:
    """Return whose the job is that *seen* tells of."""
    pod, placement = seen.pod, seen.placement
    attempt = placement.attempt if placement else pod.claim.attempt if pod and pod.claim else 0
    name = "" if placement is None else f"{placement.namespace}/{placement.pod}"
    name = name or ("" if pod is None else f"{pod.namespace}/{pod.name}")
    submitted = None if placement is None else placement.submitted
    user_id = pod.user_id if pod else None
    return Owner(uid=seen.uid, attempt=attempt, user_id=user_id, name=name, submitted=submitted)
