"""A Pod until it is bound: it waits for its Node, or has lost its job (submitted, released, started).

What must stay true: only a job whose id is stored is ever released, so a second submission never runs; a Pod
is bound only to the Node of a running job from which its script has announced itself, once each node of the
job is locked for it.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from sunk_events.placements import PlacementState
from sunk_pod_scheduler.placement import lost_jobs, node_locks, pending_jobs
from sunk_pod_scheduler.placement.actions import (
    Action,
    Bind,
    ExcludeNodes,
    MarkStarted,
    Record,
    ReleaseJob,
    ReportLoss,
    Resume,
    Submit,
    Wait,
)
from sunk_pod_scheduler.placement.end_reasons import cause, forgotten, release_requested, requeued
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S, Limits, backoff_s
from sunk_pod_scheduler.placement.model import JobGone, JobSeen, JobUnknown, Observed, PodSeen
from sunk_pod_scheduler.placement.transitions import (
    bound_alone,
    end,
    ending,
    given_up,
    joined,
    refuse,
    without,
)
from sunk_pod_scheduler.podspec.job_size import too_small
from sunk_pod_scheduler.reasons import PodReason


def placing(  # noqa: C901, PLR0911, PLR0912 - a table of cases
    seen: Observed, placement: PlacementState, now: datetime, limits: Limits
) -> Action:
    """Phases ``submitted``, ``released`` and ``started``: the Pod waits for its Node, or has lost its job."""
    pod, job = seen.pod, seen.job
    if pod is None or pod.is_over or (pod.is_terminating and not pod.kube_node):
        return end(seen, placement, now)
    if pod.kube_node and pod.is_terminating:
        return ending(placement, "the Pod is being deleted", now)
    if placement.job is None:
        return _unsubmitted(seen, pod, placement, now)
    match job:
        case JobUnknown():
            return Wait(ASK_AGAIN_S)
        case JobGone(has_ended=False) if pod.kube_node and placement.lost is not None:
            return lost_jobs.once_more(placement, now)
        case JobGone(has_ended=False) if pod.kube_node:
            return _lost_before_bound_was_stored(seen, pod, placement, job, now, limits)
        case JobGone():
            return without(pod, placement, forgotten(placement.job), now)
        case JobSeen() if pod.kube_node and lost_jobs.was_not_launched(placement, job):
            return given_up(lost_jobs.once_more(placement, now), job)
        case JobSeen() if job.is_over or job.base == "SUSPENDED":
            return given_up(without(pod, placement, cause(job), now), job)
        case JobSeen() if not job.is_marked:
            wiped = without(
                pod, placement, f"job {job.job} no longer has the pod-scheduler's mark in its Extra", now
            )
            return given_up(wiped, job) if job.is_ours else wiped
        case JobSeen() if job.is_requeued and not job.is_held:
            # Slurm starts it again only after two minutes, and what its script said may be of the run before.
            # It holds one that it could not launch: that is left to be told.
            return given_up(without(pod, placement, requeued(job), now), job, PodReason.JOB_REQUEUED)
        case JobSeen() if seen.is_release_requested:
            return without(pod, placement, release_requested(job), now)
        case JobSeen() if job.is_running and placement.phase != "started":
            return _starting(seen, placement, job, now, limits)
        case JobSeen() if job.is_running:
            return _running(seen, pod, placement, job, now)
        case JobSeen() if seen.has_old_number:
            return given_up(_renumbered(pod, placement, now), job)
        case JobSeen() if job.base == "PENDING" and _are_others_excluded(seen, job):
            return ExcludeNodes(job.job, seen.excluded or "")
        case JobSeen():
            return _pending(seen, pod, placement, job, now)


def _are_others_excluded(seen: Observed, job: JobSeen) -> bool:
    """Whether other nodes do for the Pod than Slurm was told last.

    It is asked at a look at the job, and looks are not made for it: so a taint that comes and goes costs no
    more than one call a look.
    """
    return None not in {seen.excluded, job.excluded} and seen.excluded != job.excluded


def _unsubmitted(seen: Observed, pod: PodSeen, placement: PlacementState, now: datetime) -> Action:
    if pod.kube_node and placement.lost is None:
        return bound_alone(placement, now)
    if placement.token_sha256:
        return Resume(placement.attempt)
    if placement.lost is not None and seen.given_away:
        return ending(placement, seen.given_away, now)
    if placement.lost is not None and pod.problems:
        return lost_jobs.stays(placement, f"{lost_jobs.NO_OTHER_JOB}: {joined(pod.problems)}", now)
    if pod.problems:
        return refuse(replace(placement, phase="refused", changed=now), pod)
    wait_s = backoff_s(placement.attempt)
    if placement.lost is not None:
        wait_s = lost_jobs.soon_s(wait_s, placement)
    due = placement.changed + timedelta(seconds=wait_s)
    return Submit(placement.attempt) if now >= due else Wait((due - now).total_seconds())


def _lost_before_bound_was_stored(  # noqa: PLR0917 - what is seen, then what it knows
    seen: Observed, pod: PodSeen, placement: PlacementState, job: JobGone, now: datetime, limits: Limits
) -> Action:
    """The Pod is on a Node, whatever is stored, and Slurm does not know its job: as of one that is bound."""
    if placement.node and seen.kube_node not in {"", pod.kube_node}:
        return bound_alone(placement, now)
    node = placement.node or seen.slurm_node
    if not node:
        return Wait(ASK_AGAIN_S)
    bound = replace(placement, phase="bound", node=node, kube_node=pod.kube_node)
    return lost_jobs.without_job(job, bound, now, limits, is_orphan=seen.is_release_requested)


def _renumbered(pod: PodSeen, placement: PlacementState, now: datetime) -> Record:
    """The next job has another number."""
    is_lost = placement.lost is not None
    return (
        lost_jobs.once_more(placement, now) if is_lost else without(pod, placement, lost_jobs.OLD_NUMBER, now)
    )


def _pending(seen: Observed, pod: PodSeen, placement: PlacementState, job: JobSeen, now: datetime) -> Action:
    if pod.kube_node and placement.lost is None:
        return bound_alone(placement, now)
    if placement.lost is not None and seen.given_away:
        return ending(placement, seen.given_away, now)
    if placement.lost is not None:
        pod = replace(pod, priority=lost_jobs.AHEAD)
    if placement.phase == "submitted":
        # A job that its user released has no AdminComment of ours yet.
        if job.is_held or not job.is_ours or pending_jobs.lacks_priority(pod, placement, job, now):
            return ReleaseJob(job.job, pod.priority)
        return Record(state=replace(placement, phase="released", changed=now, reason=""))
    if placement.lost is not None:
        return lost_jobs.pending(placement, job, now)
    return pending_jobs.pending(placement, job, now)


def _starting(
    seen: Observed, placement: PlacementState, job: JobSeen, now: datetime, limits: Limits
) -> Action:
    node, locking = _started_on(seen, job), node_locks.waiting(seen, placement, job, now)
    if locking is not None and (node or seen.ungranted):
        return locking
    if not node:
        return pending_jobs.starting(placement, job, now, limits)
    started = replace(placement, phase="started", changed=now, node=node, submitted=job.submitted)
    return Record(state=replace(started, start_told=None, reason=""))


def _running(  # noqa: PLR0911 - a table of cases
    seen: Observed, pod: PodSeen, placement: PlacementState, job: JobSeen, now: datetime
) -> Action:
    if placement.node not in job.nodes:
        elsewhere = f"job {job.job} does not run on {placement.node}"
        return given_up(without(pod, placement, elsewhere, now), job)
    if small := too_small(job.job, job.held, placement.node, pod.size):
        return given_up(without(pod, placement, small, now), job, PodReason.JOB_TOO_SMALL)
    if not seen.kube_node:
        return Wait(ASK_AGAIN_S)
    bound = replace(placement, phase="bound", changed=now, bound=now, kube_node=seen.kube_node, reason="")
    bound = replace(bound, submitted=job.submitted or placement.submitted)
    if placement.lost is not None and not job.is_started_by_us:
        return MarkStarted(job.job, job.extra)
    if pod.kube_node == seen.kube_node:
        return Record(state=bound) if placement.lost is None else ReportLoss(state=replace(bound, lost=None))
    if pod.kube_node:
        return bound_alone(placement, now)
    if seen.node_problem:
        return given_up(without(pod, placement, seen.node_problem, now), job, PodReason.NODE_UNSUITED)
    if (locking := node_locks.waiting(seen, placement, job, now)) is not None:
        return locking
    if not job.is_started_by_us:
        return MarkStarted(job.job, job.extra)
    return Bind(state=bound)


def _started_on(seen: Observed, job: JobSeen) -> str:
    """Return the node from which the script has announced itself, now or before the state was lost."""
    if seen.announced_on in job.nodes:
        return seen.announced_on
    # Extra is writable by the job's user, so it counts only where Slurm says that every prolog is through. He
    # can have Slurm say that, by hold and release: whether the nodes are locked is asked of `node_locks`.
    return job.nodes[0] if job.is_marked_started and job.reason == "None" and job.nodes else ""
