"""The drain that Kubernetes' side wants for a Slurm node, as one table, and what to do about it.

Only two kinds of drains are ever changed or removed: those whose reason starts with ``k8s:``, and those
that ask for it by ``verify-undrain``. A node that is DOWN without a drain is left to Slurm's
ReturnToService, with two exceptions: the syncer set it down to requeue a job, or a controller waits
until no job can start there. In these cases it is drained, and its reason keeps why it is down. If
nothing is known about the Pod, nothing is decided.

Source: the Syncer's documents, "Slurm drains from Kubernetes", "Slurm downed nodes" and "NHC drain and HPC
verification"; docs/architecture.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sunk_events import base
from sunk_events.base import REASON_MAX
from sunk_events.nodesets import KubePodState
from sunk_slurm.down_reasons import PREFIX, REQUEUE, down_reason, keeps_down_reason, with_down_reason
from sunk_syncer.actions import (
    Action,
    DownNode,
    DrainNode,
    KubeInputs,
    ResumeNode,
    SlurmInputs,
    UndrainNode,
    gone_uid,
)

OVERDUE: Final = "k8s: pod deletion timeout"
TERMINATED: Final = "k8s: pod terminated"
CONDEMNED: Final = "k8s: pod pending deletion"
NOT_READY: Final = "k8s: pod not ready"
CORDON: Final = "k8s: cordon"
PREHOOK: Final = "k8s: prolog pre-hook failed"
"""Set by the node's own prolog, and ours to lift."""
VERIFY: Final = "verify-undrain"
"""Anywhere in a reason, whoever's: to be removed when the Node has passed its verification since."""
AHEAD_MAX_S: Final = 5.0
"""How far ahead of ours the verifier's clock may be."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One row of the table."""

    name: str
    holds: Callable[[KubeInputs], bool]
    reason: Callable[[KubePodState | None], str]


def _pod(holds: Callable[[KubePodState], bool]) -> Callable[[KubeInputs], bool]:
    return lambda kube: kube.pod is not None and holds(kube.pod)


def _cordon(pod: KubePodState | None) -> str:
    return f"cordon: {pod.cordon_reason}" if pod is not None and pod.cordon_reason else "cordon"


def _terminated(pod: KubePodState | None) -> str:
    return f"{TERMINATED}: {_cordon(pod)}" if pod is not None and pod.is_cordoned else TERMINATED


CAUSES: Final[tuple[Cause, ...]] = (
    Cause("overdue", lambda kube: kube.is_overdue, lambda _: OVERDUE),
    Cause("terminated", _pod(lambda pod: pod.phase in {"terminating", "gone"}), _terminated),
    Cause("condemned", _pod(lambda pod: pod.is_condemned), lambda _: CONDEMNED),
    Cause("not ready", _pod(lambda pod: not pod.is_ready), lambda _: NOT_READY),
    Cause("cordoned", _pod(lambda pod: pod.is_cordoned), lambda pod: f"{PREFIX} {_cordon(pod)}"),
)
"""What drains a node, and with which reason; the first that holds. Also the order of urgency."""


def cause(kube: KubeInputs) -> Cause | None:
    """Return the first cause that holds."""
    return next((row for row in CAUSES if row.holds(kube)), None)


def urgency(kube: KubeInputs) -> int:
    """Return how urgent the drain is; 0 if no cause holds."""
    found = cause(kube)
    return 0 if found is None else len(CAUSES) - CAUSES.index(found)


def is_ours(slurm: SlurmInputs) -> bool:
    """Whether the node carries a drain that we may change."""
    return slurm.state.is_drain and slurm.reason.startswith(PREFIX)


def wanted(kube: KubeInputs, reason_now: str) -> str | None:
    """Return the reason with which the node must be drained; None if Kubernetes' side wants no drain.

    Args:
        kube: Kubernetes' side.
        reason_now: What stands there. A drain for a Pod that went stays until the new one is ready, one for
            a Pod that was overdue until that Pod is known to be gone.
    """
    if reason_now.startswith(OVERDUE) and (kube.is_pod_leaving or not kube.are_placements_known):
        return reason_now
    found = cause(kube)
    if found is None:
        return None
    reason = found.reason(kube.pod)[:REASON_MAX]
    if reason == NOT_READY and reason_now.startswith(TERMINATED):
        return reason_now
    return reason


