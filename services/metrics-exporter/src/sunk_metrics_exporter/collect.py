"""From states to samples of the documents' table.

What must stay true: a sample says what Slurm said, or is not there. Each node is counted under the one
word that sinfo has for it, so the ``slurm_nodes_*`` add up; tasks of a pending array are counted each.

Source: SchedMD/slurm 24.11, src/common/slurm_protocol_defs.c, node_state_string.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_slurm.hostlist import expand

JobSeries = Literal["all", "active", "none"]
Sample = tuple[tuple[str, ...], float]
"""The values of the labels, in the order of the table, and the value."""
Samples = dict[str, list[Sample]]
"""By metric name; one that Slurm said nothing of is not there."""


class Slurm(msgspec.Struct, frozen=True):
    """What the bus knows of a Slurm cluster."""

    nodes: Sequence[SlurmNodeState]
    jobs: Sequence[SlurmJobState]
    partitions: Sequence[SlurmPartitionState]
    statistics: SlurmStatisticsState | None

    def newest(self) -> datetime | None:
        """Return when the newest state began: Slurm was heard then at the latest."""
        states = (*self.nodes, *self.jobs, *self.partitions, *((self.statistics,) if self.statistics else ()))
        return max((state.changed for state in states), default=None)


def collect(slurm: Slurm, now: datetime, *, job_series: JobSeries = "all") -> Samples:
    """Return every sample."""
    return {
        **_nodes(slurm.nodes),
        **_node_counts(slurm.nodes),
        **_partitions(slurm.nodes, slurm.partitions),
        **_queue(slurm.jobs),
        **_jobs_by_owner(slurm.jobs),
        **_jobs([job for job in slurm.jobs if _is_shown(job, job_series)], now),
        **(_scheduler(slurm.statistics) if slurm.statistics else {}),
    }


def _is_shown(job: SlurmJobState, which: JobSeries) -> bool:
    return which == "all" or (which == "active" and not job.is_over)


def node_word(node: SlurmNodeState) -> str:
    """Return sinfo's word for the node's state, in lower case."""
    if node.is_drain:
        return "draining" if node.is_busy else "drained"
    if "FAIL" in node.flags:
        return "failing" if node.is_busy else "fail"
    if node.state == "IDLE":
        for flag, word in _IDLE_WORDS:
            if flag in node.flags:
                return word
    return node.state.lower()


_IDLE_WORDS: Final = (("COMPLETING", "completing"), ("MAINTENANCE", "maint"), ("RESERVED", "reserved"))
"""What sinfo calls an idle node with a flag."""

_COUNTED_AS: Final[Mapping[str, str]] = {
    "allocated": "alloc",
    "completing": "comp",
    "down": "down",
    "draining": "drain",
    "drained": "drain",
    "error": "err",
    "failing": "fail",
    "fail": "fail",
    "idle": "idle",
    "maint": "maint",
    "mixed": "mix",
    "reserved": "resv",
}


def job_word(job: SlurmJobState) -> str:
    """Return squeue's word for the job's state, in lower case."""
    for flag in ("COMPLETING", "CONFIGURING"):
        if flag in job.flags:
            return flag.lower()
    return job.state.lower()


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


def _nodes(nodes: Sequence[SlurmNodeState]) -> Samples:
    samples: Samples = {
        f"slurm_node_{what}": [((node.node,), value(node)) for node in nodes]
        for what, value in _PER_NODE.items()
    }
    samples["slurm_node_state"] = [
        ((node.node, partition, node_word(node)), 1)
        for node in nodes
        for partition in node.partitions or ("",)  # In no partition it is a node all the same.
    ]
    return samples


def _node_counts(nodes: Sequence[SlurmNodeState]) -> Samples:
    counts = Counter(_COUNTED_AS.get(node_word(node), "") for node in nodes)
    return {
        **{f"slurm_nodes_{what}": [((), counts[what])] for what in dict.fromkeys(_COUNTED_AS.values())},
        "slurm_nodes_total": [((), len(nodes))],
        "slurm_nodes_not_responding": [((), sum(node.is_not_responding for node in nodes))],
    }


def _partitions(nodes: Iterable[SlurmNodeState], partitions: Iterable[SlurmPartitionState]) -> Samples:
    sums: dict[str, Counter[str]] = {partition.partition: Counter() for partition in partitions}
    for node in nodes:
        for partition in node.partitions:
            total = sums.setdefault(partition, Counter())
            for what, value in _PER_NODE.items():
                total[what] += value(node)
    return {
        f"slurm_partition_{what}": [((partition,), total[what]) for partition, total in sorted(sums.items())]
        for what in _PER_NODE
    }


_QUEUE: Final = {
    "cancelled": "canceled",
    "completed": "completed",
    "completing": "completing",
    "configuring": "configuring",
    "failed": "failed",
    "node_fail": "node_fail",
    "pending": "pending",
    "preempted": "preempted",
    "running": "running",
    "suspended": "suspended",
    "timeout": "timeout",
}
"""squeue's words and the documents'."""


def _queue(jobs: Sequence[SlurmJobState]) -> Samples:
    counts: Counter[str] = Counter()
    for job in jobs:
        counts[job_word(job)] += job.array_tasks
    waiting = sum(job.array_tasks for job in jobs if job.is_dependency_pending)
    return {
        **{f"slurm_queue_{said}": [((), counts[word])] for word, said in _QUEUE.items()},
        "slurm_queue_pending_dependency": [((), waiting)],
    }


def _jobs_by_owner(jobs: Iterable[SlurmJobState]) -> Samples:
    counts: dict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for job in jobs:
        counts[job.state][(job.partition, job.account, job.user)] += job.array_tasks
    return {
        f"slurm_jobs_{state.lower()}": sorted(counts[state].items())
        for state in ("PENDING", "RUNNING", "SUSPENDED")
    }


def _jobs(jobs: Sequence[SlurmJobState], now: datetime) -> Samples:
    samples: Samples = {
        "slurm_job_state": [
            ((job.partition, job.account, job.user, str(job.job), job.name, job_word(job)), 1) for job in jobs
        ],
        "slurm_job_cpus_allocated": [],
        "slurm_job_gpus_allocated": [],
        "slurm_job_uptime_seconds": [],
    }
    for job in jobs:
        if job.state != "RUNNING":
            continue
        whose = (job.partition, job.account, job.user, str(job.job))
        for share in job.allocations:
            for node in _expanded(share.nodes):
                samples["slurm_job_cpus_allocated"].append(((*whose, node), share.cpus))
                samples["slurm_job_gpus_allocated"].append(((*whose, node), share.gpus))
        if job.started is not None:
            uptime_s = max((now - job.started).total_seconds(), 0.0)
            for node in _expanded(job.nodes):
                samples["slurm_job_uptime_seconds"].append(((*whose, node), uptime_s))
    return samples


def _expanded(nodes: str) -> tuple[str, ...]:
    """Return the names in *nodes*; none where a newer Slurm spells them in a way that we cannot read."""
    try:
        return expand(nodes)
    except ValueError:
        return ()


def _scheduler(said: SlurmStatisticsState) -> Samples:
    values: dict[str, float] = {
        "backfill_cycle_last_seconds": said.backfill_cycle_last_s,
        "backfill_cycle_mean_seconds": said.backfill_cycle_mean_s,
        "backfill_depth_mean": said.backfill_depth_mean,
        "backfilled_jobs_total": said.backfilled_jobs,
        "backfilled_jobs_cycle_total": said.backfilled_jobs_since_cycle,
        "backfilled_jobs_heterogeneous_total": said.backfilled_het_jobs,
        "cycle_last_seconds": said.cycle_last_s,
        "cycle_mean_seconds": said.cycle_mean_s,
        "cycle_mean_depth": said.cycle_mean_depth,
        "cycles_per_minute": said.cycles_per_minute,
        "dbd_queue": said.dbd_queue,
        "jobs_submitted": said.jobs_submitted,
        "jobs_started": said.jobs_started,
        "jobs_completed": said.jobs_completed,
        "jobs_failed": said.jobs_failed,
        "jobs_cancelled": said.jobs_canceled,
        "jobs_pending": said.jobs_pending,
        "jobs_running": said.jobs_running,
        "queue": said.queue_length,
        "threads": said.threads,
    }
    return {
        **{f"slurm_scheduler_{name}": [((), value)] for name, value in values.items()},
        "slurm_controller_rpc_count": [((rpc.message_type,), rpc.count) for rpc in said.rpcs],
        "slurm_controller_rpc_mean_duration_seconds": [
            ((rpc.message_type,), rpc.mean_duration_s) for rpc in said.rpcs
        ],
    }
