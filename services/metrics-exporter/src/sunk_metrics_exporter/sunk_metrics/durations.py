"""What only a change tells: how long a job waited, how long a node was drained.

What must stay true: nothing is told twice, however often a state is looked at; what happened before this
process began, or cannot be known, is not told.
"""

from datetime import datetime

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_metrics_exporter.sunk_metrics.drain_causes import Cause, cause_of


class Drains:
    """The drains that are, by node."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[datetime, Cause]] = {}

    def see(self, key: str, node: SlurmNodeState | None) -> tuple[Cause, float] | None:
        """Look at a node; return the cause and the length of a drain that has ended."""
        before = self._since.pop(key, None)
        if node is None:
            return None  # It is gone: nobody mended it.
        if not node.is_drain:
            return None if before is None else (before[1], _seconds(before[0], node.changed))
        began = node.reason_changed or node.changed
        self._since[key] = (min(began, before[0]) if before else began, cause_of(node))
        return None


class Waits:
    """The jobs that were seen to have started since *began*."""

    def __init__(self, began: datetime) -> None:
        self._began = began
        self._started: dict[str, datetime] = {}

    def see(self, key: str, job: SlurmJobState | None) -> float | None:
        """Look at a job; return how long it waited if it has started and this was not told yet.

        A job that never held a node has a start too: a PENDING one the one that is expected.
        """
        if job is None:
            self._started.pop(key, None)
            return None
        if job.state == "PENDING" or not job.nodes or job.started is None or job.submitted is None:
            return None
        if job.started < self._began or self._started.get(key) == job.started:
            return None
        self._started[key] = job.started
        return _seconds(job.submitted, job.started)


def _seconds(begin: datetime, end: datetime) -> float:
    return max((end - begin).total_seconds(), 0.0)
