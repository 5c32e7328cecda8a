"""The counts and conditions of a NodeSet; pure.

Source: SUNK's documents, NodeSet, "Status" (the table of columns).
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from sunk_kube import wellknown as wk
from sunk_kube.nodesets import AWAITED_MAX, AwaitedGpus, NodeSetStatus
from sunk_kube.objects import Condition, condition
from sunk_kube.pods import Pod
from sunk_nodeset_controller.metadata import cut
from sunk_nodeset_controller.nodesets.model import Observed, Plan
from sunk_nodeset_controller.nodesets.rollout import UPDATED
from sunk_nodeset_controller.nodesets.template import pinned_node, template_hash
from sunk_nodeset_controller.nodesets.waiting_message import (
    MESSAGE_MAX,
    condemned_names,
    held_up,
    named,
    waits,
)
from sunk_nodeset_controller.reasons import NodeSetReason

ACCEPTED: Final = "Accepted"
"""The NodeSet is carried out: its cluster is ours, its template is a Pod's."""
SCHEDULED: Final = "Scheduled"
"""As many Nodes carry its Pods as are wanted."""
READY: Final = "Ready"
"""Every wanted Pod is ready."""
SLURM_KNOWN: Final = "SlurmKnown"
"""What Slurm says of the nodes is known and of now."""
_OURS: Final = frozenset({ACCEPTED, SCHEDULED, UPDATED, READY, SLURM_KNOWN})
REASONS_MAX: Final = 5
"""Groups of reasons that a message names; the rest are counted."""
_STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Why a container waits that only has to start."""


def status(seen: Observed, found: Plan, generation: int | None = None) -> NodeSetStatus:
    """Return the status to be written; *generation* is the one that was planned, if it has changed since."""
    nodeset = seen.nodeset
    planned = nodeset.metadata.generation if generation is None else generation
    current = [pod for pod in seen.pods if not pod.is_over]
    desired = len(found.feasible) if nodeset.spec.replicas is None else nodeset.spec.replicas
    ready = sum(pod.is_ready and not pod.is_terminating for pod in current)
    expected = _expected(seen, found)
    is_known = not found.invalid
    revision = template_hash(nodeset)
    counts = NodeSetStatus(
        observed_generation=planned,
        replicas=len(current),
        selector=f"{wk.LABEL_NODESET}={nodeset.metadata.name}",
        desired_number_scheduled=desired if is_known else nodeset.status.desired_number_scheduled,
        number_feasible=len(found.feasible),
        current_number_scheduled=len(current),
        number_ready=ready,
        number_running=sum(_is_true(pod, wk.CONDITION_SLURM_RUNNING) for pod in current),
        number_drain=sum(_is_true(pod, wk.CONDITION_SLURM_DRAIN) for pod in current),
        number_misscheduled=sum(is_known and pinned_node(pod) not in found.feasible for pod in current),
        number_unavailable=max(expected - ready, 0),
        updated_number_scheduled=sum(_is_updated(pod, revision) for pod in current),
        number_condemned=len(condemned_names(seen)),
        update_revision=revision,
        gpus_awaited=_awaited(seen) if is_known else nodeset.status.gpus_awaited,
    )
    return replace(counts, conditions=_conditions(seen, found, counts))


def is_written(before: NodeSetStatus, after: NodeSetStatus) -> bool:
    """Whether *before*, in which others may have conditions of their own, says what *after* does."""

    def ours(written: NodeSetStatus) -> object:
        found = {one.type: msgspec.to_builtins(one) for one in written.conditions if one.type in _OURS}
        return msgspec.to_builtins(replace(written, conditions=())), found

    return ours(before) == ours(after)


def _awaited(seen: Observed) -> tuple[AwaitedGpus, ...]:
    """Return the Nodes whose GPUs are awaited, also in vain, so that the next leader does not begin anew."""
    ours = {node: one.since for node, one in seen.unread.items() if node not in seen.foreign}
    first = sorted(ours, key=lambda node: (ours[node], node))[:AWAITED_MAX]
    return tuple(AwaitedGpus(kube_node=node, since=ours[node]) for node in first)


def _expected(seen: Observed, found: Plan) -> int:
    """Return how many Pods shall be ready. One on a Node that is down, so that it does not fit, is one."""
    if seen.nodeset.spec.replicas is not None:
        return seen.nodeset.spec.replicas
    alive = (pod for pod in seen.pods if not pod.is_over and not pod.is_terminating)
    return len(found.feasible | {pinned_node(pod) for pod in alive})


def _is_true(pod: Pod, kind: str) -> bool:
    found = condition(pod.status.conditions, kind)
    return found is not None and found.status == "True"


def _is_updated(pod: Pod, revision: str) -> bool:
    return pod.metadata.annotations.get(wk.ANNOTATION_TEMPLATE_HASH) == revision


def _conditions(seen: Observed, found: Plan, counts: NodeSetStatus) -> tuple[Condition, ...]:
    if found.invalid:
        made = (
            NodeSetReason.REFUSED.condition(ACCEPTED, "False", found.invalid),
            NodeSetReason.REFUSED.condition(READY, "False", found.invalid),
            *([_known(seen)] if seen.doubt is not None else ()),
        )
    elif seen.nodeset.metadata.deletion_timestamp is not None:
        made = (_leaving(seen), _known(seen))
    else:
        made = (
            _accepted(found),
            _scheduled(seen, found, counts),
            _updated(seen, found, counts),
            _ready(seen, found, counts),
            _known(seen),
        )
    kept = tuple(_kept(seen, one, counts.observed_generation) for one in made)
    former = condition(seen.nodeset.status.conditions, UPDATED)
    if not found.invalid or former is None or former.status != "False":
        return kept
    return (*kept, former)  # Its time says when the update began that goes on with a corrected template.


def _accepted(found: Plan) -> Condition:
    if found.refused:
        return NodeSetReason.REFUSED.condition(ACCEPTED, "False", found.refused)
    return NodeSetReason.ACCEPTED.condition(ACCEPTED, "True")


def _leaving(seen: Observed) -> Condition:
    message = f"{len(seen.pods)} Pods are to be deleted{waits(seen)}"
    return NodeSetReason.BEING_DELETED.condition(READY, "False", message)


def _updated(seen: Observed, found: Plan, counts: NodeSetStatus) -> Condition:
    current, updated = counts.current_number_scheduled, counts.updated_number_scheduled
    if updated == current:
        return NodeSetReason.ALL_UPDATED.condition(UPDATED, "True")
    message = f"{updated} of {current} Pods have the current template{held_up(seen, found)}"
    return NodeSetReason.PODS_OUTDATED.condition(UPDATED, "False", message)


def _scheduled(seen: Observed, found: Plan, counts: NodeSetStatus) -> Condition:
    desired, current = counts.desired_number_scheduled, counts.current_number_scheduled
    why = _why(found) + _taken(seen)
    if any(found.obstacles.get(node) == one.why for node, one in seen.unread.items()):
        message = f"feasible Nodes: {counts.number_feasible}{why}"
        return NodeSetReason.GPUS_NOT_ANNOUNCED.condition(SCHEDULED, "False", message)
    is_none_wanted = seen.nodeset.spec.replicas == 0
    if counts.number_feasible < desired or not (counts.number_feasible or is_none_wanted):
        message = f"{counts.number_feasible} of {desired} wanted Nodes are feasible{why}"
        return NodeSetReason.TOO_FEW_FEASIBLE_NODES.condition(SCHEDULED, "False", message)
    if current < desired:
        message = f"{current} of {desired} Pods exist{_taken(seen)}"
        return NodeSetReason.PODS_MISSING.condition(SCHEDULED, "False", message)
    if unplaced := [words for pod in seen.pods if (words := _unplaced(pod))]:
        message = f"Pods are not on their Nodes yet{_grouped(unplaced, 'Pod')}"
        return NodeSetReason.PODS_UNSCHEDULABLE.condition(SCHEDULED, "False", message)
    message = f"feasible Nodes: {counts.number_feasible}{why}"
    return NodeSetReason.ALL_SCHEDULED.condition(SCHEDULED, "True", message)


def _why(found: Plan) -> str:
    """Say in groups why the other Nodes are not."""
    return _grouped(found.obstacles.values(), "Node")


def _taken(seen: Observed) -> str:
    """Say which names Pods of no NodeSet have."""
    names = sorted(seen.name_conflicts)
    return f"; other Pods have these names already: {named(names)}" if names else ""


def _grouped(reasons: Iterable[str], what: str) -> str:
    """Say each reason once and for how many it holds, the most frequent first."""
    groups = sorted(Counter(reasons).items(), key=lambda group: (-group[1], group[0]))
    named = [f"; {count} {what if count == 1 else what + 's'}: {why}" for why, count in groups[:REASONS_MAX]]
    if rest := sum(count for _, count in groups[REASONS_MAX:]):
        named.append(f"; {rest} more for other reasons")
    return "".join(named)


def _ready(seen: Observed, found: Plan, counts: NodeSetStatus) -> Condition:
    expected, ready = _expected(seen, found), counts.number_ready
    if ready >= expected and (expected or seen.nodeset.spec.replicas == 0):
        return NodeSetReason.ALL_READY.condition(READY, "True")
    why = _grouped(filter(None, (_unready(pod, seen) for pod in seen.pods)), "Pod")
    message = f"{ready} of {expected} Pods are ready{why}"
    return NodeSetReason.PODS_NOT_READY.condition(READY, "False", message)


def _unready(pod: Pod, seen: Observed) -> str:
    """Return why *pod* is not ready, where Kubernetes knows; nothing where it is, or will be by itself."""
    if pod.is_ready or pod.is_over or pod.is_terminating:
        return ""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waits = ((one.name, one.state.waiting.reason) for one in statuses if one.state.waiting is not None)
    named = (f"{name} {reason}" for name, reason in waits if reason not in _STARTING)
    return _unplaced(pod) or _down(pod, seen) or next(named, "")


def _down(pod: Pod, seen: Observed) -> str:
    """Return what is wrong with the Node of *pod*, if it is not there or not ready."""
    node = seen.nodes.get(pinned_node(pod))
    if node is None:
        return "its Node is gone"
    ready = condition(node.status.conditions, wk.CONDITION_READY)
    return "its Node is not ready" if ready is not None and ready.status != "True" else ""


def _unplaced(pod: Pod) -> str:
    """Return why *pod* is not on its Node: the scheduler's words, such as of a host port that is taken."""
    found = condition(pod.status.conditions, "PodScheduled")
    if found is None or found.status != "False" or pod.is_over or pod.is_terminating:
        return ""
    return cut(found.message or found.reason, MESSAGE_MAX)


def _known(seen: Observed) -> Condition:
    if seen.doubt is None:
        return NodeSetReason.SLURM_ANSWERS.condition(SLURM_KNOWN, "True")
    return seen.doubt.reason.condition(SLURM_KNOWN, "False", seen.doubt.message)


def _kept(seen: Observed, made: Condition, generation: int) -> Condition:
    """Return *made* with the time since when it has its status."""
    before = condition(seen.nodeset.status.conditions, made.type)
    since: datetime | None = seen.now
    if before is not None and before.status == made.status:
        since = before.last_transition_time
    return replace(made, last_transition_time=since, observed_generation=generation)
