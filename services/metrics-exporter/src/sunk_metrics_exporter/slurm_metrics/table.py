"""The documents' table of metrics, one row a metric: name, kind, labels, help.

Names, labels and units are the documents' own and are an interface, odd ones included: memory is in
Slurm's MB (2^20 bytes), and names that end in ``_total`` are not all counters.

Source: SUNK's documents, "Syncer", section "Metrics".
"""

from typing import Final, Literal

import msgspec


class Series(msgspec.Struct, frozen=True):
    """One metric."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter"] = "gauge"

    @property
    def unit(self) -> str:
        """The documents' unit; the metrics that say a state in a label have none."""
        if self.name.endswith("_state"):
            return ""
        if "_mem_" in self.name:
            return "MB"
        if self.name.endswith("_per_minute"):
            return "opm"
        return "seconds" if self.name.endswith("_seconds") else "count"


_NODE: Final = ("node",)
_PARTITION: Final = ("partition",)
_WHOSE: Final = ("partition", "account", "user")
_JOB: Final = (*_WHOSE, "id", "name", "state")
_SHARE: Final = (*_WHOSE, "id", "node")

TABLE: Final = (
    Series("slurm_controller_rpc_count", "RPC count per message type.", ("message_type",), "counter"),
    Series(
        "slurm_controller_rpc_mean_duration_seconds",
        "RPC mean duration per message type.",
        ("message_type",),
    ),
    Series("slurm_job_state", "Current state of the job, in the state label.", _JOB),
    Series("slurm_job_cpus_allocated", "CPUs allocated to a running job, by Slurm node.", _SHARE),
    Series("slurm_job_gpus_allocated", "GPUs allocated to a running job, by Slurm node.", _SHARE),
    Series("slurm_job_uptime_seconds", "Seconds a job has been running, by Slurm node.", _SHARE),
    Series("slurm_jobs_pending", "Pending jobs, tasks of arrays counted.", _WHOSE),
    Series("slurm_jobs_running", "Running jobs.", _WHOSE),
    Series("slurm_jobs_suspended", "Suspended jobs.", _WHOSE),
    Series(
        "slurm_node_state",
        "Current state of the node, in the state label, in sinfo's words.",
        ("node", "partition", "state"),
    ),
    Series("slurm_node_cpu_alloc", "CPUs allocated on the node.", _NODE),
    Series("slurm_node_cpu_idle", "CPUs of the node that are not allocated, whatever its state.", _NODE),
    Series("slurm_node_cpu_total", "CPUs of the node.", _NODE),
    Series("slurm_node_mem_alloc", "Memory allocated on the node, in MB.", _NODE),
    Series("slurm_node_mem_total", "Memory of the node, in MB.", _NODE),
    Series("slurm_node_gpu_alloc", "GPUs allocated on the node.", _NODE),
    Series("slurm_node_gpu_idle", "GPUs of the node that are not allocated, whatever its state.", _NODE),
    Series("slurm_node_gpu_total", "GPUs of the node.", _NODE),
    Series("slurm_nodes_alloc", "Nodes that sinfo calls allocated."),
    Series("slurm_nodes_comp", "Nodes that sinfo calls completing."),
    Series("slurm_nodes_down", "Nodes that sinfo calls down."),
    Series("slurm_nodes_drain", "Nodes that sinfo calls draining or drained."),
    Series("slurm_nodes_err", "Nodes that sinfo calls error."),
    Series("slurm_nodes_fail", "Nodes that sinfo calls failing or fail."),
    Series("slurm_nodes_idle", "Nodes that sinfo calls idle."),
    Series("slurm_nodes_maint", "Nodes that sinfo calls maint."),
    Series("slurm_nodes_mix", "Nodes that sinfo calls mixed."),
    Series("slurm_nodes_resv", "Nodes that sinfo calls reserved."),
    Series("slurm_nodes_total", "All nodes."),
    Series("slurm_nodes_not_responding", "Nodes whose slurmd does not answer, whatever else they are."),
    Series("slurm_partition_cpu_alloc", "CPUs allocated in the partition.", _PARTITION),
    Series("slurm_partition_cpu_idle", "CPUs of the partition that are not allocated.", _PARTITION),
    Series("slurm_partition_cpu_total", "CPUs of the partition.", _PARTITION),
    Series("slurm_partition_mem_alloc", "Memory allocated in the partition, in MB.", _PARTITION),
    Series("slurm_partition_mem_total", "Memory of the partition, in MB.", _PARTITION),
    Series("slurm_partition_gpu_alloc", "GPUs allocated in the partition.", _PARTITION),
    Series("slurm_partition_gpu_idle", "GPUs of the partition that are not allocated.", _PARTITION),
    Series("slurm_partition_gpu_total", "GPUs of the partition.", _PARTITION),
    Series("slurm_queue_canceled", "Canceled jobs that slurmctld still tracks."),
    Series("slurm_queue_completed", "Completed jobs that slurmctld still tracks."),
    Series("slurm_queue_completing", "Completing jobs."),
    Series("slurm_queue_configuring", "Configuring jobs."),
    Series("slurm_queue_failed", "Failed jobs that slurmctld still tracks."),
    Series("slurm_queue_node_fail", "Jobs that a node's failure stopped and that slurmctld still tracks."),
    Series("slurm_queue_pending", "Pending jobs, tasks of arrays counted."),
    Series("slurm_queue_pending_dependency", "Pending jobs with unsatisfied dependencies."),
    Series("slurm_queue_preempted", "Preempted jobs that slurmctld still tracks."),
    Series("slurm_queue_running", "Running jobs."),
    Series("slurm_queue_suspended", "Suspended jobs."),
    Series("slurm_queue_timeout", "Timed out jobs that slurmctld still tracks."),
    Series("slurm_scheduler_backfill_cycle_last_seconds", "Duration of the last backfill cycle."),
    Series("slurm_scheduler_backfill_cycle_mean_seconds", "Mean duration of the backfill cycles."),
    Series("slurm_scheduler_backfill_depth_mean", "Mean depth of the backfill."),
    Series(
        "slurm_scheduler_backfilled_jobs_total",
        "Jobs started due to backfilling since last Slurm start.",
        (),
        "counter",
    ),
    Series(
        "slurm_scheduler_backfilled_jobs_cycle_total",
        "Jobs started due to backfilling since last time stats were reset.",
    ),
    Series(
        "slurm_scheduler_backfilled_jobs_heterogeneous_total",
        "Heterogeneous jobs started due to backfilling since last Slurm start.",
        (),
        "counter",
    ),
    Series("slurm_scheduler_cycle_last_seconds", "Duration of the last scheduler cycle."),
    Series("slurm_scheduler_cycle_mean_seconds", "Mean duration of the scheduler cycles."),
    Series("slurm_scheduler_cycle_mean_depth", "Mean depth of the scheduler cycles."),
    Series("slurm_scheduler_cycles_per_minute", "Scheduler cycles per minute."),
    Series("slurm_scheduler_dbd_queue", "Items in the scheduler's queue to the database."),
    Series("slurm_scheduler_jobs_submitted", "Submitted jobs reported by the scheduler."),
    Series("slurm_scheduler_jobs_started", "Jobs started by the scheduler."),
    Series("slurm_scheduler_jobs_completed", "Jobs completed by the scheduler."),
    Series("slurm_scheduler_jobs_failed", "Jobs failed by the scheduler."),
    Series("slurm_scheduler_jobs_cancelled", "Jobs canceled by the scheduler."),
    Series("slurm_scheduler_jobs_pending", "Jobs pending in the scheduler queue."),
    Series("slurm_scheduler_jobs_running", "Jobs currently running in the scheduler."),
    Series("slurm_scheduler_queue", "Items in the scheduler queue."),
    Series("slurm_scheduler_threads", "Scheduler threads."),
)
"""In the documents' order."""
BY_NAME: Final = {series.name: series for series in TABLE}
