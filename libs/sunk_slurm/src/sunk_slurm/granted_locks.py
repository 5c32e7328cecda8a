"""Whether a lock on the bus is granted to a job, and to this run of it. Pure.

What must stay true: a grant of a run before says nothing of this one. A job that is requeued keeps its
number, and slurmctld gives numbers again once it has lost its state.
"""

from datetime import datetime, timedelta
from typing import Final

from sunk_events.locks import LockState

SKEW: Final = timedelta(seconds=60)
"""The clocks of slurmctld and of the lock's owner may differ by so much. A requeued job waits for longer."""


def since(started: datetime) -> datetime:
    """Return from when on a grant is one of the run that *started* then, and not of one before it."""
    return started - SKEW


def is_granted(lock: LockState | None, job: int, since: datetime) -> bool:
    """Whether *lock* was granted to *job* after *since*."""
    holders = lock.holders if lock is not None else ()
    return any(
        holder.job == job and holder.granted is not None and holder.granted >= since for holder in holders
    )
