"""Why a Slurm node or job is as it is, in an operator's words: the most important first."""

from collections.abc import Callable, Container, Iterable
from datetime import datetime

from sunk_events.base import REASON_MAX
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.requests import Explanation, Finding
from sunk_slurm.down_reasons import PREFIX, REQUEUE, down_reason, keeps_down_reason
from sunk_slurm.leaving import is_waiting, text
from sunk_slurm.queue import is_queued, place_finding
from sunk_syncer.actions import KubeInputs, gone_uid
from sunk_syncer.policy.cleanup import is_out_by_others, may_be_ours
from sunk_syncer.policy.drains import OVERDUE, PREHOOK, VERIFY, cause, shall_be_empty
from sunk_syncer.policy.requeues import lost_prologs

_CHANGES = {
    "overdue": "the Pod of the job that ended is deleted",
    "terminated": "a new Pod is ready",
    "condemned": "the nodeset-controller deletes the Pod, or no longer has to",
    "not ready": "the Pod is ready: slurmd answers on its port",
    "cordoned": "kubectl uncordon",
}
"""What would change each cause of a drain."""
_BACK = (
    "slurmd registers, if ReturnToService allows it; otherwise an administrator sets state=resume in Slurm"
)
"""What brings a node back that is down."""


def explain_node(slurm: SlurmNodeState, kube: KubeInputs, held_back: str = "") -> Explanation:
    """Return why the node is as it is in Slurm.

    Args:
        slurm: The node's state on the bus.
        kube: Kubernetes' side.
        held_back: Why nothing is changed in Slurm now, if that is so.
    """
    node = (*_drain(slurm, kube), *_down(slurm, kube), *_record(slurm, kube))
    return Explanation(findings=(*_held_back(held_back), *node, *_kubernetes(slurm, kube)))


def explain_job(
    job: SlurmJobState,
    nodes: Iterable[SlurmNodeState | None],
    locks: Iterable[LockState],
    *,
    jobs: Iterable[SlurmJobState] = (),
    released: Container[int] = (),
    is_ahead_named: bool = True,
) -> Explanation:
    """Return why the job waits, or runs where it does.

    Args:
        job: The job's state on the bus.
        nodes: The nodes that it is on; None where nothing is known of one.
        locks: Their locks.
        jobs: Every job that is known.
        released: Jobs that the pod-scheduler has released, which the bus shows late.
        is_ahead_named: Name the jobs ahead of it, with their users.
    """
    in_the_way = [f"{lock.node}: {', '.join(lock.in_the_way[:3])}" for lock in locks if lock.in_the_way]
    waits = ("waits for Pods to leave: " + "; ".join(in_the_way[:5]))[:REASON_MAX] if in_the_way else ""

    def place() -> Finding:
        return place_finding(job, jobs, released, is_ahead_named=is_ahead_named)

    return _job(job, nodes, waits, place, released)


def explain_job_to_owner(
    job: SlurmJobState,
    nodes: Iterable[SlurmNodeState | None],
    locks: Iterable[LockState],
    now: datetime,
    *,
    jobs: Iterable[SlurmJobState] = (),
    released: Container[int] = (),
) -> Explanation:
    """Return as `explain_job` does what a user of Slurm may know: of Pods their number, of other jobs none.

    Args:
        job: The job's state on the bus; it is the user's.
        nodes: The nodes that it is on; None where nothing is known of one.
        locks: Their locks.
        now: What the end of Pods is compared with.
        jobs: Every job that is known.
        released: Jobs that the pod-scheduler has released, which the bus shows late.
    """
    waits = text([lock for lock in locks if is_waiting(lock, job.job)], now)
    return _job(job, nodes, waits, lambda: place_finding(job, jobs, released, is_ahead_named=False), released)


def _job(
    job: SlurmJobState,
    nodes: Iterable[SlurmNodeState | None],
    waits: str,
    place: Callable[[], Finding],
    released: Container[int],
) -> Explanation:
    """Return why the job waits: *waits* says it of its locks, *place* of the queue."""
    if job.is_over:
        return Explanation(findings=(_over(job),))
    if job.state == "PENDING":
        in_queue = (place(),) if is_queued(job, released) else ()
        return Explanation(findings=(_pending(job), *in_queue))
    return Explanation(findings=(*_prolog(job, nodes, waits), *_completing(job)))


def _held_back(because: str) -> Iterable[Finding]:
    if because:
        yield Finding(
            what="the syncer does not change this node now",
            because=because[:REASON_MAX],
            would_change="the syncer can read this again",
        )


