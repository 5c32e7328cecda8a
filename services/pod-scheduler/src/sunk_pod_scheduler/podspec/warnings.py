"""What a valid Pod asks for without effect, or at a risk: it is placed all the same, and Events report that.

Source: SUNK's documents, "Known limitations"; Kubernetes, "CPU management policies", "Pod QoS classes".
"""

from typing import Final

import msgspec

from sunk_kube.pods import Container, Pod, PodSpec
from sunk_kube.quantity import number
from sunk_kube.wellknown import PREFIX
from sunk_pod_scheduler.podspec.annotations import OLD_SHARED_OF, SHARED_OF
from sunk_pod_scheduler.podspec.unsupported import without_effect
from sunk_pod_scheduler.podspec.validation import ValidatedPod
from sunk_pod_scheduler.reasons import PodReason

EXCLUSIVE: Final = PREFIX + "exclusive"
_BASIC: Final = ("cpu", "memory")


class PodWarning(msgspec.Struct, frozen=True):
    """An Event of type Warning."""

    reason: PodReason
    message: str


def warnings(pod: Pod, wanted: ValidatedPod) -> tuple[PodWarning, ...]:
    """Return what the user of *pod* had better know."""
    found: list[PodWarning] = []
    if unheard := without_effect(pod.spec):
        text = f"{', '.join(unheard)}: no effect, because Slurm chooses the Node"
        found.append(PodWarning(PodReason.NO_EFFECT, text))
    if pinned := _pinned(pod.spec):
        text = (
            f"container {pinned[0]} is Guaranteed with whole CPUs: under the kubelet's static CPU policy it "
            "gets CPUs that Slurm may give to others, and the node is drained; set the CPU limit above the "
            "request, or request a fraction"
        )
        found.append(PodWarning(PodReason.STATIC_CPUS, text))
    if text := _shared_gpus(wanted):
        text = f"{text}; Slurm and the kubelet choose GPUs independently of each other"
        found.append(PodWarning(PodReason.SHARED_GPUS, text))
    old = pod.metadata.annotations.get(EXCLUSIVE, "").strip().lower()
    if old in OLD_SHARED_OF:
        text = f"{EXCLUSIVE}: {old} is an old boolean value; write one of {', '.join(SHARED_OF)}"
        if wanted.gpus and not OLD_SHARED_OF[old]:
            text += "; for a Pod with GPUs it means user"
        found.append(PodWarning(PodReason.OLD_ANNOTATION, text))
    return tuple(found)


def _shared_gpus(wanted: ValidatedPod) -> str:
    """Return whose jobs may be given the Pod's GPUs; empty where nobody's may."""
    if not wanted.gpus or wanted.requested.shared == SHARED_OF["none"]:
        return ""
    if wanted.requested.shared == SHARED_OF["ok"]:
        return f"{EXCLUSIVE}: ok: any Slurm job may be given the Pod's GPUs (use user or none)"
    if wanted.identity.is_own:
        user = wanted.identity.user_id
        return (
            f"{PREFIX}user-id: Slurm jobs of user {user} may be given the Pod's GPUs (use {EXCLUSIVE}: none)"
        )
    return ""


def _pinned(spec: PodSpec) -> tuple[str, ...]:
    """Return the containers that the kubelet's static policy gives whole CPUs of their own."""
    running = [*spec.containers, *(one for one in spec.init_containers if one.restart_policy == "Always")]
    everyone = (*spec.containers, *spec.init_containers)
    try:
        if not all(_is_guaranteed(container) for container in everyone):
            return ()
        return tuple(one.name for one in running if number(one.resources.requests["cpu"]) % 1 == 0)
    except (ValueError, ArithmeticError):
        return ()


def _is_guaranteed(container: Container) -> bool:
    requests, limits = container.resources.requests, container.resources.limits
    return all(
        name in requests and name in limits and number(requests[name]) == number(limits[name]) > 0
        for name in _BASIC
    )
