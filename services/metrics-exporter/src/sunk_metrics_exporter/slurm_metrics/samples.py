"""What one state adds to a scrape of the documents' table: lines of its own, and shares of sums.

What must stay true: a sample says what Slurm said, or is not there. A state's part depends on nothing but
that state, so it is made once a change and not once a scrape. Tasks of a pending array are counted each.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

import msgspec

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_metrics_exporter.slurm_metrics.states import COUNTED_AS, QUEUE, job_word, node_word
from sunk_metrics_exporter.slurm_metrics.text import line, prefix
from sunk_slurm.hostlist import expand

JobSeries = Literal["all", "running", "off"]
JobLabel = Literal["partition", "account", "user", "name"]
Slot = tuple[str, tuple[str, ...]]
"""A metric and the values of its labels, in the table's order."""


class JobChoice(msgspec.Struct, frozen=True):
    """Which series single jobs have."""

    which: JobSeries = "all"
    labels: frozenset[JobLabel] = frozenset(("partition", "account", "user", "name"))


class Part(msgspec.Struct, frozen=True):
    """What one state adds."""

    lines: Mapping[str, str] = {}
    """By metric: finished lines."""
    shares: tuple[tuple[Slot, int], ...] = ()
    """What it adds to sums; 0 lets a sum be there."""
    runs: tuple[str, ...] = ()
    """Series of a time that goes on; `started` tells the value."""
    started: float = 0.0
    """Since when, as a timestamp."""
    size: int = 0
    """How many series are a single job's own."""


def _per_node() -> Mapping[str, Callable[[SlurmNodeState], int]]:
    return {
        "cpu_alloc": lambda node: node.cpus_allocated,
        "cpu_idle": lambda node: max(node.cpus - node.cpus_allocated, 0),
        "cpu_total": lambda node: node.cpus,
        "mem_alloc": lambda node: node.memory_allocated_mib,
        "mem_total": lambda node: node.memory_mib,
        "gpu_alloc": lambda node: node.gpus_allocated,
        "gpu_idle": lambda node: max(node.gpus - node.gpus_allocated, 0),
        "gpu_total": lambda node: node.gpus,
    }


_PER_NODE: Final = _per_node()
_STATES_COUNTED: Final = frozenset(("PENDING", "RUNNING", "SUSPENDED"))

ALWAYS: Final[tuple[Slot, ...]] = (
    *((f"slurm_nodes_{what}", ()) for what in dict.fromkeys(COUNTED_AS.values())),
    ("slurm_nodes_total", ()),
    ("slurm_nodes_not_responding", ()),
    *((f"slurm_queue_{word}", ()) for word in QUEUE.values()),
    ("slurm_queue_pending_dependency", ()),
)
"""Sums that are there even at 0."""


def of_node(node: SlurmNodeState) -> Part:
    """Return what *node* adds. In no partition it is a node all the same, with an empty label."""
    values = {what: value(node) for what, value in _PER_NODE.items()}
    word = node_word(node)
    partitions = tuple(dict.fromkeys(node.partitions))
    shares: list[tuple[Slot, int]] = [(("slurm_nodes_total", ()), 1)]
    if word in COUNTED_AS:
        shares.append(((f"slurm_nodes_{COUNTED_AS[word]}", ()), 1))
    if node.is_not_responding:
        shares.append((("slurm_nodes_not_responding", ()), 1))
    for partition in partitions:
        shares += [((f"slurm_partition_{what}", (partition,)), value) for what, value in values.items()]
    lines = {
        f"slurm_node_{what}": line(f"slurm_node_{what}", (node.node,), value)
        for what, value in values.items()
    }
    lines["slurm_node_state"] = "".join(
        line("slurm_node_state", (node.node, partition, word), 1) for partition in partitions or ("",)
    )
    return Part(lines=lines, shares=tuple(shares))


def of_partition(partition: SlurmPartitionState) -> Part:
    """Return what *partition* adds: that it is shown without nodes too."""
    return Part(shares=tuple(((f"slurm_partition_{what}", (partition.partition,)), 0) for what in _PER_NODE))


