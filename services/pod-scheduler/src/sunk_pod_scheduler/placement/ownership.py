"""Whether a job that carries a Pod's number is its placeholder. Pure.

What must stay true: nothing is released, written to or bound by a job without our mark for this Pod and
attempt, or of another Slurm user than the one it was submitted for; nothing is cancelled without that mark
but what its AdminComment, which no user can write, says to be of this Pod and attempt. Numbers are given
anew where slurmctld has lost its state, and users write what they like into what they own.
"""

from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from sunk_events.placements import PlacementPhase, PlacementState
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.marks import Claim, Mark
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen, Observed

_WITHOUT_JOB: Final[frozenset[PlacementPhase]] = frozenset({"refused", "submitted"})
"""Phases in which a job is still to come."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The Pod or gang that a placeholder job is to belong to."""

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

    One whose AdminComment says so, or that Slurm took in the same second, is still his, whatever its user has
    written over the mark since, or if he had it requeued: his Pod ends with it. Else a user could have his
    Pod's job taken for one that slurmctld has lost, and get another ahead of everybody.
    """
    if not isinstance(job, JobSeen):
        return job
    is_ours = marks.is_admin_comment(job.admin_comment, owner.uid, owner.attempt, owner.name)
    if is_whose(job.mark, owner, job.user_id):
        return replace(job, is_ours=is_ours)
    if is_ours or _may_be_his(job, owner):
        return replace(job, is_marked=False, is_ours=is_ours)
    return JobGone(is_taken=True)


def _may_be_his(job: JobSeen, owner: Owner) -> bool:
    if owner.submitted is not None:  # The Pod's user may have been edited since: the moment alone tells.
        return job.submitted == owner.submitted
    return job.mark is None and bool(owner.name) and (job.name, job.user_id) == (owner.name, owner.user_id)


def is_behind(placement: PlacementState | None, claim: Claim | None) -> bool:
    """Whether a Pod that makes *claim* has a job of which its *placement* does not tell.

    An attempt is stored before its job is submitted, its number is signed on the Pod only afterwards, and
    stored last: so NATS came back with an older store, or the process that submitted it was killed before the
    last.
    """
    if placement is None or placement.gang or claim is None or not claim.is_signed:
        return False
    if claim.attempt != placement.attempt:
        return claim.attempt > placement.attempt
    return placement.job is None and placement.phase in _WITHOUT_JOB


def believed(
    placement: PlacementState | None, claim: Claim | None, *, is_bound: bool
) -> PlacementState | None:
    """Return what is stored of a Pod, or of a gang; None where what it claims tells that this is over.

    The job of an intent is looked for by its mark, as long as no Pod is on a Node for it: those tell more.

    Args:
        placement: What is stored.
        claim: What the Pod's annotation says; of a gang, the last of what its members' say.
        is_bound: Whether the Pod, or a member that claims so, is on a Node.
    """
    if placement is None or not is_behind(placement, claim):
        return placement
    is_intent = claim is not None and claim.attempt == placement.attempt and bool(placement.token_sha256)
    return placement if is_intent and (not is_bound or placement.lost is not None) else None


def owner(seen: Observed) -> Owner:
    """Return whose the job is that *seen* tells of."""
    pod, placement = seen.pod, seen.placement
    attempt = placement.attempt if placement else pod.claim.attempt if pod and pod.claim else 0
    name = "" if placement is None else f"{placement.namespace}/{placement.pod}"
    name = name or ("" if pod is None else f"{pod.namespace}/{pod.name}")
    submitted = None if placement is None else placement.submitted
    user_id = pod.user_id if pod else None
    return Owner(uid=seen.uid, attempt=attempt, user_id=user_id, name=name, submitted=submitted)
