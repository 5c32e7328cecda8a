"""Which Slurm nodes a Pod may be placed on, and whether the one that Slurm chose will still do.

A Pod's nodeSelector and required node affinity, and the taints that its Nodes keep, become nodes that
Slurm must not choose. What Kubernetes itself taints a Node with comes and goes, so it only counts at the
end, before the binding; a cordon never counts, for it becomes a drain. The lock's taint, which is ours, is
none of the taints here.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from sunk_kube.matching import selects, untolerated
from sunk_kube.objects import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint
from sunk_kube.wellknown import TAINT_UNSCHEDULABLE
from sunk_slurm import hostlist

_KUBERNETES_OWN: Final = "node.kubernetes.io/"
LASTS: Final = timedelta(seconds=1)
"""A node that came or changed a moment ago may be missed: the one that Slurm chose is looked at again."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What Slurm is told; folded, for a list may be long."""

    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    is_possible: bool = True
    """At least one of the nodes known now is left."""


def choose(
    pod: Pod,
    node_by_slurm_node: Mapping[str, Node | None],
    required: tuple[str, ...],
    excluded: tuple[str, ...],
    taken: frozenset[str] = frozenset(),
) -> Choice:
    """Return what Slurm may choose from for *pod*.

    Args:
        pod: The Pod.
        node_by_slurm_node: The Node of every node that Slurm has: Slurm refuses a job that excludes others.
            None where it is no NodeSet's, or the Node is not known: no Pod can be placed there.
        required: Slurm nodes of which the Pod names one or several, by annotation; empty: any.
        excluded: Slurm nodes that it excludes by annotation.
        taken: Nodes one of whose host ports it needs and another Pod has.
    """
    among = frozenset(required)
    unfit = {
        name
        for name, node in node_by_slurm_node.items()
        if (among and name not in among) or _is_unfit(pod, node, taken)
    }
    left = node_by_slurm_node.keys() - unfit - set(excluded)
    if len(required) == 1:
        return Choice(required=required, excluded=_folded(excluded), is_possible=bool(left))
    return Choice(excluded=_folded({*unfit, *excluded}), is_possible=bool(left))


class Choices:
    """What was chosen for Pods of a burst, which mostly are alike: among many nodes a choice takes long."""

    def __init__(self) -> None:
        self._made: dict[bytes, Choice] = {}
        self._since = datetime.min.replace(tzinfo=UTC)

    def choose(
        self,
        pod: Pod,
        nodes: Callable[[], Mapping[str, Node | None]],
        required: tuple[str, ...],
        excluded: tuple[str, ...],
        now: datetime,
        *,
        taken: frozenset[str] = frozenset(),
    ) -> Choice:
        """Return the choice for *pod*, or that of a moment ago for one that asks for the same."""
        if now - self._since > LASTS:
            self._made, self._since = {}, now
        spec = pod.spec
        wishes = spec.node_selector, spec.affinity, spec.tolerations, required, excluded, sorted(taken)
        asked = msgspec.json.encode(wishes)
        if asked not in self._made:
            self._made[asked] = choose(pod, nodes(), required, excluded, taken)
        return self._made[asked]


def problem(pod: Pod, node: Node, others: Callable[[], Iterable[Pod]] = tuple) -> str:
    """Return why *pod* may not be bound to *node* now, beside *others*; empty if it may."""
    if not _is_selected(pod, node):
        return f"Node {node.metadata.name} does not match the Pod's nodeSelector or required node affinity"
    if taints := _taints(pod, node):
        return f"Node {node.metadata.name} has the taint {taints[0].key}, which the Pod does not tolerate"
    if node.metadata.name in ports_taken(pod, others):
        return f"Node {node.metadata.name} has another Pod with a host port that the Pod needs"
    return ""


def ports_taken(pod: Pod, others: Callable[[], Iterable[Pod]]) -> frozenset[str]:
    """Return the Nodes on which one of *others* has a host port that *pod* needs too.

    Only of Pods that we watch: those that we do not are for the kubelet to tell.
    """
    needed = host_ports(pod)
    if not needed:
        return frozenset()
    return frozenset(
        other.spec.node_name
        for other in others()
        if other.metadata.uid != pod.metadata.uid and not needed.isdisjoint(host_ports(other))
    )


def host_ports(pod: Pod) -> frozenset[tuple[str, int]]:
    """Return protocol and number of each host port of *pod*."""
    ports = (port for one in (*pod.spec.containers, *pod.spec.init_containers) for port in one.ports)
    return frozenset((port.protocol, port.host_port) for port in ports if port.host_port)


def _is_unfit(pod: Pod, node: Node | None, taken: frozenset[str]) -> bool:
    if node is None or node.metadata.name in taken:
        return True
    lasting = [taint for taint in _taints(pod, node) if not taint.key.startswith(_KUBERNETES_OWN)]
    return bool(lasting) or not _is_selected(pod, node)


def _is_selected(pod: Pod, node: Node) -> bool:
    return all(selects(selector, node) for selector in _selectors(pod))


def _selectors(pod: Pod) -> list[NodeSelector]:
    """Return what all must hold: the nodeSelector as a term, and the required affinity."""
    found: list[NodeSelector] = []
    if pod.spec.node_selector:
        labels = tuple(
            NodeSelectorRequirement(key=key, operator="In", values=(value,))
            for key, value in pod.spec.node_selector.items()
        )
        found.append(NodeSelector((NodeSelectorTerm(match_expressions=labels),)))
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is not None and affinity.required is not None:
        found.append(affinity.required)
    return found


def _taints(pod: Pod, node: Node) -> list[Taint]:
    found = untolerated(pod.spec.tolerations, node.spec.taints)
    return [taint for taint in found if taint.key != TAINT_UNSCHEDULABLE]


def _folded(names: Iterable[str]) -> tuple[str, ...]:
    folded = hostlist.compress(names)
    return (folded,) if folded else ()
