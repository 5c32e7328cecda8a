"""Which Pods to evict from a Node, and how, if the taint does not remove them (``NoSchedule``). Pure.

What must stay true: a Pod that Slurm placed is never evicted, because the pod-scheduler deletes it. No
Pod is deleted against its disruption budget, unless a setting says after how long.

Source: Kubernetes, "API-initiated Eviction".
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from sunk_kube.pods import Pod
from sunk_nodeset_controller.locks.blockers import Refusal
from sunk_nodeset_controller.locks.model import Clearing

AGAIN_S: Final = 1.0
"""So soon an eviction that a budget forbids is asked for again at first."""
AGAIN_LAST_S: Final = 15.0
"""And so rarely at last: a thousand Nodes may wait for one budget."""


How = Literal["evict", "delete"]


class EvictionAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to evict a Pod."""

    since: datetime
    """First."""
    tried: datetime
    """Last."""
    because: str = ""
    """Why the API server refused it; empty if the Pod was evicted."""
    reported: How | None = None
    """What the last Event on the Pod says is about to be done; None: there is none yet."""


class PodEviction(msgspec.Struct, frozen=True):
    """What to do about a Pod that is in the way."""

    how: How
    pod: Pod


def evictions(
    others: Iterable[Pod],
    *,
    placed: Mapping[str, int | None],
    attempts: Mapping[str, EvictionAttempt],
    clearing: Clearing,
    now: datetime,
) -> tuple[PodEviction, ...]:
    """Return what to do to *others*, the Pods in the way, by their names.

    Args:
        others: The Pods in the way.
        placed: The placeholder job of each Pod that Slurm places, by the Pod's uid.
        attempts: What was done already, by the Pod's uid.
        clearing: The settings.
        now: What times are compared with.
    """
    found: list[PodEviction] = []
    for pod in sorted(others, key=lambda pod: pod.key):
        before = attempts.get(pod.metadata.uid)
        is_done = pod.is_terminating or pod.metadata.uid in placed
        if is_done or (before is not None and now < _due(before)):
            continue
        found.append(
            PodEviction(
                "delete" if before is not None and _is_overdue(before, clearing, now) else "evict", pod
            )
        )
    return tuple(found)


def unreported(
    planned: Iterable[PodEviction], attempts: Mapping[str, EvictionAttempt]
) -> tuple[PodEviction, ...]:
    """Return those of *planned* that no Event is about yet; what is tried again has one."""
    reported = {uid: before.reported for uid, before in attempts.items()}
    return tuple(eviction for eviction in planned if reported.get(eviction.pod.metadata.uid) != eviction.how)


def again_s(waited: timedelta) -> float:
    """Return the seconds until the next try to evict a Pod that has stayed for so long."""
    return min(max(AGAIN_S, waited.total_seconds() / 8), AGAIN_LAST_S)


def refusals(attempts: Mapping[str, EvictionAttempt]) -> dict[str, Refusal]:
    """Return the evictions that were not done, by the Pod's uid."""
    return {uid: Refusal(found.since, found.because) for uid, found in attempts.items() if found.because}


def _due(attempt: EvictionAttempt) -> datetime:
    return attempt.tried + timedelta(seconds=again_s(attempt.tried - attempt.since))


def _is_overdue(attempt: EvictionAttempt, clearing: Clearing, now: datetime) -> bool:
    after_s = clearing.delete_after_s
    return after_s is not None and now >= attempt.since + timedelta(seconds=after_s)