def because(kube: KubeInputs, reason: str) -> base.Cause:
    """Return the event that caused a drain for *reason*, or the end of that drain."""
    if reason.startswith(OVERDUE):
        return kube.placement_event
    return kube.lock_event if reason.startswith(PREHOOK) else kube.pod_event


def decide(slurm: SlurmInputs, kube: KubeInputs, *, prehook_pause_s: float) -> tuple[Action, ...]:
    """Return the actions after which the Slurm node's drain is what Kubernetes' side wants.

    Args:
        slurm: A fresh look at the node.
        kube: The other side, from complete views.
        prehook_pause_s: How long a failed prolog's drain stays at least.
    """
    ours = is_ours(slurm)
    want = wanted(kube, slurm.reason if ours else "")
    if want is None:
        may_lift = ours and _may_lift(slurm, kube, prehook_pause_s)
        if _is_down_for_requeue(slurm):
            return (ResumeNode(slurm.node, because(kube, slurm.reason)),) if may_lift or not ours else ()
        if keeps_down_reason(slurm.reason, is_down=slurm.state.is_down):
            return ()  # Slurm would forget why it is down; with a resume the drain goes too.
        may_undrain = may_lift or _is_verified(slurm, kube)
        return (UndrainNode(slurm.node, because(kube, slurm.reason)),) if may_undrain else ()
    if slurm.state.is_down:
        if not slurm.state.is_drain and not shall_be_empty(kube):
            return ()
        want = with_down_reason(want, slurm.reason, limit=REASON_MAX)
    is_foreign = slurm.state.is_drain and not ours
    is_as_wanted = is_foreign or (ours and slurm.reason == want)
    drains = () if is_as_wanted else (DrainNode(slurm.node, want, because(kube, want)),)
    return drains + _downs(slurm, kube)


def _is_down_for_requeue(slurm: SlurmInputs) -> bool:
    """Whether the syncer set the node down only to requeue a job. It may have drained it since."""
    return slurm.state.is_down and down_reason(slurm.reason).startswith(REQUEUE)


def shall_be_empty(kube: KubeInputs) -> bool:
    """Whether the node must take no more jobs: its Pod must go, or its Node is cordoned.

    One that is down may come back at any time, with a job, between the look at it and its Pod's deletion.
    """
    return kube.pod is not None and (kube.pod.is_condemned or kube.pod.is_cordoned)


def _downs(slurm: SlurmInputs, kube: KubeInputs) -> tuple[Action, ...]:
    """Set a node down whose Pod is gone, and slurmd with it, once.

    It is drained by now: the reason that stands there stays, and so does one that somebody wrote just now.
    """
    if not gone_uid(kube.pod) or kube.is_downed or slurm.state.is_down:
        return ()
    return (DownNode(slurm.node, None, kube.pod_event),)


def _is_verified(slurm: SlurmInputs, kube: KubeInputs) -> bool:
    """Whether the drain waits for a verification that has passed since; of unknown age it waits on.

    The two were written by two clocks and are compared by a third: the pass has to be newer whichever of ours
    and slurmctld's is right. One that is dated ahead of now would be newer than every drain until then.
    """
    if kube.pod is None or not slurm.state.is_drain or VERIFY not in slurm.reason:
        return False
    age_s = min(slurm.reason_age_s, slurm.reason_age_s - slurm.clock_ahead_s)
    return -AHEAD_MAX_S <= kube.verified_age_s < age_s < float("inf")


def _may_lift(slurm: SlurmInputs, kube: KubeInputs, prehook_pause_s: float) -> bool:
    """Whether the cause of one of our drains, which nothing wants now, is known to be gone."""
    if slurm.reason.startswith(OVERDUE):
        return True  # Its placement says so itself, whatever NodeSet the node is in.
    if kube.pod is None:
        return False  # No NodeSet knows it: the user that drained it knew more than we do.
    if slurm.reason.startswith(PREHOOK):
        # Each node of a NodeSet has a lock on the bus: one that is missing is not known.
        is_free = kube.lock is not None and not kube.lock.in_the_way
        return is_free and slurm.reason_age_s >= prehook_pause_s
    return True
