"""The counts and conditions of a NodeSet; pure.

Source: SUNK's documents, NodeSet, "Status" (the table of columns).
"""

from collections import Counter
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from sunk_kube import wellknown as wk
from sunk_kube.nodesets import NodeSetStatus
from sunk_kube.objects import Condition, Pod, condition
from sunk_nodeset_controller.nodesets.model import Observed, Plan
from sunk_nodeset_controller.nodesets.template import pinned_node, template_hash

ACCEPTED: Final = "Accepted"
"""The NodeSet is carried out: its cluster is ours, its template is a Pod's."""
SCHEDULED: Final = "Scheduled"
"""As many Nodes carry its Pods as are wanted."""
READY: Final = "Ready"
"""Every wanted Pod is ready."""


def status(seen: Observed, found: Plan) -> NodeSetStatus:
    """Return the status to be written."""
    nodeset = seen.nodeset
    current = [pod for pod in seen.pods if not pod.is_over]
    desired = len(found.feasible) if nodeset.spec.replicas is None else nodeset.spec.replicas
    ready = sum(pod.is_ready and not pod.is_terminating for pod in current)
    is_known = not found.invalid
    counts = NodeSetStatus(
        observed_generation=nodeset.metadata.generation,
        replicas=len(current),
        selector=f"{wk.LABEL_NODESET}={nodeset.metadata.name}",
        desired_number_scheduled=desired if is_known else nodeset.status.desired_number_scheduled,
        number_feasible=len(found.feasible),
        current_number_scheduled=len(current),
        number_ready=ready,
        number_running=sum(_says(pod, wk.CONDITION_SLURM_RUNNING) for pod in current),
        number_drain=sum(_says(pod, wk.CONDITION_SLURM_DRAIN) for pod in current),
        number_misscheduled=sum(is_known and pinned_node(pod) not in found.feasible for pod in current),
        number_unavailable=max(desired - ready, 0),
        updated_number_scheduled=sum(_is_updated(pod, seen) for pod in current),
    )
    return replace(counts, conditions=_conditions(seen, found, counts))


def _says(pod: Pod, kind: str) -> bool:
    found = condition(pod.status.conditions, kind)
    return found is not None and found.status == "True"


def _is_updated(pod: Pod, seen: Observed) -> bool:
    return pod.metadata.annotations.get(wk.ANNOTATION_TEMPLATE_HASH) == template_hash(seen.nodeset)


def _conditions(seen: Observed, found: Plan, counts: NodeSetStatus) -> tuple[Condition, ...]:
    if found.invalid:
        made = (Condition(type=ACCEPTED, status="False", reason="Refused", message=found.invalid),)
    else:
        made = (
            Condition(type=ACCEPTED, status="True", reason="Accepted"),
            _scheduled(found, counts),
            _ready(counts),
        )
    return tuple(_kept(seen, one) for one in made)


def _scheduled(found: Plan, counts: NodeSetStatus) -> Condition:
    desired, current = counts.desired_number_scheduled, counts.current_number_scheduled
    if counts.number_feasible < desired or not counts.number_feasible:
        message = f"{counts.number_feasible} of {desired} wanted Nodes are feasible{_why(found)}"
        return Condition(type=SCHEDULED, status="False", reason="TooFewFeasibleNodes", message=message)
    if current < desired:
        message = f"{current} of {desired} Pods exist"
        return Condition(type=SCHEDULED, status="False", reason="PodsMissing", message=message)
    return Condition(type=SCHEDULED, status="True", reason="AllScheduled")


def _why(found: Plan) -> str:
    """Say why the other Nodes are not, the most frequent reason first."""
    reasons = Counter(found.obstacles.values()).most_common(5)
    return "".join(f"; {count} {'Node' if count == 1 else 'Nodes'}: {why}" for why, count in reasons)


def _ready(counts: NodeSetStatus) -> Condition:
    desired, ready = counts.desired_number_scheduled, counts.number_ready
    if desired and ready >= desired:
        return Condition(type=READY, status="True", reason="AllReady")
    return Condition(
        type=READY, status="False", reason="PodsNotReady", message=f"{ready} of {desired} Pods are ready"
    )


def _kept(seen: Observed, made: Condition) -> Condition:
    """Return *made* with the time since when it has its status."""
    before = condition(seen.nodeset.status.conditions, made.type)
    since: datetime | None = seen.now
    if before is not None and before.status == made.status:
        since = before.last_transition_time
    return replace(made, last_transition_time=since, observed_generation=seen.nodeset.metadata.generation)
