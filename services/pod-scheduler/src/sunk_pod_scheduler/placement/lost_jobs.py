"""A Pod that runs, and whose job Slurm does not know any more although nobody saw it end.

Either slurmctld has lost its state: then the Pod gets another job on the same node, and runs on until that
starts, or until Slurm gives the node to others; or, by setting, it gets some time to end. Or the job has
ended and was forgotten while nobody looked: then the Pod ends as if it had been seen.
Where nothing tells which, the Pod stays and says so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.nodes import SlurmNodeState
from sunk_events.placements import PlacementState
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.actions import Action, Record, ReportLoss, Wait
from sunk_pod_scheduler.placement.limits import (
    FORGOTTEN_CONFIRM_S,
    LOOK_AGAIN_S,
    LOST_CONFIRM_S,
    WAITING_AGAIN_S,
    WAITING_FIRST_S,
    Limits,
)
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen, PodSeen
from sunk_pod_scheduler.placement.transitions import ending, waits_for
from sunk_pod_scheduler.podspec.job_size import Size

OLD_NUMBER: Final = "slurmctld has lost its state and gives the numbers of jobs again that may not have ended"
NO_OTHER_JOB: Final = "Slurm has lost the Pod's job, and no other can be submitted"
NAMED: Final = 3
"""So many jobs that have a node are named."""
LEAVES: Final = timedelta(seconds=60)
"""How long what is left of a lost job may be on its node once the next one runs there."""
AHEAD: Final = 4_294_967_293
"""The highest priority that Slurm takes: the Pod's place is on a node that Slurm takes for free."""


def without_job(
    gone: JobGone, placement: PlacementState, now: datetime, limits: Limits, *, is_orphan: bool = False
) -> Action:
    """Slurm does not know the job of a Pod that runs, and nobody saw it end.

    *is_orphan*: its script was told to end although Slurm does not know its job: slurmctld, back without its
    state, ends what it does not know. Then, or if its number is another's, the node is not left to others any
    longer.
    """
    reason = why(gone, placement, is_orphan=is_orphan)
    if placement.lost is None or placement.reason != reason:
        reported = replace(placement, changed=now, lost=placement.lost or now, reason=reason)
        return ReportLoss(state=replace(reported, bound=ran(placement)))
    is_lost = gone.is_taken or gone.is_lost or is_orphan
    if gone.is_forgotten and not is_lost:
        return _later(placement.lost, FORGOTTEN_CONFIRM_S, now) or ending(placement, reason, now)
    if not limits.adopts_lost:
        return _later(placement.lost, limits.lost_s, now) or ending(placement, reason, now)
    if not is_lost:
        return Wait(LOOK_AGAIN_S)
    confirm_s = 0.0 if gone.is_taken or is_orphan else LOST_CONFIRM_S
    return _later(placement.lost, confirm_s, now) or once_more(placement, now)


def ran(placement: PlacementState) -> datetime | None:
    """Return a moment in which Slurm had the job of a bound Pod; None where that is not known any more."""
    if placement.bound is None and placement.lost is None:
        return placement.changed  # That the Pod was bound is not stored yet, or an earlier version stored it.
    return placement.bound


def is_in_doubt(pod: PodSeen, placement: PlacementState, job: AnyJob) -> bool:
    """Whether it has to be found out what became of the job of a Pod that runs."""
    is_gone = isinstance(job, JobGone) and not job.has_ended and placement.job is not None
    runs = bool(pod.kube_node) and not pod.is_over and not pod.is_terminating
    return is_gone and runs and placement.phase not in {"ending", "ended"}


def why(gone: JobGone, placement: PlacementState, *, is_orphan: bool) -> str:
    """Return what is known of a job that slurmctld does not know, for people."""
    job = f"Slurm does not know job {placement.job} any more"
    if gone.is_taken:
        return (
            f"slurmctld has lost its state: Slurm has given job number {placement.job} to another user's job"
        )
    if is_orphan:
        return (
            f"slurmctld has lost its state: it ended the script of job {placement.job}, but knows no such job"
        )
    if gone.is_lost:
        return f"{job}: slurmctld has lost its state, as Slurm's other jobs or accounting show"
    if gone.is_forgotten:
        return (
            f"{job}, and knows one that came after it, while it was there: "
            "the job has ended, and Slurm has forgotten it"
        )
    return (
        f"{job}. Slurm's other jobs and accounting do not show whether it has ended, so the Pod stays. "
        "Delete the Pod to free its node"
    )


def _later(since: datetime, after_s: float, now: datetime) -> Wait | None:
    """Return the wait until so long after *since*; None where that has passed."""
    due = since + timedelta(seconds=after_s)
    return Wait(min((due - now).total_seconds(), LOOK_AGAIN_S)) if now < due else None


def once_more(placement: PlacementState, now: datetime) -> Record:
    """Another job is to be submitted for the Pod, on its node."""
    was_on_node = placement.phase == "bound"
    again = replace(placement, phase="submitted", changed=now, attempt=placement.attempt + 1)
    again = replace(again, lost_job=placement.job if was_on_node else placement.lost_job)
    return Record(state=replace(again, job=None, token_sha256="", silent=None, bound=None, submitted=None))


