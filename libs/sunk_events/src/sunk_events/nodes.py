"""Facts and state of Slurm nodes, partitions, reservations and the scheduler. Owner: syncer."""

import msgspec

from sunk_events.base import Count, Event, Hostlist, Moment, NodeName, Reason, State


class NodeSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a fact about a Slurm node says of it."""

    node: NodeName
    state: str
    """Slurm's base state, upper-case: ``IDLE``, ``ALLOCATED``, ``MIXED``, ``DOWN``..."""
    flags: tuple[str, ...] = ()
    reason: Reason = ""


class NodeRegistered(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_registered"):
    """Slurm knows a node that it did not know before."""

    data: NodeSnapshot


class NodeRemoved(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_removed"):
    """Slurm's record of a node is gone."""

    data: NodeSnapshot


class NodeDraining(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_draining"):
    """A Slurm node now carries the DRAIN flag; jobs still run on it."""

    data: NodeSnapshot


class NodeDrained(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_drained"):
    """A Slurm node carries the DRAIN flag and runs no job."""

    data: NodeSnapshot


class NodeUndrained(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_undrained"):
    """A Slurm node lost the DRAIN flag."""

    data: NodeSnapshot


class NodeDown(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_down"):
    """A Slurm node is DOWN."""

    data: NodeSnapshot


class NodeUp(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_up"):
    """A Slurm node is no longer DOWN."""

    data: NodeSnapshot


class NodeNotResponding(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_not_responding"):
    """slurmctld no longer reaches a node's slurmd; the node is not DOWN for that yet."""

    data: NodeSnapshot


class NodeResponding(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_responding"):
    """slurmctld reaches a node's slurmd again."""

    data: NodeSnapshot


class NodeAllocated(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_allocated"):
    """A Slurm node that ran no job now runs one, or more."""

    data: NodeSnapshot


class NodeIdle(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_idle"):
    """A Slurm node that ran or completed a job now has none, drained or not."""

    data: NodeSnapshot


class ReplacedExtra(msgspec.Struct, frozen=True, kw_only=True):
    """What stood in a node's Extra before."""

    node: NodeName
    extra: Reason
    """What a user had written there, cut to what fits."""


class NodeExtraReplaced(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.node_extra_replaced"):
    """A node's Extra was no JSON object; it is one now, and what it said is gone."""

    data: ReplacedExtra


class SlurmNodeState(State, frozen=True, kw_only=True, tag="sunk.syncer.v1.slurm_node"):
    """One Slurm node. Key: its NodeName."""

    node: NodeName
    state: str
    """The base state, upper-case. An unknown word is a newer Slurm's."""
    flags: tuple[str, ...] = ()
    """Upper-case and sorted: ``DRAIN``, ``COMPLETING``, ``NOT_RESPONDING``, ``DYNAMIC_NORM``..."""
    reason: Reason = ""
    reason_user: str = ""
    """Who set the reason."""
    reason_changed: Moment | None = None
    is_drain: bool = False
    """The DRAIN flag is set, whether or not jobs still run."""
    is_busy: bool = False
    """A job runs or completes on it."""
    is_down: bool = False
    is_not_responding: bool = False
    cpus: Count = 0
    cpus_allocated: Count = 0
    memory_mib: Count = 0
    memory_allocated_mib: Count = 0
    gpus: Count = 0
    gpus_allocated: Count = 0
    gres: str = ""
    features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    address: str = ""
    extra: str = ""
    booted: Moment | None = None
    slurmd_started: Moment | None = None
    topology: str | None = None
    """Its place in each of Slurm's topologies; None: this Slurm has no such places (24.11)."""


class SlurmPartitionState(State, frozen=True, kw_only=True, tag="sunk.syncer.v1.slurm_partition"):
    """One Slurm partition. Key: its name."""

    partition: str
    state: str
    """``UP``, ``DOWN``, ``DRAIN`` or ``INACTIVE``."""
    nodes: Hostlist = ""
    nodes_total: Count = 0
    cpus_total: Count = 0


class SlurmReservationState(State, frozen=True, kw_only=True, tag="sunk.syncer.v1.slurm_reservation"):
    """One Slurm reservation that is, or is to come. Key: its name."""

    reservation: str
    nodes: Hostlist = ""
    nodes_total: Count = 0
    cores_total: Count = 0
    partition: str = ""
    flags: tuple[str, ...] = ()
    """Upper-case and sorted: ``MAINT``, ``IGNORE_JOBS``..."""
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    starts: Moment | None = None
    ends: Moment | None = None


class RpcStatistic(msgspec.Struct, frozen=True, kw_only=True):
    """What slurmctld counted for one kind of RPC since its statistics began."""

    message_type: str
    count: Count = 0
    mean_duration_s: float = 0.0


class SlurmStatisticsState(State, frozen=True, kw_only=True, tag="sunk.syncer.v1.slurm_statistics"):
    """What ``sdiag`` shows. Key: ``scheduler``. Durations are in seconds."""

    threads: Count = 0
    agent_queue: Count = 0
    dbd_queue: Count = 0
    jobs_submitted: Count = 0
    jobs_started: Count = 0
    jobs_completed: Count = 0
    jobs_canceled: Count = 0
    jobs_failed: Count = 0
    jobs_pending: Count = 0
    jobs_running: Count = 0
    cycle_last_s: float = 0.0
    cycle_mean_s: float = 0.0
    cycle_mean_depth: float = 0.0
    cycles_per_minute: float = 0.0
    queue_length: Count = 0
    backfill_cycle_last_s: float = 0.0
    backfill_cycle_mean_s: float = 0.0
    backfill_depth_mean: float = 0.0
    backfilled_jobs: Count = 0
    backfilled_jobs_since_cycle: Count = 0
    backfilled_het_jobs: Count = 0
    rpcs: tuple[RpcStatistic, ...] = ()
    nodes_answered: Moment | None = None
    """When Slurm was last asked for all nodes, answered and was believed: their states are that old."""
    jobs_answered: Moment | None = None
    """The same of all jobs."""
    partitions_answered: Moment | None = None
    """The same of partitions and reservations."""
    reconfigured: str = ""
    """A digest of the configuration files that slurmctld was last made to read; empty: none are followed."""
