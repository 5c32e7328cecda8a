"""The next state of a placement, by what has happened."""

from datetime import datetime

from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.placements import PlacementPhase, PlacementState
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.actions import (
    Action,
    Bind,
    ExcludeNodes,
    GiveUp,
    MarkStarted,
    Record,
    RecordReason,
    Refuse,
    ReleaseJob,
    ReportLoss,
    Submit,
    Wait,
)
from sunk_pod_scheduler.placement.model import JobSeen, Observed, PodSeen
from sunk_pod_scheduler.reasons import PodReason


def without(pod: PodSeen, placement: PlacementState, reason: str, now: datetime) -> Record:
    """The job is of no use any more: the Pod goes if it is bound, else it gets another job."""
    if pod.kube_node:
        return ending(placement, reason, now)
    return Record(
        state=replace(
            placement,
            phase="submitted",
            changed=now,
            attempt=placement.attempt + 1,
            job=None,
            submitted=None,
            node="",
            kube_node="",
            token_sha256="",
            silent=None,
            start_told=None,
            reason=reason[:REASON_MAX],
        )
    )


def given_up(record: Record, job: JobSeen, event: PodReason | None = None) -> Record | GiveUp:
    """Return *record*; if its Pod has no more of *job*, which is alive, that ends at once."""
    if job.is_over or record.state.job is not None:
        return record
    return GiveUp(state=record.state, job=job.job, event=event)


def bound_alone(placement: PlacementState, now: datetime) -> Record:
    """The Pod has a Node and no job there: it goes, whatever bound it."""
    return ending(placement, "the Pod is bound, and its job does not run there", now)


def ending(placement: PlacementState, reason: str, now: datetime) -> Record:
    """The Pod is to go, or goes; its job stays until it has gone."""
    return Record(state=replace(placement, phase="ending", changed=now, reason=reason[:REASON_MAX]))


def end(seen: Observed, placement: PlacementState, now: datetime) -> Record:
    """The Pod is over: its job may end, with the Pod's exit code."""
    pod = seen.pod
    ended_by_itself = pod is not None and pod.is_over and not pod.is_terminating
    exit_code = pod.exit_code if pod is not None and ended_by_itself else 0
    return Record(
        state=replace(
            placement, phase="ended", changed=now, is_pod_present=False, is_overdue=False, exit_code=exit_code
        )
    )


def fresh(uid: str, pod: PodSeen, phase: PlacementPhase, now: datetime) -> PlacementState:
    """Return the first state of a Pod."""
    return PlacementState(
        changed=now, uid=uid, namespace=pod.namespace, pod=pod.name, phase=phase, created=pod.created
    )


def refuse(state: PlacementState, pod: PodSeen) -> Refuse:
    """The Pod cannot be passed to Slurm until it changes."""
    return Refuse(state=replace(state, reason=joined(pod.problems)))


def is_another(before: PlacementState | None, after: PlacementState | None) -> bool:
    """Whether what was said of the job of *before* says nothing of that of *after*."""
    return before is not None and (after is None or after.attempt != before.attempt)


def joined(problems: tuple[str, ...]) -> str:
    """Return *problems* in one line."""
    return "; ".join(problems)[:REASON_MAX]


def waits_for(job: JobSeen) -> str:
    """Return what a pending job waits for, in Slurm's own words; empty while Slurm has not looked at it."""
    if job.reason in {"", "None"}:
        return ""
    more = f" ({job.description})" if job.description else ""
    return f"job {job.job} waits in Slurm: {job.reason}{more}"[:REASON_MAX]


def after(action: Action, seen: Observed, placement: PlacementState | None) -> JobSeen | None:
    """Return the placement's job as it is right after *action*, where that is known without another look.

    While slurmctld starts many jobs each look takes its time, and takes it from the jobs.
    """
    job = seen.job
    match action:
        case Submit() if placement is not None and placement.job is not None:
            return JobSeen(job=placement.job, base="PENDING", is_held=True)
        case ExcludeNodes() if isinstance(job, JobSeen):
            return replace(job, excluded=action.excluded)
        case ReleaseJob() if isinstance(job, JobSeen):
            priority = action.priority or job.priority
            return replace(job, is_held=False, reason="", priority=priority, is_ours=True)
        case MarkStarted() if isinstance(job, JobSeen):
            return replace(job, is_marked_started=True, is_ours=True, extra=marks.started(action.extra))
        case Wait() | Record() | Refuse() | RecordReason() | ReportLoss() | Bind() if isinstance(
            job, JobSeen
        ):
            return job if placement is not None and placement.job == job.job else None
        case _:
            return None
