"""What slurmctld keeps: its records, which outlive its process. Plain values; nothing here decides."""

from dataclasses import dataclass, field
from typing import Final

NO_EXIT: Final = -1


@dataclass
class NodeRecord:
    """A node, as it was configured or registered itself."""

    name: str
    cpus: int = 4
    real_memory: int = 16000
    gpus: int = 0
    address: str = ""
    is_static: bool = True
    """slurm.conf names it."""
    has_slurmd: bool = True
    """Or it is a record that nobody asks, as ``State=CLOUD``."""
    base: str = "UNKNOWN"
    """DOWN, IDLE, UNKNOWN or FUTURE; whether jobs make it ALLOCATED is found when it is asked."""
    flags: set[str] = field(default_factory=set[str])
    reason: str = ""
    reason_user: str = ""
    reason_time: int = 0
    extra: str = ""
    comment: str = ""
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    boot_time: int = 0
    slurmd_start_time: int = 0
    last_response: float = 0.0
    counted: tuple[int, int, int] = (0, 0, 0)
    """CPUs, memory and GPUs that were allocated when all nodes were listed last."""


@dataclass
class Held:
    """What a job holds on one node."""

    cpus: int
    memory: int
    gpus: int


@dataclass
class JobRecord:
    """A job; of an array one for all tasks that have not begun, and one for each that has."""

    job_id: int
    name: str = ""
    user_id: int = 0
    group_id: int = 0
    account: str = ""
    partition: str = ""
    qos: str = ""
    script: str = ""
    environment: tuple[str, ...] = ()
    array_job_id: int = 0
    array_task_id: int | None = None
    array_tasks: tuple[int, ...] = ()
    """Those for which this record stands, none of which has begun."""
    het_job_id: int = 0
    het_offset: int = 0
    base: str = "PENDING"
    flags: set[str] = field(default_factory=set[str])
    reason: str = "None"
    description: str = ""
    priority: int = 1
    """0: held."""
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: str = ""
    min_nodes: int = 1
    max_nodes: int = 0
    """0: as many as at least."""
    tasks: int = 0
    tasks_per_node: int = 0
    cpus_per_task: int = 1
    memory: int | None = None
    """Of each node, in MiB; None: so much for each CPU, as DefMemPerCPU has it; 0: all of it."""
    gpus: int = 0
    """Of each node."""
    constraints: tuple[str, ...] = ()
    shared: str = ""
    """``none`` is the whole node, ``user`` none but the same user's."""
    dependency: str = ""
    reservation: str = ""
    time_limit: int | None = None
    """Minutes; None is for ever."""
    requeue: bool = True
    warning_signal: str = ""
    extra: str = ""
    comment: str = ""
    admin_comment: str = ""
    submit_time: int = 0
    begin_time: int = 0
    start_time: int = 0
    end_time: int = 0
    suspend_time: int = 0
    preempt_time: int = 0
    restart_cnt: int = 0
    exit_code: int = 0
    signal: int = 0
    has_exited: bool = False
    nodes: tuple[str, ...] = ()
    held: dict[str, Held] = field(default_factory=dict[str, Held])
    preparing: set[str] = field(default_factory=set[str])
    """Nodes whose prologs have not ended."""
    cancelled_by: str = ""
    completing: set[str] = field(default_factory=set[str])
    """Nodes whose epilogs have not ended."""
    is_launched: bool = False
    """Its batch script was sent to its node."""
    life: int = 0
    """When it began, as nobody else of its number did: what an earlier life sends is told by it."""

    @property
    def is_pending(self) -> bool:
        """It waits, or will when it has completed."""
        return self.base == "PENDING"

    @property
    def is_completing(self) -> bool:
        """Nodes are left to be freed."""
        return "COMPLETING" in self.flags

    @property
    def is_active(self) -> bool:
        """It holds nodes for itself."""
        return self.base in {"RUNNING", "SUSPENDED"}

    @property
    def is_over(self) -> bool:
        """Its state is final."""
        return self.base not in {"PENDING", "RUNNING", "SUSPENDED"}

    @property
    def batch_host(self) -> str:
        """The node that its script runs on."""
        return self.nodes[0] if self.nodes and not self.het_offset else ""


@dataclass
class PartitionRecord:
    """A partition."""

    name: str
    nodes: str
    priority_tier: int
    grace_time_s: int
    is_up: bool = True


@dataclass
class ReservationRecord:
    """A reservation."""

    name: str
    nodes: str
    users: str
    flags: tuple[str, ...]
    start_time: int
    end_time: int


@dataclass
class AccountedJob:
    """What slurmdbd keeps of one life of a job."""

    job_id: int
    name: str
    user: str
    submit_time: int
    end_time: int = 0
    extra: str = ""
    """It comes with the end."""
    state: str = "PENDING"
    kill_request_user: str = ""


@dataclass
class State:
    """All that StateSaveLocation holds."""

    jobs: dict[int, JobRecord] = field(default_factory=dict[int, JobRecord])
    nodes: dict[str, NodeRecord] = field(default_factory=dict[str, NodeRecord])
    partitions: dict[str, PartitionRecord] = field(default_factory=dict[str, PartitionRecord])
    reservations: dict[str, ReservationRecord] = field(default_factory=dict[str, ReservationRecord])
    last_job_id: int = 0