def soon_s(backoff_s: float, placement: PlacementState) -> float:
    """Return how long a Pod that runs waits before its next job is submitted.

    Attempts are counted over a Pod's whole life, and meanwhile its node is free to others: it is no longer
    than half the time since its job was lost.
    """
    since_s = 0.0 if placement.lost is None else (placement.changed - placement.lost).total_seconds()
    return min(backoff_s, max(1.0, since_s / 2))


def has_old_number(
    job: AnyJob,
    placement: PlacementState | None,
    of_number: Callable[[int], Iterable[PlacementState]],
    now: datetime,
) -> bool:
    """Whether a job that is held has the number of one that slurmctld lost, and that may be on a node yet.

    slurmd launches no second job of a number, and slurmctld drains its node then ("Duplicate jobid"): it
    would start nothing there any more, and so no other job for all the Pods that run there.

    *of_number*: returns whose job has a number, or had it when slurmctld lost it.
    """
    if placement is None or placement.phase != "submitted":
        return False
    if not isinstance(job, JobSeen) or not job.is_held:
        return False
    return any(
        (one.job == job.job and one.uid != placement.uid)
        or (one.lost_job == job.job and (one.bound is None or now < one.bound + LEAVES))
        for one in of_number(job.job)
    )


def was_not_launched(placement: PlacementState, job: JobSeen) -> bool:
    """Whether the other job of a Pod that runs had its node, and slurmd has not launched it, or not said so.

    Its node was not ready for it yet: the job has ended, or waits again. slurmctld requeues a batch job whose
    launch no slurmd has acknowledged, whatever its submission says of that (agent.c, `job_complete`), also
    where only the acknowledgement was lost and the script runs. It plans the job again only when its
    credential has expired, after two minutes, and until then its node could be given away. A job that is
    cancelled while it waits for its first node never had one.
    """
    if placement.lost is None or placement.phase not in {"submitted", "released", "started"}:
        return False
    if job.is_over:
        return placement.phase != "started" and (bool(job.nodes) or job.is_requeued)
    return job.is_requeued and (job.is_marked or job.is_ours)


def is_replaced(placement: PlacementState, now: datetime) -> bool:
    """Whether a Pod that runs without a job waits for its next one, so that its node may be given away.

    Not at once: until then those who tell of Slurm's jobs may tell of lost ones.
    """
    waits = placement.phase in {"submitted", "released"}
    return waits and placement.lost is not None and now >= placement.lost + LEAVES


def taken(job: AnyJob, node: str, uid: str, attempt: int) -> Size | None:
    """Return what a job has taken of *node* from a Pod that runs there, by a look at it; None: nothing.

    Its own jobs take nothing from it. The one that it waits for is not asked about: another job with the mark
    of that attempt is a copy, by its user.

    Args:
        job: The job.
        node: The Slurm node.
        uid: The Pod's, or its gang's.
        attempt: That of the job that it waits for.
    """
    if not isinstance(job, JobSeen) or not job.is_running or job.is_preempted or job.held is None:
        return None
    is_earlier = job.mark is not None and job.mark.uid == uid and job.mark.attempt < attempt
    if is_earlier or marks.is_placeholder_of(job.admin_comment, uid):
        return None
    return job.held.get(node)


def given_away(node: SlurmNodeState | None, needs: Size, held: Mapping[int, Size]) -> str:
    """Return to which jobs Slurm has given a node, so that it has no room for a Pod whose job it has lost.

    Args:
        node: What is known of the Slurm node.
        needs: What the Pod takes of it.
        held: What jobs that run there hold, but for the Pod's own, by job.

    Returns:
        Why the Pod cannot stay, for people; nothing where there is room, or nobody can say.
    """
    if node is None or not held:
        return ""
    is_memory_counted = any(one.memory_mib for one in held.values())
    memory_mib = needs.memory_mib + sum(one.memory_mib for one in held.values())
    has_room = (
        needs.cpus + sum(one.cpus for one in held.values()) <= node.cpus
        and (memory_mib <= node.memory_mib or not is_memory_counted)
        and needs.gpus + sum(one.gpus for one in held.values()) <= node.gpus
    )
    if has_room:
        return ""
    return f"slurmctld has lost the Pod's job and given node {node.node} to {_listed(sorted(held))}"


def _listed(jobs: Sequence[int]) -> str:
    more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
    return f"job{'s' if len(jobs) > 1 else ''} {', '.join(map(str, jobs[:NAMED]))}{more}"


def pending(placement: PlacementState, job: JobSeen, now: datetime) -> Action:
    """The Pod runs, and its other job waits: say for what, as often as Slurm's reasons are said of others."""
    waits = waits_for(job)
    if not waits:
        return Wait(LOOK_AGAIN_S)
    return stays(placement, f"Slurm has lost the Pod's job, and {waits}", now)


def stays(placement: PlacementState, reason: str, now: datetime) -> Action:
    """The Pod runs on without a job: say why it has no other, but not of each turn that the reason takes."""
    reason = reason[:REASON_MAX]
    if reason == placement.reason:
        return Wait(LOOK_AGAIN_S)
    return _later(placement.changed, WAITING_AGAIN_S if placement.reason else WAITING_FIRST_S, now) or (
        ReportLoss(state=replace(placement, changed=now, reason=reason))
    )
