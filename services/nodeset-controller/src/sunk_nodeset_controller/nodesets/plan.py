"""One step that brings a NodeSet closer to what it declares; pure.

What must stay true: one Pod a Node, whatever was done half-way; a Node belongs to one NodeSet; a Pod's
name stays while its Node does; planning twice on the same view plans the same.
"""

from datetime import timedelta

import msgspec

from sunk_kube import wellknown as wk
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node, Pod
from sunk_nodeset_controller.nodesets.feasible import obstacle, requests
from sunk_nodeset_controller.nodesets.model import CreatePod, Observed, Plan, ReplacePod
from sunk_nodeset_controller.nodesets.naming import pod_name
from sunk_nodeset_controller.nodesets.template import pinned_node, pod_spec


def plan(seen: Observed) -> Plan:
    """Return what to do now for one NodeSet."""
    if seen.refusal or seen.nodeset.metadata.deletion_timestamp is not None:
        return Plan(invalid=seen.refusal)
    try:
        spec = pod_spec(seen.nodeset, seen.lock_key)
        asked = requests(spec)
    except (msgspec.ValidationError, ValueError) as error:
        return Plan(invalid=f"spec.template.spec: {error}")
    obstacles = {
        node.metadata.name: why
        for node in seen.nodes
        if (why := _not_ours(seen, node) or obstacle(spec, asked, node))
    }
    feasible = [node for node in seen.nodes if node.metadata.name not in obstacles]
    replaced, again_s = _replaced(seen)
    return Plan(
        actions=(*replaced, *_created(seen, feasible)),
        again_s=again_s,
        feasible=frozenset(node.metadata.name for node in feasible),
        obstacles=obstacles,
    )


def is_wanted(nodeset: NodeSet | None, node: Node | None, lock_key: str) -> bool:
    """Whether *nodeset* would have a Pod on *node*, were there none."""
    if nodeset is None or node is None or nodeset.metadata.deletion_timestamp is not None:
        return False
    try:
        spec = pod_spec(nodeset, lock_key)
        return not obstacle(spec, requests(spec), node)
    except (msgspec.ValidationError, ValueError):
        return True  # Unknown is never absent.


def _not_ours(seen: Observed, node: Node) -> str:
    owner = seen.foreign.get(node.metadata.name)
    return f"belongs to NodeSet {owner}" if owner else ""


def _created(seen: Observed, feasible: list[Node]) -> tuple[CreatePod, ...]:
    """Return the Pods that are missing: on Nodes that were ours before, then by name."""
    occupied = {pinned_node(pod) for pod in seen.pods}
    free = [node for node in feasible if node.metadata.name not in occupied]
    free.sort(key=lambda node: (not remembered_name(node, seen.nodeset), node.metadata.name))
    wanted = len(free) if seen.nodeset.spec.replicas is None else seen.nodeset.spec.replicas - len(seen.pods)
    chosen = free[: max(wanted, 0)]
    names = {pod.metadata.name for pod in seen.pods} | seen.taken
    kept = {name: node for node in seen.nodes if (name := remembered_name(node, seen.nodeset))}
    made: list[CreatePod] = []
    for node in chosen:
        name = _name(seen.nodeset, node, names | {other for other in kept if kept[other] is not node})
        names.add(name)
        made.append(CreatePod(name, node.metadata.name))
    return tuple(made)


def _name(nodeset: NodeSet, node: Node, taken: set[str]) -> str:
    remembered = remembered_name(node, nodeset)
    if remembered and remembered not in taken:
        return remembered
    return pod_name(nodeset.prefix, node.metadata.name, node.internal_ip, taken)


def remembered_name(node: Node, nodeset: NodeSet) -> str:
    """Return the name that *node*'s Pod of *nodeset* has had, or nothing."""
    labels = node.metadata.labels
    is_its = (
        labels.get(wk.LABEL_NODESET) == nodeset.metadata.name
        and labels.get(wk.LABEL_NAMESPACE) == nodeset.metadata.namespace
    )
    return labels.get(wk.LABEL_POD, "") if is_its else ""


def _replaced(seen: Observed) -> tuple[tuple[ReplacePod, ...], float | None]:
    """Return the ended Pods that are due to be replaced, and when the next one is."""
    ended = sorted((pod for pod in seen.pods if pod.is_over and not pod.is_terminating), key=_name_of)
    due = tuple(
        ReplacePod(pod.metadata.name, pod.metadata.uid, pod.status.phase)
        for pod in ended
        if _wait_s(pod, seen) <= 0
    )
    waits = [wait_s for pod in ended if (wait_s := _wait_s(pod, seen)) > 0]
    return due, min(waits, default=None)


def _wait_s(pod: Pod, seen: Observed) -> float:
    created = pod.metadata.creation_timestamp or seen.now
    return (created + timedelta(seconds=seen.replace_after_s) - seen.now).total_seconds()


def _name_of(pod: Pod) -> str:
    return pod.metadata.name
