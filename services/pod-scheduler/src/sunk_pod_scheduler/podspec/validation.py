"""Whether a Pod can be passed to Slurm: what to ask for, or every reason why not, all at once.

A refusal blocks until the Pod changes, so it names the manifest's own fields.

Source: SUNK's documents, "Configure a Pod for scheduling".
"""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import msgspec

from sunk_kube.pods import Pod, PodSpec
from sunk_kube.wellknown import PREFIX
from sunk_pod_scheduler.podspec import annotations, job_size, pod_requests
from sunk_pod_scheduler.podspec.annotations import JobOptions
from sunk_pod_scheduler.podspec.job_size import Size
from sunk_pod_scheduler.podspec.namespace_policy import (
    Identity,
    Policy,
    by_priority_class,
    completed,
    identity,
    refusals,
)
from sunk_pod_scheduler.podspec.scopes import PodScope
from sunk_pod_scheduler.podspec.unsupported import without_effect
from sunk_slurm.gres import gpu_type

TERMINATION_OFFSET_S: Final = 5
"""Before KillWait, when the placeholder's script and we give a Pod up."""
GRACE_DEFAULT_S: Final = 30
"""What the API server fills in."""
RESOURCE_GPU: Final = "nvidia.com/gpu"
GPU_RESOURCES: Final = (RESOURCE_GPU, "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
UNCOUNTED_RESOURCES: Final = ("rdma/ib",)
LABEL_GPU_MODEL: Final = "gpu.nvidia.com/model"
SOME_MAX: Final = 256
"""Of containers, tolerations, or whatever else a Pod has a list of."""
MORE_MAX: Final = 2048
"""Of what each of these may have a list of, all together."""
MOST: Final = 1 << 63
"""Of anything. Slurm counts in 64 bits; Kubernetes cuts off here too."""
_REQUESTS: Final = "spec.containers[].resources.requests"
_LIMITS: Final = "spec.containers[].resources.limits."
_GIVEN_IN: Final = {"cpu": (Decimal(1), ""), "memory": (Decimal(1 << 20), " MiB")}
"""What Slurm gives one of, and its name."""
_SHOWN: Final = 80


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that a Pod is judged by."""

    kill_wait_s: float = 30.0
    """slurm.conf's KillWait."""
    policy: Policy = Policy()
    pod_scope: PodScope | None = None
    """Which Pods are ours since we lead; None: all that are looked at."""
    refuses_pod_affinity: bool = False
    """What a Pod requires of other Pods' places refuses it; False: it is told that Slurm does not heed it."""
    requires_limits: tuple[str, ...] = ()
    """Of ``cpu`` and ``memory``: a container without that limit, or limits of more than Slurm gives, refuse a
    Pod that may have Slurm's jobs beside it."""
    gpu_types: Mapping[str, str] = {}
    """GRES type by the value of ``gpu.nvidia.com/model``; empty: GPUs are asked for without a type."""
    spells_gpu_types: bool = False
    """Other models are spelled as those of NodeSets that have their GPUs from Nodes."""
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    """What Slurm counts as GPUs."""
    uncounted_resources: tuple[str, ...] = UNCOUNTED_RESOURCES
    """What Slurm does not count, for there is enough of it; it would give any other to two at once."""


class ValidatedPod(msgspec.Struct, frozen=True, kw_only=True):
    """What a valid Pod asks of Slurm."""

    cpus: int
    memory_mib: int
    gpus: int = 0
    gpu_type: str = ""
    identity: Identity
    requested: JobOptions = JobOptions()
    priority_class: str = ""
    """The PriorityClass by which it has its QoS; empty where it has it by other means."""


def validate(pod: Pod, rules: Rules) -> ValidatedPod | tuple[str, ...]:
    """Return what *pod* asks for, or everything that is wrong with it, in the manifest's order.

    What there is too much of is not read at all: nobody waits because one Pod is large.
    """
    if too_many := _too_many(pod.spec):
        return too_many
    requested, problems = annotations.read(pod.metadata.annotations)
    namespace = pod.metadata.namespace
    grant = rules.policy.grant(namespace)
    priority_class = pod.spec.priority_class_name
    qos, not_granted = by_priority_class(rules.policy, grant, namespace, priority_class, requested)
    needed, unreadable = _needed(pod.spec)
    gpus = sum((needed.get(name, Decimal(0)) for name in rules.gpu_resources), Decimal(0))
    kind, untyped = _gpu_type(pod.spec, rules) if gpus else ("", ())
    everything = (
        *problems,
        *refusals(rules.policy, grant, namespace, requested),
        *not_granted,
        *unreadable,
        *(() if unreadable else _zero(needed, gpus)),
        *_uncounted(needed, rules),
        *untyped,
        *_claims(pod.spec),
        *(_unheard(pod.spec) if rules.refuses_pod_affinity else ()),
        *(
            problem
            for name in (rules.requires_limits if _is_beside_jobs(rules, requested, gpus) else ())
            for problem in _unlimited(pod.spec, needed, name)
        ),
        *_grace(pod.spec, rules.kill_wait_s),
    )
    if everything:
        return everything
    size = job_size.needed(needed, rules.gpu_resources)
    return ValidatedPod(
        cpus=size.cpus,
        memory_mib=size.memory_mib,
        gpus=size.gpus,
        gpu_type=kind,
        identity=identity(rules.policy, requested),
        requested=completed(grant, requested, qos),
        priority_class=priority_class if qos else "",
    )


def size(spec: PodSpec, rules: Rules) -> Size | None:
    """Return what a Pod takes of its node, valid or not; None where its requests cannot be counted."""
    if _too_many(spec):
        return None
    needed, unreadable = _needed(spec)
    if unreadable or any(amount > MOST for amount in needed.values()):
        return None
    return job_size.needed(needed, rules.gpu_resources)


def _too_many(spec: PodSpec) -> tuple[str, ...]:
    containers = (*spec.containers, *spec.init_containers)
    affinity = spec.affinity.node_affinity if spec.affinity else None
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required else ()
    wishes = [one for term in terms for one in (*term.match_expressions, *term.match_fields)]
    some = {
        "spec.containers and spec.initContainers": len(containers),
        "spec.nodeSelector": len(spec.node_selector),
        "spec.affinity.nodeAffinity: terms and expressions": len(terms) + len(wishes),
        "spec.tolerations": len(spec.tolerations),
        "spec.topologySpreadConstraints": len(spec.topology_spread_constraints),
        "spec.resourceClaims": len(spec.resource_claims),
        "spec.containers[].ports": sum(len(one.ports) for one in containers),
    }
    more = {
        _REQUESTS: sum(len(one.resources.requests) for one in containers),
        "spec.affinity.nodeAffinity: values": sum(len(one.values) for one in wishes),
    }
    return (
        *(f"{field}: more than {SOME_MAX}" for field, count in some.items() if count > SOME_MAX),
        *(f"{field}: more than {MORE_MAX}" for field, count in more.items() if count > MORE_MAX),
    )


def _needed(spec: PodSpec) -> tuple[Mapping[str, Decimal], tuple[str, ...]]:
    try:
        return pod_requests.requests(spec), ()
    except (ValueError, ArithmeticError) as error:
        return {}, (f"{_REQUESTS}: {error or 'cannot be counted'}",)


def _uncounted(needed: Mapping[str, Decimal], rules: Rules) -> tuple[str, ...]:
    """Return what to say of resources of device plugins (those with a slash) that Slurm does not know of."""
    known = {*rules.gpu_resources, *rules.uncounted_resources}
    return tuple(
        f"{_REQUESTS}.{name}: Slurm does not count it; an administrator may add it to the scheduler's "
        "GPU_RESOURCES or UNCOUNTED_RESOURCES"
        for name, amount in sorted(needed.items())
        if "/" in name and name not in known and amount > 0
    )


def _zero(needed: Mapping[str, Decimal], gpus: Decimal) -> tuple[str, ...]:
    unset = [name for name in ("cpu", "memory") if needed.get(name, Decimal(0)) <= 0]
    absurd = [name for name in ("cpu", "memory") if needed.get(name, Decimal(0)) > MOST]
    absurd += [RESOURCE_GPU] if gpus > MOST else []
    return (
        *(f"{_REQUESTS}.{name}: must be set and not be zero" for name in unset),
        *(f"{_REQUESTS}.{name}: is more than any node has" for name in absurd),
    )


def _claims(spec: PodSpec) -> tuple[str, ...]:
    """Return what to say of devices that are claimed: Slurm would not count them, and give them twice."""
    if not spec.resource_claims:
        return ()
    names = ", ".join(claim.name for claim in spec.resource_claims)[:_SHOWN]
    return (f"spec.resourceClaims ({names}): Slurm does not know claimed devices; request {RESOURCE_GPU}",)


def _unheard(spec: PodSpec) -> tuple[str, ...]:
    fields = without_effect(spec, is_required=True)
    return tuple(f"{field}: has no effect, because Slurm chooses the Node: remove it" for field in fields)


def _is_beside_jobs(rules: Rules, requested: JobOptions, gpus: Decimal) -> bool:
    """Whether Slurm may give the Pod's node to a job too; GPUs by themselves share with the user alone."""
    shared = requested.shared or (annotations.SHARED_OF["user"] if gpus else ())
    if shared == annotations.SHARED_OF["user"]:
        return identity(rules.policy, requested).is_own
    return shared != annotations.SHARED_OF["none"]


def _unlimited(spec: PodSpec, needed: Mapping[str, Decimal], name: str) -> tuple[str, ...]:
    """Return what to say of containers that may take more of *name* than Slurm gives: whole CPUs and MiB."""
    field, where = _LIMITS + name, f"if Slurm jobs may share the node; or set {PREFIX}exclusive: none"
    is_whole = spec.resources is not None and name in spec.resources.limits
    everyone = () if is_whole else (*spec.containers, *spec.init_containers)
    free = ", ".join(one.name for one in everyone if name not in one.resources.limits)[:_SHOWN]
    if free:
        return (f"{field} ({free}): must be set {where}",)
    one, unit = _GIVEN_IN[name]
    try:
        limit, request = pod_requests.limit(spec, name), needed.get(name, Decimal(0))
    except (ValueError, ArithmeticError) as error:
        return (f"{field}: {error or 'cannot be counted'}",)
    if request > MOST or limit <= math.ceil(request / one) * one:
        return ()
    taken = f"{(limit / one).normalize():f}{unit}" if limit <= MOST else "all"
    return (
        (
            f"{field}: {taken} is more than the {math.ceil(request / one)}{unit} that Slurm gives: "
            f"lower it {where}"
        ),
    )


def grace_s(spec: PodSpec) -> int:
    """Return how many seconds a Pod's containers have after SIGTERM."""
    given = spec.termination_grace_period_seconds
    return GRACE_DEFAULT_S if given is None else given


def _grace(spec: PodSpec, kill_wait_s: float) -> tuple[str, ...]:
    if grace_s(spec) < 1:
        return ("termination grace period must be at least 1s: with 0 a Pod is gone before its containers",)
    if grace_s(spec) < kill_wait_s - TERMINATION_OFFSET_S:
        return ()
    return ("termination grace period must be less than Slurm KillWait - 5s",)


def _gpu_type(spec: PodSpec, rules: Rules) -> tuple[str, tuple[str, ...]]:
    """Return the GRES type of the one GPU model that *spec* insists on, if it does."""
    models = _models(spec)
    if len(models) != 1 or not (rules.gpu_types or rules.spells_gpu_types):
        return "", ()
    (model,) = models
    if model not in rules.gpu_types and not rules.spells_gpu_types:
        known = ", ".join(sorted(rules.gpu_types))
        return "", (f"{LABEL_GPU_MODEL}: {model} is not a GPU type of this Slurm cluster; known: {known}",)
    return gpu_type(model, rules.gpu_types), ()


def _models(spec: PodSpec) -> set[str]:
    """Return the GPU models that *spec* allows, where it requires some; of several terms one must hold."""
    if model := spec.node_selector.get(LABEL_GPU_MODEL):
        return {model}
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or affinity.required is None:
        return set()
    models: set[str] = set()
    for term in affinity.required.node_selector_terms:
        of_term = [
            set(required.values)
            for required in term.match_expressions
            if required.key == LABEL_GPU_MODEL and required.operator == "In"
        ]
        if not of_term:
            return set()
        models |= of_term[0].intersection(*of_term[1:])
    return models
