"""Answers to who asks why a Pod is as it is: from a fresh look, without doing anything."""

from collections.abc import Awaitable, Callable

from sunk_events.base import Reply
from sunk_events.placements import PlacementState
from sunk_events.requests import ExplainPlacement, Explanation
from sunk_pod_scheduler.explain import explain, unknown
from sunk_pod_scheduler.model import Observed
from sunk_pod_scheduler.ports import PodPort
from sunk_runtime.views import StateView


class Explanations:
    """Finds the Pod that is asked about."""

    def __init__(
        self,
        pods: PodPort,
        placements: StateView[PlacementState],
        look: Callable[[str], Awaitable[Observed]],
    ) -> None:
        self._pods = pods
        self._placements = placements
        self._look = look

    async def placement(self, request: ExplainPlacement) -> Reply:
        """Explain the Pod of that name; of one that is gone, what is left of it."""
        self._pods.require_complete()
        self._placements.require_complete()
        uid = self._pods.uid_of(request.pod) or self._left(request.pod)
        if not uid:
            return Explanation(findings=(unknown(request.pod),))
        return Explanation(findings=explain(await self._look(uid)))

    def _left(self, pod: str) -> str:
        found = (state for state in self._placements.values() if f"{state.namespace}/{state.pod}" == pod)
        return next((state.uid for state in found), "")
