"""The lock as the bus has it: its state, the facts about what changed, and what led to that."""

from datetime import datetime
from typing import Final

from sunk_events.base import Cause, Event, event_id, question_id, source
from sunk_events.locks import (
    FailedLock,
    LockHolder,
    LockLocked,
    LockPending,
    LockSnapshot,
    LockState,
    LockUnlocked,
    LockValue,
)
from sunk_events.requests import ReleaseLock
from sunk_nodeset_controller.locks.model import NodeLock, Seen

SERVICE: Final = "nodeset-controller"
NAMED: Final = 10
"""So many Pods in the way are named; the rest are as much in the way."""


def state(
    node: str,
    kube_node: str,
    lock: NodeLock,
    in_the_way: tuple[str, ...],
    now: datetime,
    *,
    leaving: int = 0,
    leaving_until: datetime | None = None,
    failed: FailedLock | None = None,
) -> LockState:
    """Return what others may see of *lock*, of the Pods *in the way* of it, and of the last that *failed*.

    *leaving* says how many Pods a waiting job waits for, and *leaving_until* when the last of them ends.
    """
    return LockState(
        changed=now,
        node=node,
        kube_node=kube_node,
        lock=lock.value,
        holders=tuple(
            LockHolder(job=holder.job, level=holder.level, granted=holder.granted, asked=holder.since)
            for holder in lock.holders
        ),
        in_the_way=in_the_way[:NAMED],
        leaving=leaving,
        leaving_until=leaving_until,
        failed=failed,
    )


def facts(
    before: LockState | None, after: LockState, *, revision: int, waited_s: float | None, cluster: str
) -> tuple[Event, ...]:
    """Return what happened between two states of a lock.

    Args:
        before: What the bus has; None: nothing yet, which is no lock.
        after: What stands on the Node.
        revision: The revision of *before*.
        waited_s: How long the first of those just granted had waited.
        cluster: The Slurm cluster.
    """
    kind = KINDS.get((before.lock if before else "false", after.lock))
    if kind is None:
        return ()
    snapshot = LockSnapshot(
        node=after.node,
        kube_node=after.kube_node,
        lock=after.lock,
        jobs=tuple(holder.job for holder in after.holders),
        in_the_way=after.in_the_way,
        waited_s=waited_s if kind is LockLocked else None,
    )
    return (
        kind(
            id=event_id(NAMES[kind], after.node, revision),
            source=source(cluster, SERVICE),
            subject=after.node,
            time=after.changed,
            data=snapshot,
        ),
    )


_Kind = type[LockPending] | type[LockLocked] | type[LockUnlocked]
NAMES: Final[dict[_Kind, str]] = {
    LockPending: "lock_pending",
    LockLocked: "lock_locked",
    LockUnlocked: "lock_unlocked",
}
KINDS: Final[dict[tuple[LockValue, LockValue], _Kind]] = {
    ("false", "pending"): LockPending,
    ("locked", "pending"): LockPending,
    ("locked_strict", "pending"): LockPending,
    ("false", "locked"): LockLocked,
    ("false", "locked_strict"): LockLocked,
    ("pending", "locked"): LockLocked,
    ("pending", "locked_strict"): LockLocked,
    ("locked", "locked_strict"): LockLocked,
    ("pending", "false"): LockUnlocked,
    ("locked", "false"): LockUnlocked,
    ("locked_strict", "false"): LockUnlocked,
}
"""From one value to another; a strict holder that leaves a lock to others is no news."""


_SIGNS: Final = frozenset({"running", "completing"})


def cause(node: str, seen: Seen, lock: NodeLock) -> Cause:
    """Return what led from the lock that was *seen* on *node* to *lock*.

    That is the question of the job that waits or was granted last, or what the bus says of it; else that of
    one that has gone; where nobody came or went, the lock itself, whose time is over.
    """
    before = {holder.job: holder for holder in seen.lock.holders}
    after = {holder.job: holder for holder in lock.holders}
    requests = {ask.job: ask.cause for ask in seen.requests}
    came = [holder for job, holder in after.items() if holder.granted is None or before.get(job) != holder]
    for holder in sorted(came, key=lambda holder: holder.requested_at, reverse=True):
        if question := requests.get(holder.job):
            return question
        if (found := seen.jobs.get(holder.job)) is not None and found.place in _SIGNS:
            return found.event
    for job in sorted(before.keys() - after.keys(), reverse=True):
        if job in seen.released:
            return Cause(question_id(ReleaseLock, node, job))
        if (found := seen.jobs.get(job)) is not None:
            return found.event
    return seen.event
