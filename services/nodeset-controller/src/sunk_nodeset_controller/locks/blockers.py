"""Why a Pod in the way of a lock is still there, for the drain's reason and for `explain`. Pure.

Source: Kubernetes, "Pod Lifecycle", termination of Pods: the deletion timestamp is the moment at which the
grace period ends, not the one at which somebody asked.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

import msgspec

from sunk_events.base import REASON_MAX
from sunk_events.requests import BlockingPod
from sunk_kube.pods import Pod
from sunk_nodeset_controller.locks.pods_in_the_way import may_run

NAMED: Final = 10
"""So many Pods are named; the rest are as much in the way."""


class Refusal(msgspec.Struct, frozen=True):
    """An eviction that the API server refused."""

    since: datetime
    """When it was first asked for."""
    because: str
    """The API server's reason."""


def blocking(
    pods: Iterable[Pod],
    *,
    refused: Mapping[str, Refusal],
    placed: Mapping[str, int | None],
    unheard: Collection[int] = (),
    undecided: Mapping[str, str] = MappingProxyType({}),
    now: datetime,
) -> tuple[BlockingPod, ...]:
    """Return the first few of *pods*, which are in the way, with what keeps each.

    Args:
        pods: Those in the way.
        refused: Evictions that were not done, by the Pod's uid.
        placed: The placeholder job of each Pod that Slurm places, by the Pod's uid.
        unheard: The placeholder jobs of which it is not known now whether they run.
        undecided: Why it is not known whether a Pod is a DaemonSet's, by the Pod's uid.
        now: What "for how long" is counted to.
    """
    first = sorted(pods, key=lambda pod: pod.key)[:NAMED]
    return tuple(
        _unknown_daemon(pod, undecided[pod.metadata.uid])
        if pod.metadata.uid in undecided
        else _blocking_pod(pod, refused.get(pod.metadata.uid), placed, unheard, now)
        for pod in first
    )


def _unknown_daemon(pod: Pod, why: str) -> BlockingPod:
    because = f"it is not known whether its DaemonSet exists, so it is not evicted: {why}"
    return BlockingPod(pod=pod.key, because=because[:REASON_MAX])


def _blocking_pod(
    pod: Pod,
    refusal: Refusal | None,
    placed: Mapping[str, int | None],
    unheard: Collection[int],
    now: datetime,
) -> BlockingPod:
    meta = pod.metadata
    if (job := placed.get(meta.uid)) in unheard:
        return BlockingPod(pod=pod.key, because=f"the syncer does not say whether its job {job} still runs")
    if meta.deletion_timestamp is not None:
        because = _leaving(pod, meta.deletion_timestamp, now)
        return BlockingPod(pod=pod.key, since=pod.deletion_requested, because=because)
    if meta.uid in placed:
        job = placed[meta.uid]
        because = f"its placeholder job {job} no longer runs here" if job else "it has no placeholder job"
        return BlockingPod(pod=pod.key, because=because)
    if refusal is not None:
        return BlockingPod(pod=pod.key, since=refusal.since, because=refusal.because[:REASON_MAX])
    return BlockingPod(pod=pod.key, because="it is not evicted yet")


def _leaving(pod: Pod, ends: datetime, now: datetime) -> str:
    """Return what keeps a Pod that was asked to go and would have to be gone by *ends*."""
    finalizers = pod.metadata.finalizers
    if finalizers and (not may_run(pod) or now > ends):
        return f"finalizer {', '.join(finalizers)}"[:REASON_MAX]
    if now <= ends:
        return f"grace period of {pod.metadata.deletion_grace_period_seconds or 0} s"
    return "its kubelet has not ended it in its grace period"
