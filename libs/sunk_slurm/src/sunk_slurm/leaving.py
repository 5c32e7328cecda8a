"""What a job that waits for the locks of its nodes is told: how many Pods have to leave, and by when. Pure.

What must stay true: the text names no Pod and no namespace, for a user of Slurm may not be allowed to know
those of other tenants; only Slurm's own names of the job's nodes are in it.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from sunk_events.locks import LockState

LATE_S: Final = 5.0
"""A Pod that is still there so long after its end was due is late."""
_SAME_DAY: Final = timedelta(hours=12)
"""A moment that is further away has its date: a tenant chooses how long his Pod may take to end."""


def is_waiting(lock: LockState | None, job: int) -> bool:
    """Whether *job* waits for *lock* because of Pods; a placeholder, which asks strictly, never does."""
    if lock is None or lock.lock != "pending" or not count(lock):
        return False
    return any(one.job == job and one.granted is None and one.level == "normal" for one in lock.holders)


def count(lock: LockState) -> int:
    """Return how many Pods are in the way; of an earlier nodeset-controller those that it names."""
    return len(lock.in_the_way) if lock.leaving is None else lock.leaving


def text(locks: Iterable[LockState], now: datetime) -> str:
    """Return what a job that waits for *locks* is told; nothing if it waits for none.

    Args:
        locks: Those of its nodes that are in its way.
        now: What the end of Pods is compared with.
    """
    waited_for = sorted(locks, key=lambda lock: lock.node)
    pods = sum(map(count, waited_for))
    if not pods:
        return ""
    first = waited_for[0].node
    more = len(waited_for) - 1
    where = f"node {first}" if not more else f"{len(waited_for)} nodes of this job (the first is {first})"
    who = "1 Pod has" if pods == 1 else f"{pods} Pods have"
    return f"{who} to leave {where}{_end(waited_for, now)}"


def _until(locks: Iterable[LockState]) -> datetime | None:
    ends = [lock.leaving_until for lock in locks]
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None


def _end(locks: Collection[LockState], now: datetime) -> str:
    end = _until(locks)
    if end is None:
        return ""
    shown = f"{end:%H:%M:%S} UTC" if abs(end - now) < _SAME_DAY else f"{end:%Y-%m-%d %H:%M:%S} UTC"
    if now >= end + timedelta(seconds=LATE_S):
        return f", the last was due at {shown}"
    return f", the last by {shown}"
