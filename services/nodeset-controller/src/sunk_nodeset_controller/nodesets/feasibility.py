"""Whether a Node can carry a Pod of a NodeSet, and if not, why; pure.

Required affinity, selector, tolerations and requests count; what is preferred does not. Requests are held
against all that the Node offers: other Pods there leave when a job locks the Node.

Source: SUNK's documents, NodeSet, "Node selection".
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

import msgspec

from sunk_kube.matching import selects, untolerated
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node
from sunk_kube.pods import PodSpec, ResourceRequirements
from sunk_kube.quantity import Quantity, largest, number, total
from sunk_nodeset_controller.nodesets.model import Fits
from sunk_nodeset_controller.nodesets.template import SMALL, pod_spec

_BEING_DELETED: Final = "is being deleted"
_NOT_SELECTED: Final = "node selector does not match"
_NO_AFFINITY: Final = "required node affinity does not match"
LEFT_OUT: Final = frozenset({_BEING_DELETED, _NOT_SELECTED, _NO_AFFINITY})
"""Obstacles on a Node that an administrator has taken out of the NodeSet."""


def requests(spec: PodSpec) -> dict[str, Decimal]:
    """Return what a Pod asks of its Node: its containers together, or its largest init container.

    Raises:
        ValueError: a request is no quantity.
    """
    sidecars = [one for one in spec.init_containers if one.restart_policy == "Always"]
    others = [one for one in spec.init_containers if one.restart_policy != "Always"]
    running = total(_requests(one.resources) for one in (*spec.containers, *sidecars))
    starting = (total((_requests(one.resources),)) for one in others)
    requested = largest((running, *starting))
    if spec.resources is not None and spec.resources.requests:
        requested |= total((spec.resources.requests,))  # What is asked for the Pod as a whole stands above.
    try:
        overhead = {name: number(amount) for name, amount in spec.overhead.items()}
    except ValueError as error:
        raise ValueError(f"overhead: {error}") from error
    return {name: amount + overhead.get(name, 0) for name, amount in requested.items()}


def _requests(resources: ResourceRequirements) -> Mapping[str, Quantity]:
    """Return what a container asks for: where no request is given or added, Kubernetes takes the limit."""
    total((resources.limits,))  # Raises where one is no quantity.
    limits = {name: amount for name, amount in resources.limits.items() if name not in SMALL}
    return {**limits, **resources.requests}


def obstacle(spec: PodSpec, requested: Mapping[str, Decimal], node: Node) -> str:
    """Return why a Pod with *spec*, which requests *requested*, cannot be on *node*; nothing if it can."""
    if node.metadata.deletion_timestamp is not None:
        return _BEING_DELETED
    labels = node.metadata.labels
    if any(labels.get(name) != value for name, value in spec.node_selector.items()):
        return _NOT_SELECTED
    affinity = spec.affinity and spec.affinity.node_affinity
    if affinity and affinity.required and not selects(affinity.required, node):
        return _NO_AFFINITY
    if taints := untolerated(spec.tolerations, node.spec.taints):
        return f"taint {taints[0].key}:{taints[0].effect} is not tolerated"
    offered = node.status.allocatable
    short = sorted(name for name, amount in requested.items() if amount > number(offered.get(name, 0)))
    return f"not enough {', '.join(short)}" if short else ""


def fits(nodeset: NodeSet, nodes: Iterable[Node], lock_key: str) -> Fits:
    """Return which of *nodes* can carry a Pod of *nodeset*, other NodeSets left aside."""
    try:
        spec = pod_spec(nodeset, lock_key)
        requested = requests(spec)
    except (msgspec.ValidationError, ValueError) as error:
        return Fits(invalid=f"spec.template.spec: {error}")
    found = ((node.metadata.name, obstacle(spec, requested, node)) for node in nodes)
    return Fits(obstacles={name: why for name, why in found if why})


def place(node: Node | None) -> object:
    """Return what of a Node decides whether a Pod may be there; equal places, equal answers."""
    if node is None:
        return None
    meta, status = node.metadata, node.status
    return (
        meta.labels,
        meta.deletion_timestamp is None,
        {(taint.key, taint.value, taint.effect) for taint in node.spec.taints},
        status.allocatable,
        status.addresses,
    )
