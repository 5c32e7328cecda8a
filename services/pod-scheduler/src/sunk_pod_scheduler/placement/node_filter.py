"""Which Slurm nodes a Pod may be placed on, and whether the one that Slurm chose will still do.

A Pod's nodeSelector and required node affinity, and the taints that its Nodes keep, become nodes that
Slurm must not choose. What Kubernetes itself taints a Node with comes and goes, so it only counts at the
end, before the binding; a cordon never counts, for it becomes a drain. The lock's taint, which is ours, is
none of the taints here.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec

from sunk_kube.matching import selecting, untolerated
from sunk_kube.objects import Node, Taint
from sunk_kube.pods import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Toleration
from sunk_kube.wellknown import TAINT_UNSCHEDULABLE
from sunk_pod_scheduler.podspec.annotations import JobOptions
from sunk_slurm import hostlist

Nodes = Mapping[str, Node | None]
"""The Node of every node that Slurm has: Slurm refuses a job that excludes others. None where it is no
NodeSet's, or the Node is not known: no Pod can be placed there."""
Port = tuple[str, int]
"""Protocol and number."""
Holders = Callable[[Port], Mapping[str, frozenset[str]]]
"""Returns the uids of the Pods that have a host port, by the Node that they are on."""

HOST_PORTS_MAX: Final = 256
NO_UIDS: Final = frozenset[str]()
_KUBERNETES_OWN: Final = "node.kubernetes.io/"


class NodeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What Slurm is told; folded, for a list may be long."""

    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    is_possible: bool = True
    """Enough of the nodes known now are left."""


class NodeConstraints(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of Slurm nodes, for one Pod or for all of a gang."""

    required: tuple[str, ...] = ()
    """Of which the Pod names one or several, by annotation; empty: any."""
    excluded: tuple[str, ...] = ()
    """By annotation, or because their kubelets refused others like it."""
    least: int = 1
    """How many nodes are needed."""


class NodeRequirements:
    """What a Pod asks of its Node, read once for many Nodes: most of them are alike to it."""

    def __init__(self, pod: Pod, taken: frozenset[str] = frozenset()) -> None:
        """Read *pod*; *taken*: Nodes one of whose host ports it needs and another Pod has."""
        self._tolerations = pod.spec.tolerations
        self._taken = taken
        selectors = _selectors(pod)
        self._selects = [selecting(selector) for selector in selectors]
        terms = [term for selector in selectors for term in selector.node_selector_terms]
        self.tests: Final = len(terms) + sum(
            len(term.match_expressions) + len(term.match_fields) for term in terms
        )
        """How many tests of a Node's labels and name there are."""
        self._is_tolerated: dict[tuple[Taint, ...], bool] = {}

    def is_met(self, node: Node | None) -> bool:
        """Whether the Pod may be placed on *node*, now or soon."""
        if node is None or node.metadata.name in self._taken:
            return False
        taints = node.spec.taints
        if taints not in self._is_tolerated:
            left = _taints(self._tolerations, taints)
            self._is_tolerated[taints] = all(taint.key.startswith(_KUBERNETES_OWN) for taint in left)
        return self._is_tolerated[taints] and all(is_selected(node) for is_selected in self._selects)


def unfit(wishes: NodeRequirements, nodes: Iterable[tuple[str, Node | None]]) -> set[str]:
    """Return the Slurm nodes of *nodes* on which a Pod with *wishes* may not be placed."""
    return {name for name, node in nodes if not wishes.is_met(node)}


def choice(
    constraints: NodeConstraints, known: Iterable[str], unfit: Iterable[str], *, pins: bool
) -> NodeChoice:
    """Return what Slurm may choose from.

    Args:
        constraints: What is asked of Slurm nodes.
        known: Those that Slurm has.
        unfit: Those that do not do for a Pod.
        pins: Slurm is told of a single node that it is to take, instead of all others.
    """
    among, all_known = frozenset(constraints.required), frozenset(known)
    bad = {*unfit, *(all_known - among if among else ())}
    left = all_known - bad - frozenset(constraints.excluded)
    is_possible = len(left) >= constraints.least
    if pins and len(constraints.required) == 1:
        return NodeChoice(
            required=constraints.required, excluded=_folded(constraints.excluded), is_possible=is_possible
        )
    return NodeChoice(excluded=_folded({*bad, *constraints.excluded}), is_possible=is_possible)


