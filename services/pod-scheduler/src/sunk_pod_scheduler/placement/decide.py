"""What to do next about one Pod, its placement and its job: one action, from what is the case now.

What must stay true, wherever the process is killed: only a job whose id is stored is ever released, so a
second submission never runs; a Pod is bound only to the Node of a running job's node from which its script
has announced itself; a Pod whose job does not run is deleted if it is bound, else submitted again; a bound
one whose job Slurm has lost gets another on the same node; a job whose Pod is over ends.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from sunk_events.placements import PlacementPhase, PlacementState
from sunk_pod_scheduler.placement import lost_jobs, pending_jobs
from sunk_pod_scheduler.placement.actions import (
    Action,
    Bind,
    CancelJob,
    DeletePod,
    ExcludeNodes,
    Forget,
    MarkStarted,
    Record,
    ReleaseJob,
    Resume,
    Submit,
    TellLoss,
    Wait,
)
from sunk_pod_scheduler.placement.end_reasons import asked, cause, forgotten, requeued
from sunk_pod_scheduler.placement.heartbeat import check_heartbeat
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S, ENDED_GRACE_S, LOOK_AGAIN_S, Limits, backoff_s
from sunk_pod_scheduler.placement.marks import Claim
from sunk_pod_scheduler.placement.model import JobGone, JobSeen, JobUnknown, Observed, PodSeen
from sunk_pod_scheduler.placement.transitions import (
    bound_alone,
    end,
    ending,
    fresh,
    given_up,
    refuse,
    said,
    without,
)
from sunk_pod_scheduler.podspec.job_size import too_small
from sunk_pod_scheduler.podspec.validation import TERMINATION_OFFSET_S
from sunk_pod_scheduler.reasons import PodReason


def decide(seen: Observed, now: datetime, limits: Limits) -> Action:
    """Return the next step towards Pod and job living and ending together."""
    if seen.placement is None:
        action = _without_placement(seen, now)
        return Forget() if seen.is_overtaken and action == Wait() else action
    return _BY_PHASE[seen.placement.phase](seen, seen.placement, now, limits)


def _without_placement(seen: Observed, now: datetime) -> Action:
    pod = seen.pod
    if pod is None:
        return Wait()
    if pod.claim is not None:
        if isinstance(seen.job, JobUnknown):
            return Wait(ASK_AGAIN_S)
        is_there = isinstance(seen.job, JobSeen) and seen.job.is_the_pods and not seen.job.is_over
        if is_there or (pod.kube_node and not pod.is_over):
            return _adopted(seen, pod, pod.claim, now, is_there=is_there)
    if pod.is_over or pod.is_terminating or pod.kube_node or pod.is_gated:
        return Wait()
    if pod.problems:
        refused = fresh(seen.uid, pod, "refused", now)
        return refuse(replace(refused, attempt=_next_attempt(pod)), pod)
    return Submit(_next_attempt(pod))


def _next_attempt(pod: PodSeen) -> int:
    """Return a number that no earlier job of the Pod had: its token would let that one speak."""
    return 0 if pod.claim is None else pod.claim.attempt + 1


def _adopted(seen: Observed, pod: PodSeen, claim: Claim, now: datetime, *, is_there: bool) -> Action:
    """The bucket was lost; the Pod remembers its job, and each later step follows from what is.

    Others believe what is stored, so a number is only stored where it is the Pod's.
    """
    job = seen.job
    was_his = claim.is_signed and not (isinstance(job, JobGone) and job.is_taken)
    number = claim.job if is_there or was_his else None
    attempt = claim.attempt if number is not None else _next_attempt(pod)
    adopted = replace(fresh(seen.uid, pod, "submitted", now), job=number, attempt=attempt)
    is_gone = isinstance(job, JobGone) and not job.has_ended and claim.is_signed
    if not pod.kube_node or pod.is_terminating or not (is_gone or (is_there and pod.is_told_lost)):
        return Record(state=adopted)
    if not seen.slurm_node:
        return Wait(ASK_AGAIN_S)
    adopted = replace(adopted, node=seen.slurm_node, kube_node=pod.kube_node, lost=now)
    # It waits, or runs, to replace a lost one; or its number is another's: slurmctld has lost its state.
    if is_there or number is None:
        return Record(state=replace(adopted, lost_job=claim.job if number is None else None))
    return Record(state=replace(adopted, phase="bound"))


def _refused(seen: Observed, placement: PlacementState, now: datetime, _: Limits) -> Action:
    pod = seen.pod
    if pod is None or pod.is_over or pod.kube_node:
        return Forget()
    if pod.is_terminating:
        return Wait()
    if not pod.problems:
        return Submit(placement.attempt)
    if placement.reason == said(pod.problems):
        return Wait()
    return refuse(replace(placement, changed=now), pod)


def _placing(  # noqa: C901, PLR0911, PLR0912 - a table of cases
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
        case JobGone():
            return without(pod, placement, forgotten(placement.job), now)
        case JobSeen() if pod.kube_node and lost_jobs.was_not_launched(placement, job):
            return lost_jobs.once_more(placement, now)
        case JobSeen() if job.is_over or job.base == "SUSPENDED":
            return given_up(without(pod, placement, cause(job), now), job)
        case JobSeen() if not job.is_marked:
            wiped = without(pod, placement, f"job {job.job} no longer carries our mark in its Extra", now)
            return given_up(wiped, job) if job.is_ours else wiped
        case JobSeen() if job.is_requeued and job.is_running and _has_said_something(seen, placement):
            # That may be of the run before: its prologs have to be through anew. Slurm itself requeues, and
            # holds, one that it could not launch.
            return given_up(without(pod, placement, requeued(job), now), job)
        case JobSeen() if seen.is_release_asked:
            return without(pod, placement, asked(job), now)
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


def _has_said_something(seen: Observed, placement: PlacementState) -> bool:
    return placement.phase == "started" or bool(seen.announced_on)


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
        return lost_jobs.stays(placement, f"{lost_jobs.NO_OTHER_JOB}: {said(pod.problems)}", now)
    if pod.problems:
        return refuse(replace(placement, phase="refused", changed=now), pod)
    due = placement.changed + timedelta(seconds=backoff_s(placement.attempt))
    return Submit(placement.attempt) if now >= due else Wait((due - now).total_seconds())


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
        # Who has released his job himself has none of our AdminComment on it yet.
        if job.is_held or not job.is_ours or pending_jobs.lacks_priority(pod, placement, job, now):
            return ReleaseJob(job.job, pod.priority)
        return Record(state=replace(placement, phase="released", changed=now, reason=""))
    if placement.lost is not None:
        return lost_jobs.pending(placement, job, now)
    return pending_jobs.pending(placement, job, now)


def _starting(
    seen: Observed, placement: PlacementState, job: JobSeen, now: datetime, limits: Limits
) -> Action:
    node = _started_on(seen, job)
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
        return Record(state=bound) if placement.lost is None else TellLoss(state=replace(bound, lost=None))
    if pod.kube_node:
        return bound_alone(placement, now)
    if seen.node_problem:
        return given_up(without(pod, placement, seen.node_problem, now), job, PodReason.NODE_UNSUITED)
    if not job.is_started_by_us:
        return MarkStarted(job.job, job.extra)
    return Bind(state=bound)


def _started_on(seen: Observed, job: JobSeen) -> str:
    """Return the node from which the script has announced itself, now or before the state was lost."""
    if seen.announced_on in job.nodes:
        return seen.announced_on
    # Extra is writable by the job's user: it counts only once Slurm says that every prolog is through.
    return job.nodes[0] if job.is_marked_started and job.reason == "None" and job.nodes else ""


def _bound(  # noqa: C901, PLR0911 - a table of cases
    seen: Observed, placement: PlacementState, now: datetime, limits: Limits
) -> Action:
    pod, job = seen.pod, seen.job
    if pod is None or pod.is_finished:
        return end(seen, placement, now)
    match job:
        # A job that ends is known to Slurm while its script or an epilog asks for the Pod's end: where it is
        # not, slurmctld has lost its state, and has killed what it no longer knows.
        case JobGone(has_ended=False) if not pod.is_terminating:
            return lost_jobs.without_job(job, placement, now, limits, is_orphan=seen.is_release_asked)
        case JobUnknown() if not pod.is_terminating and seen.is_release_asked:
            return Wait(ASK_AGAIN_S)
        case _ if seen.is_release_asked:
            return ending(placement, asked(job), now)
        case JobGone():
            return ending(placement, forgotten(placement.job), now)
        case JobSeen() if not job.is_running:
            return ending(placement, cause(job), now)
        case JobSeen() if placement.node not in job.nodes:
            return ending(placement, f"job {job.job} does not run on {placement.node}", now)
        case JobSeen() if job.is_requeued:
            return ending(placement, requeued(job), now)
        case _ if pod.is_terminating:
            return ending(placement, "the Pod is being deleted", now)
        case JobUnknown():
            return Wait(ASK_AGAIN_S)
        case _ if placement.lost is not None:
            return TellLoss(state=replace(placement, changed=now, lost=None, reason=""))
        case _:
            return check_heartbeat(
                seen.heartbeat, seen.listening, placement, now, limits, are_many=seen.are_many_silent
            )


def _pod_leaves(  # noqa: PLR0911 - a table of cases
    seen: Observed, placement: PlacementState, now: datetime, limits: Limits
) -> Action:
    """Phase ``ending``: the Pod goes, the job stays until it has gone."""
    pod, job = seen.pod, seen.job
    if pod is None or pod.is_finished:
        return end(seen, placement, now)
    if not pod.is_terminating:
        return DeletePod()
    if isinstance(job, JobGone) and job.is_taken:  # Others take the Pod for that job's.
        return Record(state=replace(placement, job=None))
    if isinstance(job, JobUnknown):
        return Wait(ASK_AGAIN_S)
    due = _overdue_at(placement, job, limits)
    if pod.outstays and (due is not None or seen.is_release_asked):
        return DeletePod()
    if placement.is_overdue:
        return Wait(ASK_AGAIN_S)
    if due is None:
        return Wait(LOOK_AGAIN_S)
    if now < due:
        return Wait(min((due - now).total_seconds(), LOOK_AGAIN_S))
    return Record(state=replace(placement, is_overdue=True))


def _overdue_at(placement: PlacementState, job: JobSeen | JobGone, limits: Limits) -> datetime | None:
    """Return when the node must take no more work because of the Pod; None while the job keeps it."""
    if isinstance(job, JobGone) or job.is_gone:
        return placement.changed
    if not job.is_over and not job.is_completing:
        return None
    patience = timedelta(seconds=max(0.0, limits.kill_wait_s - TERMINATION_OFFSET_S))
    return (job.ended or placement.changed) + patience


def _ended(seen: Observed, placement: PlacementState, now: datetime, _: Limits) -> Action:
    """The Pod is over; the job is given time to end by its script, and no more."""
    job = seen.job
    match job:
        case JobUnknown():
            return Wait(ASK_AGAIN_S)
        case JobGone():
            return Forget()
        case JobSeen() if job.is_gone:
            return Forget()
        case JobSeen() if job.is_over or job.is_completing or not job.is_the_pods:
            return Wait(LOOK_AGAIN_S)
        case JobSeen():
            due = placement.changed + timedelta(seconds=ENDED_GRACE_S)
            if not job.is_running or not placement.node or now >= due:
                return CancelJob(job.job)  # No script listens: it never started, is stopped, or is dead.
            return Wait((due - now).total_seconds())


_BY_PHASE: Final[Mapping[PlacementPhase, Callable[[Observed, PlacementState, datetime, Limits], Action]]] = {
    "refused": _refused,
    "submitted": _placing,
    "released": _placing,
    "started": _placing,
    "bound": _bound,
    "ending": _pod_leaves,
    "ended": _ended,
}
