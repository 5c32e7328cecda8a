"""What slurmrestd sends and takes, as structs: only the fields that we use.

Unknown fields are ignored and missing ones have Slurm's "nothing" as default, so that one set of structs
reads every API version of `VERSIONS`. Where versions differ, `VERSIONS` or a property says so.

Source: the OpenAPI documents of slurmrestd 24.11 (v0.0.42) and 26.05 (v0.0.42 to v0.0.45).
"""

from datetime import UTC, datetime
from math import isfinite
from typing import Final

import msgspec

from sunk_slurm import gres as gres_text
from sunk_slurm.states import JobState, NodeState

VERSIONS: Final = ("v0.0.44", "v0.0.43", "v0.0.42", "v0.0.45")
"""The API versions that we speak, the best first.

Older ones take no number as ``update_time``. v0.0.45 comes last: it no longer says how a job shares its
nodes (``shared`` is always empty). v0.0.42 is the only one of 24.11 that will do, and goes with 26.11.
"""


class Number(msgspec.Struct, frozen=True):
    """A number that may be unset or infinite."""

    set: bool = False
    infinite: bool = False
    number: float = 0

    @property
    def value(self) -> int | None:
        """The number; None where it is unset or infinite."""
        return int(self.number) if self.set and not self.infinite and isfinite(self.number) else None

    @property
    def moment(self) -> datetime | None:
        """The number as a time in UTC; None where it is unset, infinite, no time, or 0 or less: "never"."""
        if (self.value or 0) <= 0:
            return None
        try:
            return datetime.fromtimestamp(self.number, UTC)
        except (OverflowError, ValueError, OSError):
            return None

    @classmethod
    def of(cls, number: float | None) -> "Number":
        """Return *number* as Slurm writes it; None is infinite."""
        return cls(infinite=True) if number is None else cls(set=True, number=number)


NO_NUMBER: Final = Number()


class Problem(msgspec.Struct, frozen=True):
    """An error or a warning in an answer."""

    error_number: int = 0
    error: str = ""
    description: str = ""
    source: str = ""

    def __str__(self) -> str:
        """Return what Slurm said, in one phrase."""
        words = ": ".join(part for part in (self.description, self.error) if part)
        return f"{words or 'no reason given'} ({self.error_number})"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer may carry."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


class Features(msgspec.Struct, frozen=True):
    """A node's features. Jobs may ask for those that are active, which are some of those available."""

    available: tuple[str, ...]
    active: tuple[str, ...]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm node as slurmrestd shows it. Memory is in MiB."""

    name: str
    state: tuple[str, ...] = ()
    reason: str = ""
    reason_set_by_user: str = ""
    reason_changed_at: Number = NO_NUMBER
    cpus: int = 0
    effective_cpus: int = 0
    """Without those set aside for the system."""
    alloc_cpus: int = 0
    real_memory: int = 0
    alloc_memory: int = 0
    gres: str = ""
    gres_used: str = ""
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    address: str = ""
    extra: str = ""
    comment: str = ""
    boot_time: Number = NO_NUMBER
    slurmd_start_time: Number = NO_NUMBER
    version: str = ""
    topology: str | None = None
    """Its place in each topology of topology.yaml; None: this Slurm has no such places (24.11)."""

    @property
    def state_now(self) -> NodeState:
        """Its state, with Slurm's predicates; partly allocated is MIXED, as in sinfo."""
        state = NodeState.of(self.state)
        if state.base == "ALLOCATED" and 0 < self.alloc_cpus < (self.effective_cpus or self.cpus):
            return NodeState("MIXED", state.flags)
        return state

    @property
    def features_now(self) -> Features:
        """Its features. Of a node of slurm.conf that nobody changed, "none is active" means that all are."""
        is_known = bool(self.active_features) or "DYNAMIC_NORM" in NodeState.of(self.state).flags
        return Features(self.features, self.active_features if is_known else self.features)


class NodesAnswer(Answer, frozen=True, kw_only=True):
    """GET nodes/ and node/{name}. An unknown node is an answer without ``nodes``."""

    nodes: tuple[Node, ...] = ()
    last_update: Number = NO_NUMBER


class CpusHeld(msgspec.Struct, frozen=True):
    """CPUs of a job on one node."""

    count: int = 0


class MemoryHeld(msgspec.Struct, frozen=True):
    """Memory of a job on one node, in MiB."""

    allocated: int = 0


class NodeHeld(msgspec.Struct, frozen=True, kw_only=True):
    """What a job holds on one node."""

    name: str = ""
    cpus: CpusHeld = CpusHeld()
    memory: MemoryHeld = MemoryHeld()


