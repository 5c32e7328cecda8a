"""What of a Node is left for Slurm where a NodeSet leaves room for the DaemonSets there; pure.

The kubelet adds up what all Pods of its Node request, and refuses who goes beyond what it can allocate. Slurm
knows of no Pod that it has not placed. So slurmd announces what is left without its own Pod's requests and
those of the DaemonSets. They are taken from the DaemonSets' templates: on a Node that has just come their
Pods do not exist yet. Pods that a lock drives out need no room next to a job.

Source: Kubernetes, "Node Allocatable"; DaemonSet, "How Daemon Pods are scheduled".
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

import msgspec
from msgspec.structs import replace

from sunk_kube.objects import Node
from sunk_kube.pods import PodSpec
from sunk_kube.quantity import number
from sunk_nodeset_controller.locks.daemonsets import DaemonSet, driven_out
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_nodeset_controller.nodesets.feasibility import obstacle, requests
from sunk_nodeset_controller.nodesets.template import Manifest, daemon_tolerations

_MIB: Final = 2**20


class Allocatable(msgspec.Struct, frozen=True, kw_only=True):
    """What slurmd may announce at most."""

    cpus: int
    memory_mib: int


def left_for_slurm(
    node: Node, spec: PodSpec, daemons: Iterable[DaemonSet], measure: EvictionPolicy
) -> Allocatable:
    """Return what *node* has left beside slurmd's Pod, with *spec*, and those of *daemons* that stay there.

    Whole CPUs and whole MiB, rounded down; nothing is left where more is asked for than there is.

    Raises:
        ValueError: a request is no quantity.
    """
    taken = [requests(spec), *(requests(one.spec.template.spec) for one in _staying(node, daemons, measure))]
    return Allocatable(
        cpus=int(_left(node, taken, "cpu")), memory_mib=int(_left(node, taken, "memory") // _MIB)
    )


def _staying(node: Node, daemons: Iterable[DaemonSet], measure: EvictionPolicy) -> list[DaemonSet]:
    """Return those of *daemons* that have a Pod on *node*, also beside a job."""
    found = [one for one in daemons if one.metadata.deletion_timestamp is None]
    leaving = set(driven_out(found, measure))
    return [one for one in found if one.key not in leaving and _is_for(one.spec.template.spec, node)]


def _is_for(spec: PodSpec, node: Node) -> bool:
    tolerations = (*spec.tolerations, *daemon_tolerations(spec.host_network))
    return not obstacle(replace(spec, tolerations=tolerations), {}, node)


def _left(node: Node, taken: Iterable[Mapping[str, Decimal]], resource: str) -> Decimal:
    requested = sum((one.get(resource, Decimal(0)) for one in taken), Decimal(0))
    return max(Decimal(0), number(node.status.allocatable.get(resource, 0)) - requested)


def with_room(made: Manifest, left: Allocatable) -> Manifest:
    """Return the Pod *made* with the variables by which slurmd learns what is *left*."""
    variables = [
        {"name": "SUNK_LEFT_CPUS", "value": str(left.cpus)},
        {"name": "SUNK_LEFT_MIB", "value": str(left.memory_mib)},
    ]
    spec = dict(made["spec"])
    for kind in ("initContainers", "containers"):
        if kind in spec:
            spec[kind] = [{**one, "env": [*variables, *one["env"]]} for one in spec[kind]]
    return {**made, "spec": spec}
