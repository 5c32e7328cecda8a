"""Where a job that waits stands in Slurm's queue, from the jobs on the bus.

What must stay true: no Slurm is asked; where it is not known whether a job comes before another, the place is
a range, and never a guess.

Source: slurmctld tries the job of the highest priority first, of equal ones that of the lowest number (seen
on 24.11 and 26.05); a job that is held, or waits for another job or a time, it does not try.
"""

from collections.abc import Container, Iterable
from typing import Final

import msgspec

from sunk_events.base import REASON_MAX
from sunk_events.jobs import SlurmJobState
from sunk_events.placements import PlacementState
from sunk_events.requests import Finding

SHOWN_MAX: Final = 5
"""Of the jobs ahead, the first ones."""
NOT_YET: Final = frozenset({"BeginTime", "Dependency", "DependencyNeverSatisfied"})
"""Reasons of jobs that Slurm does not try."""


class QueuePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A job's place among those that wait for a partition of its own; each task of an array counts."""

    first: int
    """The best that it may be, from 1."""
    last: int
    """The worst: more than the best where some priorities are not known."""
    size: int
    """How many wait, itself among them."""
    ahead: tuple[SlurmJobState, ...] = ()
    """The jobs that are surely before it, the next to be tried first."""


def place(job: SlurmJobState, jobs: Iterable[SlurmJobState], released: Container[int] = ()) -> QueuePlace:
    """Return where *job*, which waits, stands among *jobs*.

    Args:
        job: Of itself, its partitions, its number and its priority count.
        jobs: Every job that is known; *job* may be among them.
        released: The jobs that are known not to be held, though the bus may have heard only of the hold.
    """
    partitions = _partitions(job)
    others = [
        other
        for other in jobs
        if other.job != job.job
        and is_queued(other, released)
        and not partitions.isdisjoint(_partitions(other))
    ]
    ahead = sorted((other for other in others if _is_before(other, job) is True), key=_order)
    unsure = sum(other.array_tasks for other in others if _is_before(other, job) is None)
    first = 1 + sum(other.array_tasks for other in ahead)
    size = job.array_tasks + sum(other.array_tasks for other in others)
    return QueuePlace(first=first, last=first + unsure, size=size, ahead=tuple(ahead))


def place_finding(
    job: SlurmJobState,
    jobs: Iterable[SlurmJobState],
    released: Container[int] = (),
    *,
    is_ahead_named: bool = True,
) -> Finding:
    """Return that place in an operator's words; arguments are those of `place`.

    Unless *is_ahead_named* the jobs ahead are left out: who asks may not know them (Slurm's PrivateData).
    """
    found = place(job, jobs, released)
    is_sure = found.last == found.first
    where = f"place {found.first}" if is_sure else f"place {found.first} to {found.last}"
    more = len(found.ahead) - SHOWN_MAX
    named = ", ".join(map(_named, found.ahead[:SHOWN_MAX])) + (f" and {more} more" if more > 0 else "")
    ahead = f"ahead: {named}" if named else "no job is known to be ahead"
    if not is_ahead_named:
        ahead = "jobs are ahead" if found.ahead else "no job is known to be ahead"
    waits = f"the jobs ahead start or end, or its priority ({job.priority or 'not known'}) rises"
    return Finding(
        what=f"{where} of {found.size} in the queue of {job.partition or 'its partition'}"[:REASON_MAX],
        because=(ahead if is_sure else f"some priorities are not known; {ahead}")[:REASON_MAX],
        would_change=f"{waits}; Slurm may start it sooner by backfill"
        if found.last > 1
        else "nodes are free for it",
    )


def is_queued(job: SlurmJobState, released: Container[int] = ()) -> bool:
    """Whether Slurm tries to start *job*; those *released* are not held, whatever the bus has heard."""
    if job.state != "PENDING" or job.is_dependency_pending or job.reason in NOT_YET:
        return False
    return not job.is_held or job.job in released


def released_jobs(placements: Iterable[PlacementState]) -> frozenset[int]:
    """Return the placeholder jobs that wait for their turn: each is submitted held, and released at once."""
    return frozenset(one.job for one in placements if one.phase == "released" and one.job is not None)


def _is_before(other: SlurmJobState, job: SlurmJobState) -> bool | None:
    """Whether Slurm tries *other* first; None where a priority is not known, as of one that is held: 0."""
    if not other.priority or not job.priority:
        return None
    return _order(other) < _order(job)


def _order(job: SlurmJobState) -> tuple[int, int]:
    return -(job.priority or 0), job.job


def _partitions(job: SlurmJobState) -> frozenset[str]:
    """Return those that *job* may run in: one that waits may name several."""
    return frozenset(job.partition.split(","))


def _named(job: SlurmJobState) -> str:
    tasks = f", {job.array_tasks} tasks" if job.array_tasks > 1 else ""
    reason = job.reason or "Slurm has not looked at it yet"
    return f"job {job.job} of {job.user or job.user_id} ({reason}{tasks})"
