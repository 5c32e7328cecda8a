"""Why a Node is locked, waits for its lock, or is free, and which Pods a lock would remove. Pure.

It answers before anything is done: it finds the Pods that would have to leave by the same rules as the
lock.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sunk_events.base import REASON_MAX
from sunk_events.requests import BlockingPod, Finding
from sunk_kube.pods import Pod
from sunk_nodeset_controller.locks.model import Holder, NodeLock
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy


def findings(
    lock: NodeLock, others: Sequence[Pod], kept: Sequence[BlockingPod], measure: EvictionPolicy
) -> tuple[Finding, ...]:
    """Return the findings about a Node's lock, the most important first.

    Args:
        lock: What stands on the Node.
        others: The Pods on it that a lock drives out.
        kept: The first few of them with what keeps them.
        measure: The taint, and who may stay.
    """
    waiting = [holder for holder in lock.holders if holder.granted is None]
    granted = [holder for holder in lock.holders if holder.granted is not None]
    found = [_waits(holder, kept) for holder in waiting]
    if granted:
        found.append(_held(lock, granted))
    if not lock.holders and lock.is_tainted:
        found.append(
            Finding(
                what="locked, and no job holds the lock",
                would_change="the nodeset-controller ends the lock after its linger time, or a job takes it",
            )
        )
    if not lock.is_tainted:
        found.append(Finding(what="not locked", would_change="a job that starts on it locks it"))
        found += _would_leave(others, measure)
    return tuple(found)


def _waits(holder: Holder, kept: Sequence[BlockingPod]) -> Finding:
    pods = "; ".join(f"{one.pod}: {one.because or 'in the way'}" for one in kept)
    return Finding(
        what=f"not locked for job {holder.job} yet ({holder.level})",
        since=holder.since,
        because=pods[:REASON_MAX],
        would_change="these Pods leave"
        if kept
        else "the nodeset-controller looks again and finds no Pod in the way",
    )


def _held(lock: NodeLock, granted: Iterable[Holder]) -> Finding:
    holders = sorted(granted, key=lambda holder: holder.job)
    jobs = ", ".join(str(holder.job) for holder in holders)
    since: datetime | None = min((one.granted for one in holders if one.granted), default=None)
    return Finding(
        what=f"{lock.value} for jobs {jobs}"[:REASON_MAX],
        since=since,
        because="the prologs of these jobs requested the lock, or Slurm runs them here",
        would_change="the lock of a job ends with its epilog, or when Slurm no longer has the job here",
    )


def _would_leave(others: Sequence[Pod], measure: EvictionPolicy) -> list[Finding]:
    """Return which Pods a lock would drive out; a daemon comes back at once where nothing keeps it away."""
    if not others:
        return []
    remover = "the nodeset-controller" if measure.taint.evicts else "Kubernetes"
    daemons = [pod.key for pod in others if _is_daemon(pod)]
    found = [
        Finding(
            what=f"a lock would have {remover} remove {len(others)} Pods",
            because=", ".join(sorted(pod.key for pod in others))[:REASON_MAX],
            would_change=f"a toleration of {measure.taint.key} lets a Pod stay",
        )
    ]
    if daemons:
        found.append(
            Finding(
                what=f"{len(daemons)} of these Pods belong to DaemonSets",
                because=", ".join(sorted(daemons))[:REASON_MAX],
                would_change="the templates of these DaemonSets tolerate the taint",
            )
        )
    return found


def _is_daemon(pod: Pod) -> bool:
    return any(owner.kind == "DaemonSet" and owner.controller for owner in pod.metadata.owner_references)
