"""From what Slurm shows of a job to its state on the bus and to what has happened since.

A job goes from pending to running to over, may skip the middle and may come back to pending. It is over
only when it has left its nodes: while epilogs run it is still running for a job that waits for the nodes.
"""

from collections.abc import Callable
from datetime import datetime
from enum import IntEnum
from typing import Final

from sunk_events.base import REASON_MAX, UNKNOWN, Cause, Event, caused, event_id, source
from sunk_events.jobs import (
    Allocation,
    JobCompleting,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobSnapshot,
    JobStarted,
    JobSubmitted,
    SlurmJobState,
)
from sunk_slurm.gres import gpus
from sunk_slurm.hostlist import compress
from sunk_slurm.wire import Job
from sunk_syncer.states.nodes import SERVICE

ALLOCATIONS_MAX: Final = 500
ALLOCATIONS_CHARS_MAX: Final = 32 * 1024
"""A job that holds something else on each of thousands of nodes would not fit into a message, nor would one
on nodes whose names do not fold."""
STATE_UNKNOWN: Final = "UNKNOWN"

OURS: Final = (JobRequeued, JobReleased)
"""What follows from what the syncer does to a job, where it did so lately."""

JobFact = type[JobSubmitted | JobStarted | JobRequeued | JobHeld | JobReleased | JobCompleting | JobEnded]


class Stage(IntEnum):
    """How far a job is."""

    NEW = 0
    PENDING = 1
    RUNNING = 2
    OVER = 3


def job_state(seen: Job, tasks: int, now: datetime, before: SlurmJobState | None = None) -> SlurmJobState:
    """Return *seen* as others may read it; *tasks* is how many tasks of an array the record stands for.

    slurmrestd gives no name of a user whom it does not know at the moment, as while its directory is away:
    then the name of *before* stays.
    """
    state = seen.state_now
    known = before.user if before is not None and before.user_id == seen.user_id else ""
    return SlurmJobState(
        changed=now,
        job=seen.job_id,
        state=state.base,
        flags=tuple(sorted(state.flags)),
        is_running=state.is_running or state.is_suspended,
        is_completing=state.is_completing,
        is_over=state.is_over,
        reason="" if seen.state_reason == "None" else seen.state_reason[:REASON_MAX],
        name=seen.name,
        user=seen.user_name or known,
        user_id=max(seen.user_id, 0),
        account=seen.account,
        partition=seen.partition,
        qos=seen.qos,
        nodes=seen.nodes,
        allocations=allocations(seen),
        cpus=max(seen.cpus.value or 0, 0),
        gpus=seen.gpus,
        submitted=seen.submit_time.moment,
        started=None if state.is_pending else seen.start_time.moment,
        ended=seen.end_time.moment if state.is_over else None,
        exit_code=seen.exit_code.number if state.is_over else None,
        array_job=seen.array_job_id.value or None,
        array_tasks=tasks,
        het_job=seen.het_job_id.value or None,
        is_dependency_pending=state.is_pending and seen.state_reason == "Dependency",
        is_held=state.is_pending and (seen.hold or seen.priority.value == 0),
        priority=_priority(seen),
        restarts=max(seen.restart_cnt, 0),
        extra=seen.extra[:REASON_MAX],
        admin_comment=seen.admin_comment[:REASON_MAX],
    )


def _priority(seen: Job) -> int | None:
    """Return the priority of a job that waits: afterwards it changes with its age, and says nothing."""
    priority = seen.priority.value
    return priority if seen.state_now.is_pending and priority is not None and priority >= 0 else None


def allocations(seen: Job) -> tuple[Allocation, ...]:
    """Return what the job holds on its nodes, those that hold the same folded into one; none if too many."""
    if seen.job_resources is None:
        return ()
    nodes_by_share: dict[tuple[int, int, int], list[str]] = {}
    for index, held in enumerate(seen.job_resources.nodes.allocation):
        detail = seen.gres_detail[index] if index < len(seen.gres_detail) else ""
        share = max(held.cpus.count, 0), max(held.memory.allocated, 0), gpus(detail)
        nodes_by_share.setdefault(share, []).append(held.name)
    if len(nodes_by_share) > ALLOCATIONS_MAX:
        return ()
    found = tuple(
        Allocation(nodes=compress(nodes), cpus=cpus, memory_mib=memory, gpus=held_gpus)
        for (cpus, memory, held_gpus), nodes in nodes_by_share.items()
    )
    return found if sum(len(one.nodes) for one in found) <= ALLOCATIONS_CHARS_MAX else ()


