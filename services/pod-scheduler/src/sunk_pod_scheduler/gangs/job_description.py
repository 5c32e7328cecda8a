"""A gang to the one job that holds all its places: as that of a Pod, on as many nodes as it needs."""

from msgspec.structs import replace

from sunk_events.placements import Gang
from sunk_kube.objects import ObjectMeta
from sunk_kube.pods import Pod
from sunk_pod_scheduler.gangs.model import GangSeen
from sunk_pod_scheduler.gangs.ownership import name
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.job_description import Placeholder, describe
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_pod_scheduler.podspec.validation import ValidatedPod
from sunk_slurm.submission import JobDescription


def describe_gang(
    seen: GangSeen, gang: Gang, choice: NodeChoice, attempt: int, made: Placeholder, *, wanted: ValidatedPod
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
    nodes = len(choice.required) or nodes_needed(gang)
    is_elastic = bool(gang.min_available) and not choice.required
    as_pod = Pod(metadata=ObjectMeta(namespace=seen.namespace, name=seen.name, uid=seen.uid))
    shape = replace(wanted, cpus=gang.cpus, memory_mib=gang.memory_mib * per_node, gpus=gang.gpus * per_node)
    placed = sum(bool(member.node) for member in gang.members)
    tasks = placed or len(gang.members)  # Where some run already, a member that is gone has no place.
    return replace(
        describe(as_pod, shape, choice, attempt, made),
        admin_comment=marks.admin_comment(f"{name(seen)}, {len(gang.members)} Pods", seen.uid, attempt),
        minimum_nodes=nodes_at_least(gang) if is_elastic else nodes,
        maximum_nodes=nodes,
        tasks=None if is_elastic else tasks,  # Of how many nodes Slurm has, it makes the tasks.
        tasks_per_node=per_node,
    )


def nodes_needed(gang: Gang) -> int:
    """Return on how many nodes *gang* runs."""
    return -(-len(gang.members) // gang.members_per_node)


def nodes_at_least(gang: Gang) -> int:
    """Return with how few nodes *gang* may run."""
    return -(-(gang.min_available or len(gang.members)) // gang.members_per_node)
