"""A gang to the one job that holds all its places: as that of a Pod, on as many nodes as it needs."""

from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec.structs import replace

from sunk_events.placements import Gang
from sunk_kube.objects import Node, ObjectMeta, Pod
from sunk_pod_scheduler.annotations import Asked
from sunk_pod_scheduler.gangs.model import GangSeen
from sunk_pod_scheduler.nodes import Choice, choose, ports_taken
from sunk_pod_scheduler.request import Placeholder, describe
from sunk_pod_scheduler.validate import Wanted
from sunk_slurm import hostlist
from sunk_slurm.submission import JobDescription


def describe_gang(
    seen: GangSeen, gang: Gang, choice: Choice, attempt: int, made: Placeholder, *, wanted: Wanted
) -> JobDescription:
    """Return the job for attempt *attempt* at placing *gang*, held.

    Args:
        seen: The gang.
        gang: Its members.
        choice: Which nodes Slurm may take.
        attempt: Of the gang.
        made: What every placeholder has.
        wanted: What a member asks for; all ask for the same but for amounts, of which the largest counts.
    """
    per_node = gang.members_per_node
    nodes = nodes_needed(gang)
    is_elastic = bool(gang.min_available) and not choice.required
    as_pod = Pod(metadata=ObjectMeta(namespace=seen.namespace, name=seen.name, uid=seen.id))
    shape = replace(wanted, cpus=gang.cpus, memory_mib=gang.memory_mib * per_node, gpus=gang.gpus * per_node)
    return replace(
        describe(as_pod, shape, choice, attempt, made),
        admin_comment=f"placeholder of {seen.kind} {seen.namespace}/{seen.name}, {len(gang.members)} Pods",
        minimum_nodes=nodes_at_least(gang) if is_elastic else nodes,
        maximum_nodes=nodes,
        tasks=None if is_elastic else len(gang.members),  # Of how many nodes Slurm has, it makes the tasks.
        tasks_per_node=per_node,
    )


def nodes_needed(gang: Gang) -> int:
    """Return on how many nodes *gang* runs."""
    return -(-len(gang.members) // gang.members_per_node)


def nodes_at_least(gang: Gang) -> int:
    """Return with how few nodes *gang* may run."""
    return -(-(gang.min_available or len(gang.members)) // gang.members_per_node)


def choose_for_all(
    pods: Iterable[Pod],
    asked: Asked,
    node_by_slurm_node: Mapping[str, Node | None],
    nodes: int,
    others: Callable[[], Iterable[Pod]] = tuple,
) -> Choice:
    """Return what Slurm may choose from, so that every Pod fits every node: who gets which is seen later.

    Args:
        pods: All members.
        asked: What they ask for by annotation.
        node_by_slurm_node: The Node of every node that Slurm has.
        nodes: How many nodes are needed.
        others: Pods that are on Nodes.
    """
    unfit = set(asked.excluded_nodes)
    if asked.required_nodes:
        unfit |= node_by_slurm_node.keys() - set(asked.required_nodes)
    alike = {_wishes(pod): pod for pod in pods}
    for pod in alike.values():
        for folded in choose(pod, node_by_slurm_node, (), (), ports_taken(pod, others)).excluded:
            unfit.update(hostlist.expand(folded))
    folded = hostlist.compress(unfit)
    is_possible = len(node_by_slurm_node.keys() - unfit) >= nodes
    return Choice(excluded=(folded,) if folded else (), is_possible=is_possible)


def _wishes(pod: Pod) -> bytes:
    """Return what *pod* says of its Node: the Pods of one template say the same."""
    spec = pod.spec
    ports = [container.ports for container in spec.containers]
    return msgspec.json.encode((spec.node_selector, spec.affinity, spec.tolerations, ports))
