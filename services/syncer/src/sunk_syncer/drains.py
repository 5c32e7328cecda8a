"""The drain that Kubernetes' side wants for a Slurm node, as one table, and what to do about it.

Only a reason that starts with ``k8s:`` is ever changed or removed; a node that is DOWN without a drain is
left to Slurm's ReturnToService; without knowledge of the Pod nothing is decided about it.

Source: the Syncer's documents, "Slurm drains from Kubernetes" and "Slurm downed nodes"; docs/architecture.
"""

from collections.abc import Callable
from typing import Final

from sunk_events.base import REASON_MAX
from sunk_events.nodesets import KubePodState
from sunk_syncer.model import Action, DownNode, DrainNode, KubeSide, SlurmSide, UndrainNode

PREFIX: Final = "k8s:"
OVERDUE: Final = "k8s: pod deletion timeout"
TERMINATED: Final = "k8s: pod terminated"
CONDEMNED: Final = "k8s: pod pending deletion"
NOT_READY: Final = "k8s: pod not ready"
CORDON: Final = "k8s: cordon"
PREHOOK: Final = "k8s: prolog pre-hook failed"
"""Set by the node's own prolog, and ours to lift."""


def _terminated(pod: KubePodState) -> str:
    return f"{TERMINATED}: {_cordon(pod)}" if pod.is_cordoned else TERMINATED


def _cordon(pod: KubePodState) -> str:
    return f"cordon: {pod.cordon_reason}" if pod.cordon_reason else "cordon"


CAUSES: Final[tuple[tuple[Callable[[KubePodState], bool], Callable[[KubePodState], str]], ...]] = (
    (lambda pod: pod.phase in {"terminating", "gone"}, _terminated),
    (lambda pod: pod.is_condemned, lambda _: CONDEMNED),
    (lambda pod: not pod.is_ready, lambda _: NOT_READY),
    (lambda pod: pod.is_cordoned, lambda pod: f"{PREFIX} {_cordon(pod)}"),
)
"""What of a Pod drains its node, and the reason; the first that holds. Before all of them: `OVERDUE`."""


def wanted(kube: KubeSide, reason_now: str) -> str | None:
    """Return the reason that the node should be drained with; None where nothing on our side wants a drain.

    Args:
        kube: Kubernetes' side.
        reason_now: What stands there. A drain for a Pod that went stays until the new one is ready.
    """
    if kube.is_overdue:
        return OVERDUE
    if kube.pod is None:
        return None
    pod = kube.pod
    reason = next((reason(pod) for holds, reason in CAUSES if holds(pod)), None)
    if reason == NOT_READY and reason_now.startswith(TERMINATED):
        return reason_now
    return None if reason is None else reason[:REASON_MAX]


def decide(slurm: SlurmSide, kube: KubeSide, *, prehook_pause_s: float) -> tuple[Action, ...]:
    """Return what brings the Slurm node's drain in line with Kubernetes' side.

    Args:
        slurm: A fresh look at the node.
        kube: The other side, from complete views.
        prehook_pause_s: How long a failed prolog's drain stays at least.
    """
    is_ours = slurm.state.is_drain and slurm.reason.startswith(PREFIX)
    want = wanted(kube, slurm.reason if is_ours else "")
    if want is None:
        return (UndrainNode(slurm.node),) if is_ours and _may_lift(slurm, kube, prehook_pause_s) else ()
    if slurm.state.is_down and not slurm.state.is_drain:
        return ()
    is_foreign = slurm.state.is_drain and not is_ours
    is_as_wanted = is_foreign or (is_ours and slurm.reason == want)
    drains = () if is_as_wanted else (DrainNode(slurm.node, want),)
    return drains + _downs(slurm, kube, None if is_foreign else want)


def _downs(slurm: SlurmSide, kube: KubeSide, reason: str | None) -> tuple[Action, ...]:
    """Set a node down whose Pod is gone, and slurmd with it, once."""
    is_gone = kube.pod is not None and kube.pod.phase == "gone"
    if not is_gone or kube.is_downed or slurm.state.is_down:
        return ()
    return (DownNode(slurm.node, reason),)


def _may_lift(slurm: SlurmSide, kube: KubeSide, prehook_pause_s: float) -> bool:
    """Whether the cause of a drain of ours is known to be gone, now that nothing wants it."""
    if slurm.reason.startswith(OVERDUE):
        return True  # Its placement says so itself, whatever NodeSet the node is in.
    if kube.pod is None:
        return False  # No NodeSet knows it: whoever drained it knew more than we do.
    if slurm.reason.startswith(PREHOOK):
        is_free = kube.lock is None or not kube.lock.in_the_way
        return is_free and slurm.reason_age_s >= prehook_pause_s
    return True
