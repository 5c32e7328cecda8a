"""Why a Pod that Slurm places is as it is, in an operator's words, with what would change it."""

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.jobs import SlurmJobState
from sunk_events.placements import PlacementPhase, PlacementState
from sunk_events.requests import Finding
from sunk_pod_scheduler.placement import node_locks
from sunk_pod_scheduler.placement.limits import backoff_s, tries
from sunk_pod_scheduler.placement.model import JobGone, JobSeen, JobUnknown, Observed, PodSeen
from sunk_pod_scheduler.placement.transitions import waits_for
from sunk_slurm.queue import NOT_YET, place_finding

FINDINGS_MAX: Final = 32
_SILENT: Final = "Slurm does not answer"
_SLURM_BACK: Final = "slurmrestd and slurmctld answer again; the pod-scheduler decides nothing before"


def explain(seen: Observed) -> tuple[Finding, ...]:
    """Return what stands out about the Pod, the weightiest first."""
    if seen.placement is None:
        return _without_placement(seen)
    found = _BY_PHASE[seen.placement.phase](seen, seen.placement)
    return tuple(found)[:FINDINGS_MAX]


def place_in_queue(
    seen: Observed, jobs: Iterable[SlurmJobState] | None, released: Container[int]
) -> tuple[Finding, ...]:
    """Return where the Pod's job stands in Slurm's queue; nothing where it is not in it.

    Args:
        seen: Of its job, the fresh look counts: what the bus says of it may be old.
        jobs: Slurm's jobs, as the bus has them; None where that is not of now.
        released: The placeholder jobs that have been released.
    """
    job = seen.job
    if not isinstance(job, JobSeen) or job.base != "PENDING" or job.is_held or job.reason in NOT_YET:
        return ()
    if jobs is None:
        return (
            _not_known("the bus has no recent list of Slurm's jobs", "the syncer runs, and Slurm answers it"),
        )
    known = tuple(jobs)
    published = next((one for one in known if one.job == job.job), None)
    if published is None:
        return (_not_known(f"the syncer has not published job {job.job} yet", "wait a moment"),)
    own = replace(published, priority=job.priority or published.priority)
    return (place_finding(own, known, released),)


def _not_known(because: str, would_change: str) -> Finding:
    return _finding("its place in Slurm's queue is not known", because=because, would_change=would_change)


def unknown(pod: str) -> Finding:
    """Return what there is to say of a Pod that we do not know."""
    return _finding(
        f"this pod-scheduler does not serve Pod {pod}",
        because="no such Pod names this scheduler, in a namespace that it watches",
        would_change="another spec.schedulerName of a new Pod, or another scope of the scheduler",
    )


def _without_placement(seen: Observed) -> tuple[Finding, ...]:
    pod = seen.pod
    if pod is None or pod.is_over or pod.is_terminating:
        return (_finding("nothing is left to do", because="the Pod has ended or is being deleted"),)
    if pod.is_gated:
        return (
            _finding(
                "not passed to Slurm",
                because="the Pod has scheduling gates",
                would_change="the controller that set spec.schedulingGates removes them",
            ),
        )
    if pod.kube_node:
        return (
            _finding(
                f"bound to {pod.kube_node} by another client, not by the pod-scheduler",
                because="so the Pod has no job in Slurm",
                would_change="delete the Pod; Slurm places the Pod that replaces it",
            ),
        )
    return _problems(pod) or (
        _finding("new", because="the pod-scheduler has not processed it yet", would_change="wait a moment"),
    )


def _problems(pod: PodSeen, since: datetime | None = None) -> tuple[Finding, ...]:
    return tuple(
        _finding(
            "refused",
            since=since,
            because=problem,
            would_change="change the Pod's annotations, or replace the Pod; the scheduler then looks again",
        )
        for problem in pod.problems
    )


def _refused(seen: Observed, placement: PlacementState) -> tuple[Finding, ...]:
    known = () if seen.pod is None else _problems(seen.pod, placement.changed)
    return known or (
        _finding(
            "no longer refused",
            because="the Pod has no error now",
            would_change="the pod-scheduler processes it next",
        ),
    )


def _placing(seen: Observed, placement: PlacementState) -> tuple[Finding, ...]:
    if placement.job is None:
        return (_unsubmitted(placement),)
    match seen.job:
        case JobUnknown():
            return (_silent(placement),)
        case JobSeen() as job if job.is_running:
            locking = node_locks.finding(seen, job)
            return (*(() if locking is None else (locking,)), _running(seen, placement, job))
        case JobSeen(is_over=False, base="PENDING") as job:
            return (_pending(placement, job),)
        case JobSeen() as job:
            why = f"job {job.job} is {job.base}"
        case JobGone():
            why = f"job {placement.job} is unknown to Slurm"
    return (
        _finding(
            "lost its job",
            because=why,
            would_change="nothing: the pod-scheduler submits another job in a moment",
        ),
    )


