"""What to do next about one Pod, its placement and its job: one action, from what is the case now.

What must stay true, wherever the process is killed: only a job whose id is stored is ever released, so a
second submission never runs; a Pod is bound only to the Node of a running job's node from which its script
has announced itself, once each node of the job is locked for it; a Pod whose job does not run is deleted if
it is bound, else submitted again; a bound one whose job Slurm has lost gets another on the same node; a job
whose Pod is over ends; a Pod that another scheduler serves by now is left to it, unless we have bound it.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from sunk_events.placements import PlacementPhase, PlacementState
from sunk_pod_scheduler.placement import lost_jobs
from sunk_pod_scheduler.placement.actions import (
    Action,
    CancelJob,
    DeletePod,
    Forget,
    Record,
    ReportLoss,
    Submit,
    Wait,
)
from sunk_pod_scheduler.placement.end_reasons import NOT_SERVED, cause, forgotten, release_requested, requeued
from sunk_pod_scheduler.placement.heartbeat import check_heartbeat
from sunk_pod_scheduler.placement.job_claims import is_claimed
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S, ENDED_GRACE_S, LOOK_AGAIN_S, Limits
from sunk_pod_scheduler.placement.marks import Claim
from sunk_pod_scheduler.placement.model import JobGone, JobSeen, JobUnknown, Observed, PodSeen
from sunk_pod_scheduler.placement.placing import placing
from sunk_pod_scheduler.placement.transitions import end, ending, fresh, joined, refuse
from sunk_pod_scheduler.podspec.validation import TERMINATION_OFFSET_S

_WAITING: Final[frozenset[PlacementPhase]] = frozenset({"refused", "submitted", "released", "started"})
"""Phases in which no Pod is known to be bound."""


def decide(seen: Observed, now: datetime, limits: Limits) -> Action:
    """Return the next step towards Pod and job living and ending together."""
    if seen.placement is None:
        action = _without_placement(seen, now)
        return Forget() if seen.is_overtaken and action == Wait() else action
    if seen.pod is not None and _is_anothers(seen, seen.pod, seen.placement):
        return Record(state=replace(end(seen, seen.placement, now).state, reason=NOT_SERVED))
    return _BY_PHASE[seen.placement.phase](seen, seen.placement, now, limits)


def _is_anothers(seen: Observed, pod: PodSeen, placement: PlacementState) -> bool:
    """Whether another scheduler may place the Pod, or has done so: what there is of ours ends without it.

    From the phase ``started`` on we may have bound it ourselves: then it is on the Node of our job, as far as
    that is known. A Pod on a Node that claims our job was bound by us, whatever an older store says.
    """
    if pod.is_served or placement.lost is not None or placement.phase not in _WAITING:
        return False
    if pod.kube_node and is_claimed(pod.claim, placement):
        return False
    may_be_bound_by_us = placement.phase == "started" and seen.kube_node in {"", pod.kube_node}
    return not (pod.kube_node and may_be_bound_by_us)


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
    if not pod.kube_node or pod.is_terminating or not (is_gone or (is_there and pod.is_reported_lost)):
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
    if placement.reason == joined(pod.problems):
        return Wait()
    return refuse(replace(placement, changed=now), pod)


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
            return lost_jobs.without_job(job, placement, now, limits, is_orphan=seen.is_release_requested)
        case JobUnknown() if not pod.is_terminating and seen.is_release_requested:
            return Wait(ASK_AGAIN_S)
        case _ if seen.is_release_requested:
            return ending(placement, release_requested(job), now)
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
            return ReportLoss(state=replace(placement, changed=now, lost=None, reason=""))
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
    if pod.outstays and (due is not None or seen.is_release_requested):
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
    "submitted": placing,
    "released": placing,
    "started": placing,
    "bound": _bound,
    "ending": _pod_leaves,
    "ended": _ended,
}