def are_alike(some: Nodes, others: Nodes) -> bool:
    """Whether both are the same to every Pod."""
    return some.keys() == others.keys() and all(_are_same(node, others[name]) for name, node in some.items())


def _are_same(one: Node | None, other: Node | None) -> bool:
    if one is other:
        return True
    if one is None or other is None or one.metadata.name != other.metadata.name:
        return False
    return one.spec.taints == other.spec.taints and one.metadata.labels == other.metadata.labels


def wished(pod: Pod, taken: frozenset[str]) -> bytes:
    """Return what *pod* says of its Node: the Pods of one template say the same."""
    spec = pod.spec
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    return msgspec.json.encode((spec.node_selector, affinity, spec.tolerations, sorted(taken)))


def wish(pod: Pod) -> bytes:
    """Return a digest of what *pod* says of its Node."""
    return hashlib.sha256(wished(pod, frozenset())).digest()


def problem(
    pod: Pod, node: Node, holders: Holders, slurm_node: str = "", requested: JobOptions | None = None
) -> str:
    """Return why *pod* may not be bound to *node*, which is *slurm_node*'s, now; empty if it may."""
    if requested is not None and slurm_node in requested.excluded_nodes:
        return f"Slurm node {slurm_node} is one that the Pod excludes"
    if requested is not None and requested.required_nodes and slurm_node not in requested.required_nodes:
        return f"Slurm node {slurm_node} is none of those that the Pod requires"
    if not all(selecting(selector)(node) for selector in _selectors(pod)):
        return f"Node {node.metadata.name} does not match the Pod's nodeSelector or required node affinity"
    if taints := _taints(pod.spec.tolerations, node.spec.taints):
        return f"Node {node.metadata.name} has the taint {taints[0].key}, which the Pod does not tolerate"
    if any(holders(port).get(node.metadata.name, NO_UIDS) - {pod.metadata.uid} for port in host_ports(pod)):
        return f"Node {node.metadata.name} has another Pod with a host port that the Pod needs"
    return ""


def without_jobs(slurm_node: str, nodes: Collection[str]) -> str:
    """Return why nobody may be bound to *slurm_node*'s Node now; empty if it is none of *nodes*.

    Args:
        slurm_node: The node that Slurm gave.
        nodes: Those on which Pods run whose job slurmctld has lost: Slurm gives their place away.
    """
    return f"Slurm node {slurm_node} has Pods whose jobs slurmctld has lost" if slurm_node in nodes else ""


def ports_taken(pod: Pod, holders: Holders) -> frozenset[str]:
    """Return the Nodes on which another Pod has a host port that *pod* needs too.

    Only of Pods that we watch: those that we do not are for the kubelet to tell.
    """
    own = {pod.metadata.uid}
    held = (holders(port) for port in host_ports(pod))
    return frozenset(node for by_node in held for node, uids in by_node.items() if uids - own)


def on_nodes(pods: Iterable[Pod]) -> dict[str, frozenset[str]]:
    """Return the uids of those of *pods* that are on Nodes and not over, by Node."""
    found: dict[str, set[str]] = {}
    for pod in pods:
        if pod.spec.node_name and not pod.is_over:
            found.setdefault(pod.spec.node_name, set()).add(pod.metadata.uid)
    return {node: frozenset(uids) for node, uids in found.items()}


def host_ports(pod: Pod) -> frozenset[Port]:
    """Return protocol and number of each host port of *pod*, up to `HOST_PORTS_MAX`.

    A Pod that has more is not passed to Slurm; if it is on a Node all the same, the kubelet refuses others.
    """
    ports = (port for one in (*pod.spec.containers, *pod.spec.init_containers) for port in one.ports)
    requested = ((port.protocol, port.host_port) for port in ports if port.host_port)
    return frozenset(islice(requested, HOST_PORTS_MAX))


def port_key(port: Port) -> str:
    """Return by what an index has the Pods with *port*."""
    protocol, number = port
    return f"hostPort {protocol} {number}"


def port_keys(pod: Pod) -> Iterator[str]:
    """Return by what an index has *pod*."""
    return map(port_key, host_ports(pod))


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


def _taints(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> list[Taint]:
    found = untolerated(tolerations, taints)
    return [taint for taint in found if taint.key != TAINT_UNSCHEDULABLE]


def _folded(names: Iterable[str]) -> tuple[str, ...]:
    folded = hostlist.compress(names)
    return (folded,) if folded else ()
