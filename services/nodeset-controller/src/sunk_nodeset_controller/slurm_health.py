"""Whether Slurm is heard, and what to doubt where it is not; pure but for the times that are remembered.

What must stay true: silence is said, and is no reason to act; it is measured by when words arrive here, not
by the clock of who said them; neither a restart of ours nor an older store of NATS makes old words new.
"""

import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from sunk_events import subjects
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_kube import wellknown as wk
from sunk_kube.bodies import second_time
from sunk_kube.objects import condition
from sunk_kube.pods import Pod
from sunk_nodeset_controller.reasons import NodeReason, NodeSetReason
from sunk_runtime.views import StateView

LOOK_AGAIN_S: Final = 30.0
BUS_SILENT_S: Final = 10.0
"""The bus gives a sign of life every second."""


class StaleReason(msgspec.Struct, frozen=True):
    """Why what Slurm says is not to be relied upon."""

    reason: NodeSetReason
    message: str


class SlurmHealth:
    """Remembers when Slurm was last heard: its syncer passes statistics on as often as it asks for them."""

    def __init__(self, now: datetime, *, stale_s: float, unknown_s: float) -> None:
        self._stale = timedelta(seconds=stale_s)
        self._unknown = timedelta(seconds=unknown_s)
        self._began = now
        self._last_news = now
        self._revision = -1
        self._nodes: StateView[SlurmNodeState] | None = None
        self._statistics: StateView[SlurmStatisticsState] | None = None

    def attach(self, nodes: StateView[SlurmNodeState], statistics: StateView[SlurmStatisticsState]) -> None:
        """Listen to the bus, which was reached."""
        self._nodes, self._statistics = nodes, statistics

    @property
    def nodes(self) -> StateView[SlurmNodeState] | None:
        """What Slurm says of its nodes; None while that is not read."""
        if self._nodes is None or self._statistics is None:
            return None
        return self._nodes if self._nodes.is_complete and self._statistics.is_complete else None

    def doubt(self, now: datetime) -> StaleReason | None:
        """Return why Slurm's words are old, if they are."""
        self._listen(now)
        silent_s = self._nodes.age_s if self._nodes is not None else (now - self._began).total_seconds()
        since = second_time(self._last_news)
        if silent_s > BUS_SILENT_S:
            return StaleReason(
                NodeSetReason.NO_NEWS_FROM_BUS,
                f"no message from NATS; the last state of Slurm is from {since}",
            )
        if now - self._last_news > self._stale:
            return StaleReason(
                NodeSetReason.NO_NEWS_FROM_SLURM,
                f"no news from Slurm since {since}: check slurmrestd and the syncer",
            )
        return None

    def is_unknown(self, now: datetime) -> bool:
        """Whether Slurm's words are so old that objects shall say that they know nothing."""
        self._listen(now)
        return now - self._last_news > self._unknown

    def _listen(self, now: datetime) -> None:
        """Note what has come since the last time; what came back with an older store was said long ago.

        While its bucket is in doubt it is neither: a syncer that is alive writes something new.
        """
        if self._statistics is None or not self._statistics.is_complete:
            return
        entry = self._statistics.entry(subjects.STATISTICS_KEY)
        if entry is None or entry.revision == self._revision:
            return
        is_new = 0 <= self._revision < entry.revision
        self._last_news = now if is_new else min(now, entry.stored)
        self._revision = entry.revision


class MissingTracker:
    """Remembers since when Slurm, which is heard, does not know the nodes of Pods that it knew."""

    def __init__(self, long_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._long_s = long_s
        self._clock = clock
        self._since: dict[str, float] = {}

    def is_long(self, key: str) -> bool:
        """Note that the node of the Pod *key* is not known, and return whether that has been so for long."""
        now = self._clock()
        return now - self._since.setdefault(key, now) >= self._long_s

    def again_s(self, key: str) -> float | None:
        """Return when to look again at the Pod *key*; None if its node is known."""
        since = self._since.get(key)
        return None if since is None else max(since + self._long_s - self._clock(), LOOK_AGAIN_S)

    def forget(self, key: str) -> None:
        """Note that the node of the Pod *key* is known, or the Pod gone."""
        self._since.pop(key, None)


def missing(pods: Iterable[Pod], nodes: StateView[SlurmNodeState] | None) -> StaleReason | None:
    """Return the doubt that Slurm, which is heard, knows far fewer of the nodes of *pods* than it knew."""
    if nodes is None:
        return None
    knew = [
        pod.metadata.name for pod in pods if not pod.is_over and not pod.is_terminating and was_known(pod)
    ]
    lost = sum(nodes.get(name) is None and name not in nodes.undecodable for name in knew)
    if lost * 2 <= len(knew):
        return None
    message = (
        f"Slurm knows {len(knew) - lost} of {len(knew)} nodes that it knew before; no Pod is chosen meanwhile"
    )
    return StaleReason(NodeSetReason.NODES_MISSING, message)


def was_known(pod: Pod) -> bool:
    """Whether Slurm said something of the node of *pod* before."""
    found = condition(pod.status.conditions, wk.CONDITION_SLURM_RUNNING)
    return found is not None and (found.status != "Unknown" or found.reason == str(NodeReason.NO_NEWS))
