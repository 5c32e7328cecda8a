"""What is now, beside the documents' table: drains by cause, locks and placements."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_metrics_exporter.sunk_metrics.drain_causes import Cause, cause_of
from sunk_metrics_exporter.sunk_metrics.drains_without_cause import cause_lost, kubernetes_side

LOCKS: Final = ("pending", "locked", "locked_strict")
PHASES: Final = ("refused", "submitted", "released", "started", "bound", "ending", "ended")
WAITING: Final = frozenset(("submitted", "released", "started"))
"""Phases in which a Pod waits to be bound, unless it runs and its job was lost: it waits for no node."""


class Drained(msgspec.Struct, frozen=True):
    """The drains of one cause."""

    nodes: int
    oldest_s: float


class Current(msgspec.Struct, frozen=True):
    """What is now."""

    drains: dict[Cause, Drained]
    without_cause: dict[str, Drained]
    """Drains of ours that have no cause any more, by the cause that they had."""
    locks: dict[str, int]
    lock_oldest_s: float
    placements: dict[str, int]
    placement_oldest_s: float


def look(
    nodes: Iterable[SlurmNodeState],
    locks: Iterable[LockState],
    placements: Iterable[PlacementState],
    pods: Iterable[KubePodState],
    now: datetime,
) -> Current:
    """Return what the states say; an age is 0 where nothing waits."""
    found_locks = list(locks)
    found_placements = [one for one in placements if one.roster is None]  # Pods; a gang's own is none.
    side = kubernetes_side(pods, found_locks, found_placements)
    begins: dict[Cause, list[datetime]] = {}
    ends: dict[str, list[datetime]] = {}
    for node in nodes:
        if node.is_drain:
            begins.setdefault(cause_of(node), []).append(node.reason_changed or node.changed)
            if (found := cause_lost(node, side)) is not None:
                ends.setdefault(found[0], []).append(found[1])
    waiting = [
        one.created or one.changed for one in found_placements if one.phase in WAITING and one.lost is None
    ]
    return Current(
        drains={cause: Drained(len(found), _oldest(found, now)) for cause, found in begins.items()},
        without_cause={cause: Drained(len(found), _oldest(found, now)) for cause, found in ends.items()},
        locks=_count(LOCKS, (one.lock for one in found_locks)),
        lock_oldest_s=_oldest([_waits_since(one) for one in found_locks if one.lock == "pending"], now),
        placements=_count(PHASES, (one.phase for one in found_placements)),
        placement_oldest_s=_oldest(waiting, now),
    )


def _count(words: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    counts = Counter(found)
    return {word: counts[word] for word in words}


def _waits_since(lock: LockState) -> datetime:
    """Return since when the first job waits for *lock*: it may have changed since, for another one."""
    waits = (one.asked for one in lock.holders if one.granted is None)
    return min((since for since in waits if since is not None), default=lock.changed)


def _oldest(begins: list[datetime], now: datetime) -> float:
    return max((now - min(begins)).total_seconds(), 0.0) if begins else 0.0
