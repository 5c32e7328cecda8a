"""Slurm's jobs as the bus has them, and whether they are those of now."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from sunk_events import subjects
from sunk_events.base import Cause
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmStatisticsState
from sunk_pod_scheduler.placement import job_on_bus
from sunk_pod_scheduler.podspec.job_size import Size, by_node
from sunk_runtime.views import StateView, now

LASTS: Final = timedelta(seconds=5)
"""Who has which node is read from all jobs, and asked by each Pod that has lost its own."""


class BusJobs:
    """The jobs of one Slurm cluster, through the views of it."""

    def __init__(
        self, slurm_jobs: StateView[SlurmJobState], statistics: StateView[SlurmStatisticsState]
    ) -> None:
        self._slurm_jobs = slurm_jobs
        self._statistics = statistics
        self._by_node: dict[str, dict[int, Size]] = {}
        self._read = datetime.min.replace(tzinfo=UTC)

    def get(self, job: int | None) -> SlurmJobState | None:
        """Return what the bus says of *job*, of whatever age."""
        return self._slurm_jobs.get(str(job))

    def event(self, job: int | None) -> Cause:
        """Return which fact said that."""
        return self._slurm_jobs.event(str(job))

    def is_current(self, moment: datetime) -> bool:
        """Whether the bus has all jobs, as Slurm said lately."""
        views = (self._slurm_jobs, self._statistics)
        if not all(view.is_complete and view.age_s < job_on_bus.BUS_SILENT_S for view in views):
            return False
        told = self._statistics.get(subjects.STATISTICS_KEY)
        return told is not None and job_on_bus.is_current(told.jobs_answered, moment)

    def all(self) -> list[SlurmJobState] | None:
        """Return all jobs; None where those are not of now."""
        return self._slurm_jobs.values() if self.is_current(now()) else None

    def on(self, node: str) -> Mapping[int, Size]:
        """Return what jobs that run on a Slurm node hold there, some seconds ago, by job."""
        moment = now()
        if moment - self._read > LASTS:
            self._by_node, self._read = by_node(self._slurm_jobs.values()), moment
        return self._by_node.get(node, {})