def _drain(slurm: SlurmNodeState, kube: KubeInputs) -> Iterable[Finding]:
    if not slurm.is_drain:
        return
    what = f"{'draining' if slurm.is_busy else 'drained'}: {slurm.reason or 'no reason given'}"[:REASON_MAX]
    row = cause(kube)
    if not slurm.reason.startswith(PREFIX):
        user = slurm.reason_user or "an unknown user"
        because = f"{user} set this drain in Slurm; the services never change it"
        change = (
            "a verification of the Node that succeeds after now"
            if VERIFY in slurm.reason
            else "scontrol update nodename=... state=undrain"
        )
    elif row is not None:
        because, change = f"Kubernetes requires it: {row.name}", _CHANGES[row.name]
    elif slurm.reason.startswith(OVERDUE) and kube.is_pod_leaving:
        because, change = "the Pod of a job that ended may still run", "that Pod is gone"
    elif slurm.reason.startswith(OVERDUE) and not kube.are_placements_known:
        because = "the bus may have lost the placement of the Pod that was overdue"
        change = "the pod-scheduler has published placements for some time again"
    elif kube.pod is None:
        because = "the services set it, and no NodeSet has the node any more"
        change = "the syncer deletes Slurm's record of the node"
    elif keeps_down_reason(slurm.reason, is_down=slurm.is_down):
        because, change = "its cause is gone, but Slurm would forget why the node is down", _BACK
    elif slurm.reason.startswith(PREHOOK) and kube.lock is None:
        because = "a prolog could not lock the Node, and the bus does not have its lock"
        change = "the nodeset-controller publishes the lock"
    elif slurm.reason.startswith(PREHOOK):
        because = "a prolog could not lock the Node"
        change = "no Pod is in the way any more, and some time has passed"
    else:
        because, change = "its cause is gone", "nothing: the syncer ends the drain in a moment"
    yield Finding(what=what, since=slurm.reason_changed, because=because, would_change=change)


def _down(slurm: SlurmNodeState, kube: KubeInputs) -> Iterable[Finding]:
    if not slurm.is_down:
        return
    if down_reason(slurm.reason).startswith(REQUEUE) and not slurm.is_drain:
        because = "this version of Slurm requeues a job only if its node is down"
        yield Finding(
            what="down", because=because, would_change="nothing: the syncer resumes the node in a moment"
        )
        return
    yield Finding(
        what="down",
        since=None if slurm.is_drain else slurm.reason_changed,
        because="its Pod is gone"
        if gone_uid(kube.pod)
        else down_reason(slurm.reason) or "Slurm gives no reason",
        would_change=_BACK,
    )


def _record(slurm: SlurmNodeState, kube: KubeInputs) -> Iterable[Finding]:
    if kube.pod is not None or not may_be_ours(slurm):
        return
    if is_out_by_others(slurm.reason, is_drain=slurm.is_drain, is_down=slurm.is_down):
        yield Finding(
            what="the syncer keeps Slurm's record of the node, although its Pod is gone",
            because="an administrator drained it or set it down; deleting the record would lose that",
            would_change="scontrol update nodename=... state=resume, or scontrol delete nodename=...",
        )


def _kubernetes(slurm: SlurmNodeState, kube: KubeInputs) -> Iterable[Finding]:
    row = cause(kube)
    if row is not None and not slurm.is_drain:
        is_left = slurm.is_down and not shall_be_empty(kube)
        yield Finding(
            what=f"not drained, although Kubernetes requires it: {row.name}",
            because="the syncer does not drain a node that is down"
            if is_left
            else "the syncer drains it in a moment",
            would_change=_CHANGES[row.name],
        )
    if slurm.is_not_responding and not slurm.is_down:
        yield Finding(
            what="not responding",
            because="slurmctld does not reach its slurmd",
            would_change="slurmd answers; after SlurmdTimeout the node is down",
        )


def _over(job: SlurmJobState) -> Finding:
    return Finding(what=f"over: {job.state}", since=job.ended, because=job.reason)


def _pending(job: SlurmJobState) -> Finding:
    return Finding(
        what="pending",
        since=job.submitted,
        because=job.reason or "Slurm has not looked at it yet",
        would_change="squeue --start shows when Slurm expects it to start",
    )


def _prolog(job: SlurmJobState, nodes: Iterable[SlurmNodeState | None], waits: str) -> Iterable[Finding]:
    if job.reason != "Prolog":
        return
    lost = lost_prologs(job, nodes)
    if lost.is_certain:
        yield Finding(
            what="hangs in its prolog",
            since=job.started,
            because=f"slurmd of {', '.join(lost.nodes[:5])} was restarted while the prolog ran",
            would_change="the syncer requeues it in a moment; cancel a job that may not be requeued",
        )
        return
    yield Finding(
        what="its prologs run",
        since=job.started,
        because=waits,
        would_change="those Pods are gone" if waits else "the prologs end",
    )


def _completing(job: SlurmJobState) -> Iterable[Finding]:
    if job.is_completing:
        yield Finding(
            what="completing",
            because="epilogs or processes still hold its nodes",
            would_change="the epilogs end",
        )
