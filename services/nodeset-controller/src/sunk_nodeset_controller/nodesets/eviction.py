"""What an update does not wait for: jobs that a rule requeues, and Pods that Slurm has placed; pure.

What must stay true: only a node that is condemned for an update, and drained already, is cleared: what is
requeued or evicted cannot land there again. Placeholder jobs are never requeued; their Pods are evicted.

Source: SUNK's release notes 6.9, nodeset update job preemption: by running time, partition or QoS.
"""

from datetime import datetime

from sunk_events.jobs import SlurmJobState
from sunk_kube.bodies import EventText
from sunk_kube.nodesets import RequeueRule
from sunk_nodeset_controller.nodesets.members import Member
from sunk_nodeset_controller.nodesets.model import Action, EvictPlacedPod, Observed, RequeueJobOn
from sunk_nodeset_controller.reasons import EvictionReason


def cleared(seen: Observed, found: list[Member]) -> tuple[Action, ...]:
    """Return what is to leave the nodes that an update waits for, in a stable order."""
    rolling = seen.nodeset.spec.rolling
    waiting = [one.name for one in found if one.condemned == "update" and one.slurm and one.slurm.is_drain]
    actions: list[Action] = []
    for node in sorted(waiting):
        placed_pods = seen.placed_pods.get(node, ())
        if rolling.placeholders == "evict":
            actions += [
                EvictPlacedPod(placed_pod.namespace, placed_pod.pod, placed_pod.uid, node, placed_pod.job)
                for placed_pod in placed_pods
            ]
        if rolling.requeue is not None:
            placeholders = {placed_pod.job for placed_pod in placed_pods}
            actions += [
                RequeueJobOn(job.job, node)
                for job in seen.jobs.get(node, ())
                if job.job not in placeholders and matches(rolling.requeue, job, seen.now)
            ]
    return tuple(actions)


def update_event(nodeset: str, placed_pod: EvictPlacedPod) -> EventText:
    """Return why *placed_pod* is about to be evicted for the NodeSet with the key *nodeset*."""
    job = "" if placed_pod.job is None else f", of Slurm job {placed_pod.job},"
    note = (
        f"an update of NodeSet {nodeset} empties Slurm node {placed_pod.node}: "
        f"Pod {placed_pod.namespace}/{placed_pod.name}{job} is evicted"
    )
    return EventText(reason=EvictionReason.EVICTING_FOR_UPDATE, action="Evicting", note=note, type="Warning")


def matches(rule: RequeueRule, job: SlurmJobState, now: datetime) -> bool:
    """Whether *rule* says that *job* is not waited for. A job without a start has not run for any time."""
    if job.partition in rule.partitions or job.qos in rule.qos:
        return True
    if rule.running_seconds is None or job.started is None:
        return False
    return (now - job.started).total_seconds() > rule.running_seconds
