"""Answers to the question why a Pod is as it is: from a fresh look, without doing anything."""

from collections.abc import Awaitable, Callable, Iterable

from sunk_events.base import Reply
from sunk_events.jobs import SlurmJobState
from sunk_events.placements import PlacementState
from sunk_events.requests import ExplainPlacement, Explanation, Finding
from sunk_pod_scheduler.adapters.ports import PodPort
from sunk_pod_scheduler.placement.explain import FINDINGS_MAX, explain, place_in_queue, unknown
from sunk_pod_scheduler.placement.model import Observed
from sunk_runtime.views import StateView
from sunk_slurm.queue import released_jobs


class ExplainHandlers:
    """Finds the Pod that is asked about."""

    def __init__(
        self,
        pods: PodPort,
        placements: StateView[PlacementState],
        look: Callable[[str], Awaitable[Observed]],
        of_gang: Callable[[str], Awaitable[tuple[Finding, ...]]],
        jobs: Callable[[], Iterable[SlurmJobState] | None],
    ) -> None:
        self._pods = pods
        self._placements = placements
        self._look = look
        self._of_gang = of_gang
        """What a Pod's gang is to it; nothing where it is alone."""
        self._jobs = jobs
        """Slurm's jobs, as the bus has them; None where that is not of now."""

    async def placement(self, request: ExplainPlacement) -> Reply:
        """Explain the Pod of that name; of one that is gone, what is left of it."""
        self._pods.require_complete()
        self._placements.require_complete()
        uid = self._pods.uid_of(request.pod) or self._left(request.pod)
        if not uid:
            return Explanation(findings=(unknown(request.pod),))
        gang = await self._of_gang(uid)
        seen = await self._look(uid)
        alone = () if gang and seen.placement is None else explain(seen)
        queue = place_in_queue(seen, self._jobs(), released_jobs(self._placements.values()))
        return Explanation(findings=(*gang, *alone, *queue)[:FINDINGS_MAX])

    def _left(self, pod: str) -> str:
        found = (state for state in self._placements.values() if f"{state.namespace}/{state.pod}" == pod)
        return next((state.uid for state in found), "")