class NodesHeld(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that a job holds, in the order of Slurm's node table."""

    allocation: tuple[NodeHeld, ...] = ()


class JobResources(msgspec.Struct, frozen=True, kw_only=True):
    """What a job holds; it stays as it was when the job is over."""

    nodes: NodesHeld = NodesHeld()
    cpus: int = 0


class Signal(msgspec.Struct, frozen=True):
    """A signal that ended a job."""

    id: Number = NO_NUMBER


class ExitCode(msgspec.Struct, frozen=True, kw_only=True):
    """How a job's script ended."""

    status: tuple[str, ...] = ()
    return_code: Number = NO_NUMBER
    signal: Signal = Signal()

    @property
    def number(self) -> int | None:
        """As a shell says it: the return code, or 128 and the signal; None where it has not ended."""
        if (signal := self.signal.id.value) is not None and signal > 0:
            return 128 + signal
        return self.return_code.value


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm job as slurmrestd shows it."""

    job_id: int
    job_state: tuple[str, ...] = ()
    state_reason: str = ""
    state_description: str = ""
    name: str = ""
    user_name: str = ""
    user_id: int = 0
    account: str = ""
    partition: str = ""
    qos: str = ""
    nodes: str = ""
    excluded_nodes: str = ""
    """As its submitter, or the last user that changed it, spelled them."""
    batch_host: str = ""
    job_resources: JobResources | None = None
    gres_detail: tuple[str, ...] = ()
    """One text a node, in the order of the allocation."""
    cpus: Number = NO_NUMBER
    node_count: Number = NO_NUMBER
    tres_req_str: str = ""
    tres_alloc_str: str = ""
    submit_time: Number = NO_NUMBER
    start_time: Number = NO_NUMBER
    """Start of the prolog. For a pending job it is an estimate, or 0."""
    end_time: Number = NO_NUMBER
    """For a running job: when its time limit ends it."""
    suspend_time: Number = NO_NUMBER
    preempt_time: Number = NO_NUMBER
    """When another job was given its place; it ends within its grace."""
    time_limit: Number = NO_NUMBER
    exit_code: ExitCode = ExitCode()
    array_job_id: Number = NO_NUMBER
    array_task_id: Number = NO_NUMBER
    array_task_string: str = ""
    het_job_id: Number = NO_NUMBER
    het_job_id_set: str = ""
    dependency: str = ""
    hold: bool = False
    priority: Number = NO_NUMBER
    requeue: bool = False
    restart_cnt: int = 0
    flags: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    """Lost in v0.0.45, see `VERSIONS`."""
    comment: str = ""
    admin_comment: str = ""
    extra: str = ""

    @property
    def state_now(self) -> JobState:
        """Its state, with Slurm's predicates."""
        return JobState.of(self.job_state)

    @property
    def name_in_slurm(self) -> str:
        """What Slurm's commands call this job and no other: `ArrayJobId_TaskId` of a task.

        The last task of an array has the array's own number, by which they mean all tasks. A heterogeneous
        job is one for them too, called by its first component.
        """
        if (array := self.array_job_id.value) and (task := self.array_task_id.value) is not None:
            return f"{array}_{task}"
        return str(self.het_job_id.value or self.job_id)

    @property
    def gpus(self) -> int:
        """GPUs held on all nodes, as the scheduler counts them where it can, else as the nodes do."""
        counted = gres_text.tres_count(self.tres_alloc_str, "gres/gpu")
        return counted if counted is not None else sum(gres_text.gpus(text) for text in self.gres_detail)


class JobsAnswer(Answer, frozen=True, kw_only=True):
    """GET job/{id}. For an array's id it holds every record of the array."""

    jobs: tuple[Job, ...] = ()


class JobRecordsAnswer(Answer, frozen=True, kw_only=True):
    """The same, each record as it came."""

    jobs: tuple[msgspec.Raw, ...] = ()


class JobStateRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of GET jobs/state/. An array's pending record has one row for each of its tasks."""

    job_id: str
    """The record's id; with ``_<task>`` for tasks of arrays, ``+<n>`` for parts of heterogeneous jobs."""
    state: tuple[str, ...] = ()

    @property
    def number(self) -> int | None:
        """4 of ``4``, ``4_3`` and ``4+1``; None where that is no number."""
        digits = self.job_id.replace("+", "_").partition("_")[0]
        return int(digits) if digits.isdecimal() and len(digits) < 20 else None  # noqa: PLR2004 - longer than 64 bits


class JobStatesAnswer(Answer, frozen=True, kw_only=True):
    """GET jobs/state/."""

    jobs: tuple[JobStateRow, ...] = ()


class SubmitAnswer(Answer, frozen=True, kw_only=True):
    """POST job/submit."""

    job_id: int = 0
    job_submit_user_msg: str = ""