def shares_of_job(job: SlurmJobState) -> Part:
    """Return what *job* adds to sums."""
    word, tasks = job_word(job), job.array_tasks
    shares: list[tuple[Slot, int]] = []
    if word in QUEUE:
        shares.append(((f"slurm_queue_{QUEUE[word]}", ()), tasks))
    if job.is_dependency_pending:
        shares.append((("slurm_queue_pending_dependency", ()), tasks))
    if job.state in _STATES_COUNTED:
        shares.append(((f"slurm_jobs_{job.state.lower()}", (job.partition, job.account, job.user)), tasks))
    return Part(shares=tuple(shares))


def of_job(job: SlurmJobState, choice: JobChoice) -> Part:
    """Return the series that *job* has of its own."""
    is_running = job.state == "RUNNING"
    if choice.which == "off" or (choice.which == "running" and not is_running):
        return Part()
    left_out = {"partition", "account", "user", "name"} - choice.labels
    whose = (job.partition, job.account, job.user, str(job.job))
    state = line("slurm_job_state", (*whose, job.name, job_word(job)), 1, left_out)
    if not is_running:
        return Part(lines={"slurm_job_state": state}, size=1)
    shares = {node: share for share in job.allocations for node in expanded(share.nodes)}
    lines = {"slurm_job_state": state}
    for what, held in (
        ("cpus", {node: share.cpus for node, share in shares.items()}),
        ("gpus", {node: share.gpus for node, share in shares.items()}),
    ):
        metric = f"slurm_job_{what}_allocated"
        lines[metric] = "".join(line(metric, (*whose, node), count, left_out) for node, count in held.items())
    nodes = expanded(job.nodes) if job.started else ()
    return Part(
        lines=lines,
        runs=tuple(prefix("slurm_job_uptime_seconds", (*whose, node), left_out) for node in nodes),
        started=job.started.timestamp() if job.started else 0.0,
        size=1 + 2 * len(shares) + len(nodes),
    )


def expanded(nodes: str) -> tuple[str, ...]:
    """Return the names in *nodes*; none where a newer Slurm spells them in a way that we cannot read."""
    try:
        return tuple(expand(nodes))
    except ValueError:
        return ()


def of_statistics(statistics: SlurmStatisticsState) -> Part:
    """Return what the scheduler's and the controller's statistics add."""
    values: dict[str, float] = {
        "backfill_cycle_last_seconds": statistics.backfill_cycle_last_s,
        "backfill_cycle_mean_seconds": statistics.backfill_cycle_mean_s,
        "backfill_depth_mean": statistics.backfill_depth_mean,
        "backfilled_jobs_total": statistics.backfilled_jobs,
        "backfilled_jobs_cycle_total": statistics.backfilled_jobs_since_cycle,
        "backfilled_jobs_heterogeneous_total": statistics.backfilled_het_jobs,
        "cycle_last_seconds": statistics.cycle_last_s,
        "cycle_mean_seconds": statistics.cycle_mean_s,
        "cycle_mean_depth": statistics.cycle_mean_depth,
        "cycles_per_minute": statistics.cycles_per_minute,
        "dbd_queue": statistics.dbd_queue,
        "jobs_submitted": statistics.jobs_submitted,
        "jobs_started": statistics.jobs_started,
        "jobs_completed": statistics.jobs_completed,
        "jobs_failed": statistics.jobs_failed,
        "jobs_cancelled": statistics.jobs_canceled,
        "jobs_pending": statistics.jobs_pending,
        "jobs_running": statistics.jobs_running,
        "queue": statistics.queue_length,
        "threads": statistics.threads,
    }
    lines = {
        f"slurm_scheduler_{name}": line(f"slurm_scheduler_{name}", (), value)
        for name, value in values.items()
    }
    lines["slurm_controller_rpc_count"] = _lines(
        "slurm_controller_rpc_count", ((rpc.message_type, rpc.count) for rpc in statistics.rpcs)
    )
    lines["slurm_controller_rpc_mean_duration_seconds"] = _lines(
        "slurm_controller_rpc_mean_duration_seconds",
        ((rpc.message_type, rpc.mean_duration_s) for rpc in statistics.rpcs),
    )
    return Part(lines=lines)


def _lines(metric: str, values: Iterable[tuple[str, float]]) -> str:
    return "".join(line(metric, (label,), value) for label, value in dict(values).items())
