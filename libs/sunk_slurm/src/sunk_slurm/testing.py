"""Builders of what slurmrestd sends, with defaults that show only what matters."""

from datetime import UTC, datetime

from sunk_slurm.partitions import Partition, PartitionNodes
from sunk_slurm.wire import Job, JobResources, Node, NodeHeld, NodesHeld, Number

T0 = datetime(2026, 1, 5, 12, tzinfo=UTC)


def node(name: str = "n1", *state: str, reason: str = "", user: str = "", extra: str = "") -> Node:
    """Return a node of 4 CPUs, 16,000 MiB and 8 GPUs; IDLE if no state is given."""
    return Node(
        name=name,
        state=state or ("IDLE",),
        reason=reason,
        reason_set_by_user=user,
        cpus=4,
        effective_cpus=4,
        real_memory=16000,
        gres="gpu:8",
        gres_used="gpu:0",
        partitions=("main",),
        extra=extra,
        slurmd_start_time=Number.of(T0.timestamp()),
    )


def job(
    job_id: int = 1, *state: str, nodes: tuple[str, ...] = (), folded: str = "", reason: str = "None"
) -> Job:
    """Return a job with one CPU on each of *nodes*; PENDING if no state is given."""
    held = tuple(NodeHeld(name=name) for name in nodes)
    return Job(
        job_id=job_id,
        job_state=state or ("PENDING",),
        state_reason=reason,
        name="train",
        user_name="ada",
        user_id=1000,
        partition="main",
        nodes=folded or ",".join(nodes),
        job_resources=JobResources(nodes=NodesHeld(allocation=held), cpus=len(held)) if held else None,
        cpus=Number.of(max(len(held), 1)),
        submit_time=Number.of(T0.timestamp()),
    )


def partition(name: str = "main", nodes: str = "n1", total: int = 1) -> Partition:
    """Return a partition that is UP."""
    return Partition(name=name, nodes=PartitionNodes(configured=nodes, total=total))
