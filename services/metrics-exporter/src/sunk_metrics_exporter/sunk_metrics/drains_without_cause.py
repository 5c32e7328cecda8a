"""Drains of ours that stand although nothing on the bus wants them any more.

This looks at the syncer from outside, as it is the syncer that fails where a drain outlives its cause: what
counts as a cause is written down here again, from the documents. What must stay true: where a cause cannot
be ruled out the drain has one; a drain of somebody else is none of ours.

Source: the Syncer's documents, "Slurm drains from Kubernetes".
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_metrics_exporter.sunk_metrics.drain_causes import OURS, cause_of
from sunk_slurm.down_reasons import keeps_down_reason

_LEAVING: Final = frozenset({"terminating", "gone"})


class KubernetesSide(msgspec.Struct, frozen=True):
    """What the bus knows of Kubernetes' side, by Slurm node."""

    pods: Mapping[str, KubePodState]
    locks: Mapping[str, LockState] = {}
    held_by: frozenset[str] = frozenset()
    """Nodes with a Pod whose job is about to end, or has."""


def kubernetes_side(
    pods: Iterable[KubePodState], locks: Iterable[LockState], placements: Iterable[PlacementState]
) -> KubernetesSide:
    """Return Kubernetes' side."""
    held = (one for one in placements if one.is_pod_present and (one.is_overdue or one.phase == "ending"))
    return KubernetesSide(
        pods={pod.pod: pod for pod in pods},
        locks={lock.node: lock for lock in locks},
        held_by=frozenset(one.node for one in held),
    )


def cause_lost(node: SlurmNodeState, side: KubernetesSide) -> tuple[str, datetime] | None:
    """Return the cause that a drain of ours had, and since when it is gone at the latest; else None."""
    if not node.is_drain or not node.reason.startswith(OURS):
        return None
    if keeps_down_reason(node.reason, is_down=node.is_down):
        return None  # It stays until the node is back.
    pod, lock = side.pods.get(node.node), side.locks.get(node.node)
    if pod is None or _is_wanted(pod) or node.node in side.held_by or (lock and lock.in_the_way):
        return None  # Of a node without a Pod nothing is known: nobody lifts that drain.
    moments = [node.reason_changed or node.changed, pod.changed, *([lock.changed] if lock else ())]
    return cause_of(node).cause, max(moments)


def _is_wanted(pod: KubePodState) -> bool:
    return pod.is_cordoned or not pod.is_ready or pod.is_condemned or pod.phase in _LEAVING
