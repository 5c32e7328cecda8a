"""The jobs that Slurm has given a node of Pods that run there, because slurmctld has lost their job.

What must stay true: nobody ends for what the bus says, which may be of before the loss. It tells which jobs
to read, and the Pod ends for what Slurm says of those now.
"""

import math
import time
from collections.abc import Iterable, Mapping
from typing import Final

import anyio

from sunk_events.nodes import SlurmNodeState
from sunk_events.placements import PlacementState
from sunk_pod_scheduler.adapters.ports import JobPort
from sunk_pod_scheduler.controller.bus_jobs import BusJobs
from sunk_pod_scheduler.placement import lost_jobs
from sunk_pod_scheduler.placement.model import AnyJob, JobUnknown
from sunk_pod_scheduler.podspec.job_size import Size
from sunk_runtime.clock import now
from sunk_runtime.views import StateView

LASTS_S: Final = 5.0
"""One look at a job serves all Pods that have lost theirs on its nodes."""


class _Look:
    """One look at a job, for all that ask for it meanwhile."""

    def __init__(self) -> None:
        self.turn = anyio.Lock()
        self.seen: AnyJob | None = None


class NodeTakers:
    """Finds them."""

    def __init__(self, bus_jobs: BusJobs, jobs: JobPort, slurm_nodes: StateView[SlurmNodeState]) -> None:
        self._bus_jobs = bus_jobs
        self._jobs = jobs
        self._slurm_nodes = slurm_nodes
        self._looks: dict[int, _Look] = {}
        """The looks of the last seconds, by job."""
        self._since = -math.inf

    async def find(self, placement: PlacementState | None, seats: Mapping[str, Size]) -> str:
        """Return who has a node, for people; empty where there is room, or nobody can say.

        Args:
            placement: The Pod's, or its gang's.
            seats: What the Pods need, by Slurm node.
        """
        if placement is None or not lost_jobs.is_replaced(placement, now()):
            return ""
        for name, needs in seats.items():
            node = self._slurm_nodes.get(name)
            there = await self._bus_jobs.on(name)
            others = {job: size for job, size in there.items() if job != placement.job}
            if not lost_jobs.given_away(node, needs, others):
                continue
            if not self._bus_jobs.is_current(now()):
                return ""  # It may be of before the loss, and name as many jobs as are gone.
            held = await self._held(name, others, placement)
            if held is not None and (why := lost_jobs.given_away(node, needs, held)):
                return why
        return ""

    async def _held(
        self, node: str, jobs: Iterable[int], placement: PlacementState
    ) -> Mapping[int, Size] | None:
        """Return what *jobs* have taken of *node* from *placement*'s Pod by fresh looks; None: unknown."""
        found: dict[int, Size] = {}
        for job in jobs:
            seen = await self._see(job)
            if isinstance(seen, JobUnknown):
                return None
            if (size := lost_jobs.taken(seen, node, placement.uid, placement.attempt)) is not None:
                found[job] = size
        return found

    async def _see(self, job: int) -> AnyJob:
        """Return a job from a look of the last seconds."""
        moment = time.monotonic()
        if moment - self._since > LASTS_S:
            self._looks, self._since = {}, moment
        look = self._looks.setdefault(job, _Look())
        async with look.turn:
            if look.seen is None:
                look.seen = await self._jobs.see(job)
            return look.seen
