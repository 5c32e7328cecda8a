"""Slurm's jobs as the bus has them: whether they are those of now, and who has the room of a lost one."""

from collections.abc import Mapping
from datetime import datetime

from sunk_events import subjects
from sunk_events.base import Cause
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.placements import PlacementState
from sunk_pod_scheduler.placement import job_on_bus, lost_jobs
from sunk_pod_scheduler.podspec.job_size import Size
from sunk_runtime.views import StateView, now


class BusJobs:
    """The jobs of one Slurm cluster, through the views of it."""

    def __init__(
        self,
        slurm_jobs: StateView[SlurmJobState],
        statistics: StateView[SlurmStatisticsState],
        slurm_nodes: StateView[SlurmNodeState],
    ) -> None:
        self._slurm_jobs = slurm_jobs
        self._statistics = statistics
        self._slurm_nodes = slurm_nodes

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

    def given_away(self, placement: PlacementState | None, seats: Mapping[str, Size]) -> str:
        """Return to whom Slurm has given a node of Pods that run without a job; empty: to nobody, or unknown.

        Args:
            placement: The Pod's, or its gang's.
            seats: What the Pods need, by Slurm node.
        """
        moment = now()
        if placement is None or not lost_jobs.is_replaced(placement, moment):
            return ""
        others = [job for job in self.all() or () if job.job != placement.job]
        for node, needs in seats.items():
            if why := lost_jobs.given_away(self._slurm_nodes.get(node), needs, others):
                return why
        return ""
