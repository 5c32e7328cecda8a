"""Slurm's jobs as the bus has them, and whether they are those of now."""

import math
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from sunk_events import subjects
from sunk_events.base import Cause
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmStatisticsState
from sunk_pod_scheduler.placement import job_on_bus
from sunk_pod_scheduler.podspec.job_size import Size, add_held
from sunk_runtime.clock import now
from sunk_runtime.views import StateView

LASTS_S: Final = 5.0
"""Who has which node is read from all jobs, and asked by each Pod that has lost its own."""
SLICE: Final = 1000
"""After so many jobs and nodes of jobs it is others' turn: some milliseconds."""


class BusJobs:
    """The jobs of one Slurm cluster, through the views of it."""

    def __init__(
        self, slurm_jobs: StateView[SlurmJobState], statistics: StateView[SlurmStatisticsState]
    ) -> None:
        self._slurm_jobs = slurm_jobs
        self._statistics = statistics
        self._by_node: dict[str, dict[int, Size]] = {}
        self._read = -math.inf
        self._reading = anyio.Lock()

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
        statistics = self._statistics.get(subjects.STATISTICS_KEY)
        return statistics is not None and job_on_bus.is_current(statistics.jobs_answered, moment)

    def all(self) -> list[SlurmJobState] | None:
        """Return all jobs; None where those are not of now."""
        return self._slurm_jobs.values() if self.is_current(now()) else None

    async def on(self, node: str) -> Mapping[int, Size]:
        """Return what jobs that run on a Slurm node hold there, some seconds ago, by job."""
        async with self._reading:
            moment = time.monotonic()
            if moment - self._read > LASTS_S:
                self._by_node, self._read = await self._held_by_node(), moment
        return self._by_node.get(node, {})

    async def _held_by_node(self) -> dict[str, dict[int, Size]]:
        found: dict[str, dict[int, Size]] = {}
        done = 0
        for state in self._slurm_jobs.values():
            done += 1 + add_held(found, state)
            if done >= SLICE:
                await checkpoint()
                done = 0
        return found