def job_facts(
    before: SlurmJobState | None,
    after: SlurmJobState,
    *,
    cluster: str,
    revision: int,
    now: datetime,
    cause: Cause = UNKNOWN,
) -> tuple[Event, ...]:
    """Return what has happened to a job between two states.

    Args:
        before: What the bus holds at *revision*.
        after: What was seen.
        cluster: The Slurm cluster.
        revision: Of *before*.
        now: The time.
        cause: Of our requeueing or releasing it lately.
    """
    former: tuple[Event, ...] = ()
    is_another = before is not None and _is_another(before, after)
    if before is not None and is_another:
        former, before = job_vanished(before, cluster=cluster, revision=revision, now=now), None
    was, is_now = _stage(before), _stage(after)
    kinds: list[JobFact] = []
    if was is Stage.NEW:
        kinds.append(JobSubmitted)
    if is_now < was or (before is not None and after.restarts > before.restarts):
        kinds.append(JobRequeued)
        was = Stage.PENDING
    if (before is not None and before.is_held) != after.is_held:
        kinds.append(JobHeld if after.is_held else JobReleased)
    if was < Stage.RUNNING and (is_now is Stage.RUNNING or (is_now is Stage.OVER and _has_run(after))):
        kinds.append(JobStarted)
    if after.is_over and after.is_completing and not (before is not None and before.is_over):
        kinds.append(JobCompleting)
    if is_now is Stage.OVER and was is not Stage.OVER:
        kinds.append(JobEnded)
    facts = (_fact(kind, after, cluster, revision, now, is_another=is_another) for kind in kinds)
    return (*former, *(caused(fact, cause) if isinstance(fact, OURS) else fact for fact in facts))


def job_vanished(before: SlurmJobState, *, cluster: str, revision: int, now: datetime) -> tuple[Event, ...]:
    """Return what has happened to a job that slurmctld no longer knows: how it ended nobody can tell."""
    if _stage(before) is Stage.OVER:
        return ()
    return (_fact(JobEnded, before, cluster, revision, now, state=STATE_UNKNOWN),)


def _is_another(before: SlurmJobState, after: SlurmJobState) -> bool:
    """Whether slurmctld had lost its state since *before*, and has given the number to another job.

    A requeue moves the time of submission too, but slurmctld has counted the restart by then: it does so at
    once, and moves the time only when the epilogs have ended. A job of scrontab counts each run as a restart
    and has a new time of submission each time (seen on 24.11 and 26.05).
    """
    if _stage(after) < _stage(before) and (before.user_id, before.name) != (after.user_id, after.name):
        return True
    if before.submitted is None or after.submitted is None:
        return False
    return before.submitted != after.submitted and after.restarts < max(before.restarts, 1)


def _stage(state: SlurmJobState | None) -> Stage:
    if state is None:
        return Stage.NEW
    if state.is_over and not state.is_completing:
        return Stage.OVER
    return Stage.PENDING if state.state == "PENDING" else Stage.RUNNING


def _has_run(state: SlurmJobState) -> bool:
    return state.started is not None and bool(state.nodes)


def _fact(
    kind: JobFact,
    after: SlurmJobState,
    cluster: str,
    revision: int,
    now: datetime,
    *,
    state: str = "",
    is_another: bool = False,
) -> Event:
    make: Callable[..., Event] = kind
    # The end of a job and that of the next one with its number may follow from one look.
    about = (after.job, revision, "another") if is_another else (after.job, revision)
    return make(
        id=event_id(kind.__name__, *about),
        source=source(cluster, SERVICE),
        subject=str(after.job),
        time=now,
        data=JobSnapshot(
            job=after.job,
            state=state or after.state,
            flags=after.flags,
            name=after.name,
            user=after.user,
            partition=after.partition,
            nodes=after.nodes,
            exit_code=after.exit_code,
            reason=after.reason,
        ),
    )
