"""Facts and state of Slurm jobs. Owner: syncer."""

import msgspec

from sunk_events.base import Count, Event, Hostlist, JobId, Moment, Reason, State


class JobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a fact about a Slurm job says of it."""

    job: JobId
    state: str
    """Slurm's base state, upper-case: ``PENDING``, ``RUNNING``, ``COMPLETED``, ``CANCELLED``..."""
    flags: tuple[str, ...] = ()
    name: str = ""
    user: str = ""
    partition: str = ""
    nodes: Hostlist = ""
    exit_code: int | None = None
    reason: Reason = ""
    """Why it waits, in Slurm's words: ``JobHeldUser``, ``Resources``..."""


class JobSubmitted(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.job_submitted"):
    """Slurm knows a job that it did not know before."""

    data: JobSnapshot


class JobStarted(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.job_started"):
    """A job is RUNNING: its nodes are allocated, its prolog may still run."""

    data: JobSnapshot


class JobRequeued(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.job_requeued"):
    """A job that had started is PENDING again."""

    data: JobSnapshot


class JobHeld(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.job_held"):
    """A PENDING job is held: Slurm does not start it before it is released."""

    data: JobSnapshot


class JobReleased(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.job_released"):
    """A job that was held may start."""

    data: JobSnapshot


class JobCompleting(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.job_completing"):
    """A job has ended; epilogs or processes still hold nodes."""

    data: JobSnapshot


class JobEnded(Event, frozen=True, kw_only=True, tag="sunk.syncer.v1.job_ended"):
    """A job reached a final state and has left its nodes."""

    data: JobSnapshot


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """What a job holds on each node of a set of nodes that hold the same."""

    nodes: Hostlist
    cpus: Count = 0
    memory_mib: Count = 0
    gpus: Count = 0


class SlurmJobState(State, frozen=True, kw_only=True, tag="sunk.syncer.v1.slurm_job"):
    """One Slurm job that slurmctld still knows. Key: its id."""

    job: JobId
    state: str
    """The base state, upper-case. An unknown word is a newer Slurm's."""
    flags: tuple[str, ...] = ()
    """Upper-case and sorted: ``COMPLETING``, ``CONFIGURING``, ``REQUEUED``..."""
    is_running: bool = False
    """It holds nodes and its processes may run: RUNNING or SUSPENDED."""
    is_completing: bool = False
    """It has ended, but epilogs or processes still hold nodes."""
    is_over: bool = False
    """Its state is final. It may still be completing."""
    reason: Reason = ""
    name: str = ""
    user: str = ""
    user_id: Count = 0
    account: str = ""
    partition: str = ""
    qos: str = ""
    nodes: Hostlist = ""
    """The nodes that it holds or held."""
    allocations: tuple[Allocation, ...] = ()
    cpus: Count = 0
    gpus: Count = 0
    submitted: Moment | None = None
    started: Moment | None = None
    """Start of the prolog, which is what Slurm calls the start."""
    ended: Moment | None = None
    exit_code: int | None = None
    array_job: int | None = None
    array_tasks: Count = 1
    """How many tasks this record stands for: a pending array is one record."""
    het_job: int | None = None
    is_dependency_pending: bool = False
    is_held: bool = False
    """It is PENDING and waits for its owner or an administrator to release it."""
    priority: Count | None = None
    """Slurm's, as it was when the job was last looked at; 0 while it is held, None where it is not known."""
    restarts: Count = 0
    """How often it was requeued."""
    extra: Reason = ""
    admin_comment: Reason = ""
