"""Which event led from one lock to another; pure."""

from typing import Final

from sunk_events.base import Cause, question_id
from sunk_events.requests import ReleaseLock
from sunk_nodeset_controller.locks.model import NodeLock, Seen

_SIGNS: Final = frozenset({"running", "completing"})


def cause(node: str, seen: Seen, lock: NodeLock) -> Cause:
    """Return what led from the lock that was *seen* on *node* to *lock*.

    That is the question of the job that waits or was granted last, or what the bus says of it; else that of
    one that has gone; where nobody came or went, the lock itself, whose time is over.
    """
    before = {holder.job: holder for holder in seen.lock.holders}
    after = {holder.job: holder for holder in lock.holders}
    asks = {ask.job: ask.cause for ask in seen.asks}
    came = [holder for job, holder in after.items() if holder.granted is None or before.get(job) != holder]
    for holder in sorted(came, key=lambda holder: holder.asked, reverse=True):
        if asked := asks.get(holder.job):
            return asked
        if (found := seen.jobs.get(holder.job)) is not None and found.place in _SIGNS:
            return found.event
    for job in sorted(before.keys() - after.keys(), reverse=True):
        if job in seen.released:
            return Cause(question_id(ReleaseLock, node, job))
        if (found := seen.jobs.get(job)) is not None:
            return found.event
    return seen.event