def _unsubmitted(placement: PlacementState) -> Finding:
    if placement.token_sha256:
        return _finding(
            "a submission is under way",
            since=placement.changed,
            because="Slurm has not answered it yet",
            would_change="Slurm answers, or the pod-scheduler finds the job in Slurm",
        )
    due = placement.changed + timedelta(seconds=backoff_s(placement.attempt))
    return _finding(
        f"has no job, after {tries(placement.attempt)}",
        since=placement.changed,
        because=placement.reason,
        would_change=f"fix what Slurm reports; the next attempt is at {due:%Y-%m-%d %H:%M:%S %Z}",
    )


def _pending(placement: PlacementState, job: JobSeen) -> Finding:
    if job.reason == "JobHeldAdmin":
        return _finding(
            f"job {job.job} is held (JobHeldAdmin)",
            since=placement.changed,
            because=placement.reason,
            would_change="add the user to the machine of slurmctld, then scontrol release; or delete the Pod",
        )
    if job.is_held:
        return _finding(
            f"job {job.job} is held",
            since=placement.changed,
            because=job.reason,
            would_change=f"scontrol release {job.job}",
        )
    return _finding(
        "waits for its turn in Slurm",
        since=placement.changed,
        because=waits_for(job) or f"Slurm has not looked at job {job.job} yet",
        would_change="the cause in Slurm's reason ends; "
        f"squeue --start --jobs {job.job} shows when it may start",
    )


def _running(seen: Observed, placement: PlacementState, job: JobSeen) -> Finding:
    where = ",".join(job.nodes)
    if placement.phase != "started":
        is_prolog = job.reason == "Prolog"
        return _finding(
            f"job {job.job} starts on {where}",
            because="its prolog locks the Node" if is_prolog else "its script has not announced itself",
            would_change="the Pods in the way leave: explain the node"
            if is_prolog
            else "the script reaches the hook gateway",
        )
    if not seen.kube_node:
        return _finding(
            f"not bound: the Node of {placement.node} is not known",
            since=placement.changed,
            because="no NodeSet has published which Node it is",
            would_change="the nodeset-controller publishes the node's Pod",
        )
    return _finding(
        f"not bound to {seen.kube_node}",
        since=placement.changed,
        because=seen.node_problem or "the binding is under way",
        would_change="the pod-scheduler submits another job" if seen.node_problem else "wait a moment",
    )


def _bound(seen: Observed, placement: PlacementState) -> tuple[Finding, ...]:
    if isinstance(seen.job, JobUnknown):
        return (_silent(placement),)
    if placement.silent is not None:
        return (
            _finding(
                f"the script of job {placement.job} does not call the hook gateway",
                since=placement.silent,
                because=placement.reason or "its last call was cut off, for example by a restart of slurmd",
                would_change="the script calls again; otherwise the pod-scheduler deletes the Pod",
            ),
        )
    return (
        _finding(
            f"bound to {placement.kube_node} for job {placement.job} on {placement.node}",
            since=placement.changed,
            because=placement.reason,
            would_change="the Pod or the job ends; the end of one ends the other",
        ),
    )


def _ending(_: Observed, placement: PlacementState) -> tuple[Finding, ...]:
    leaving = _finding(
        "the Pod is being deleted",
        since=placement.changed,
        because=placement.reason,
        would_change="the kubelet ends its containers within the grace period, if the Node runs",
    )
    if not placement.is_overdue:
        return (leaving,)
    drained = _finding(
        f"overdue: {placement.node} takes no more work",
        because="the job has ended, or is about to, and the Pod may still run",
        would_change="its containers have ended, or its object is gone",
    )
    return (drained, leaving)


def _ended(seen: Observed, placement: PlacementState) -> tuple[Finding, ...]:
    if isinstance(seen.job, JobUnknown):
        return (_silent(placement),)
    return (
        _finding(
            f"job {placement.job} ends",
            since=placement.changed,
            because="its Pod has ended",
            would_change="its script and its node's epilog end",
        ),
    )


def _silent(placement: PlacementState) -> Finding:
    what = f"the pod-scheduler cannot read job {placement.job}"
    return _finding(what, because=_SILENT, would_change=_SLURM_BACK)


def _finding(
    what: str, *, since: datetime | None = None, because: str = "", would_change: str = ""
) -> Finding:
    cut = (text[:REASON_MAX] for text in (what, because, would_change))
    what, because, would_change = cut
    return Finding(what=what, since=since, because=because, would_change=would_change)


_BY_PHASE: Final[Mapping[PlacementPhase, Callable[[Observed, PlacementState], tuple[Finding, ...]]]] = {
    "refused": _refused,
    "submitted": _placing,
    "released": _placing,
    "started": _placing,
    "bound": _bound,
    "ending": _ending,
    "ended": _ended,
}
