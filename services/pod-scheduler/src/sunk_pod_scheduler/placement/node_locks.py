"""Whether the nodes of a job are locked for it, by what the bus says of their locks.

What must stay true: no Pod is bound while a node of its job has a lock that is not granted to this run of the
job. Slurm alone does not tell: DeferBatch keeps a script from starting for as long as the job's reason is
Prolog, and its user takes that away by ``scontrol hold``. What is bound already is not asked about.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final

from sunk_events.base import REASON_MAX
from sunk_events.locks import LockHolder, LockState
from sunk_events.placements import PlacementState
from sunk_events.requests import Finding
from sunk_pod_scheduler.placement.actions import RecordReason, Wait
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S
from sunk_pod_scheduler.placement.model import JobSeen, Seen
from sunk_pod_scheduler.placement.pending_jobs import in_prolog, waits_for_lock
from sunk_slurm import granted_locks, hostlist

_EVER: Final = datetime.min.replace(tzinfo=UTC)


def ungranted(job: JobSeen, lock_of: Callable[[str], LockState | None]) -> tuple[LockState, ...]:
    """Return the locks of the job's nodes that are not granted to this run of it, by node.

    A job of which Slurm does not say when it began has had one run: any grant of its number is its own.
    """
    began = job.started or job.submitted
    since = _EVER if began is None else granted_locks.since(began)
    found = (lock for node in job.nodes if (lock := lock_of(node)) is not None)
    return tuple(lock for lock in found if not granted_locks.is_granted(lock, job.job, since))


def waiting(seen: Seen, placement: PlacementState, job: JobSeen, now: datetime) -> Wait | RecordReason | None:
    """Return the wait for the locks of the job's nodes; None where they are granted, or the Pod runs.

    A Pod that runs without a job is not kept from its next one: it is bound.
    """
    if placement.lost is not None or seen.ungranted == ():
        return None
    if seen.ungranted is None:
        return Wait(ASK_AGAIN_S)
    for lock in seen.ungranted:
        if any(one.granted is not None for one in _own(lock, job)):
            why = f"job {job.job} waits until {lock.node} is locked for it: the lock is {_stand(lock, job)}"
            return waits_for_lock(placement, job, now, why)
    return in_prolog(placement, job, now)


def finding(seen: Seen, job: JobSeen) -> Finding | None:
    """Return which locks a job that runs waits for, for people; None where it waits for none.

    Pods that are in the way are not named: they may be other tenants'.
    """
    if seen.ungranted is None:
        return Finding(
            what="it is not known whether its nodes are locked",
            because="the locks on the bus are not read yet",
            would_change="wait a moment",
        )
    if not seen.ungranted:
        return None
    where = hostlist.compress(lock.node for lock in seen.ungranted)
    first = seen.ungranted[0]
    return Finding(
        what=f"waits for the lock of {where}"[:REASON_MAX],
        since=min((one.asked for one in _own(first, job) if one.asked is not None), default=None),
        because=f"the lock of {first.node} is {_stand(first, job)}"[:REASON_MAX],
        would_change=f"the lock is granted to job {job.job}: explain the node",
    )


def _stand(lock: LockState, job: JobSeen) -> str:
    if any(one.granted is not None for one in _own(lock, job)):
        return f"granted to an earlier run of job {job.job}, or the clock of the lock is far behind Slurm's"
    if lock.lock == "false":
        return "not requested yet"
    others = sorted(one.job for one in lock.holders if one.job != job.job)
    held = f", held for job{'s' if len(others) > 1 else ''} {', '.join(map(str, others))}" if others else ""
    return f"{'pending' if lock.lock == 'pending' else 'not granted to it'}{held}"


def _own(lock: LockState, job: JobSeen) -> Iterable[LockHolder]:
    return (one for one in lock.holders if one.job == job.job)
