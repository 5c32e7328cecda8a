"""What silence leads to, cluster by cluster: NodeSets say it at once, objects after a while and slowly."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import anyio

from sunk_kube import wellknown as wk
from sunk_kube.pods import Pod
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.pod_controller.controller import PodController
from sunk_nodeset_controller.slurm_health import SlurmHealth
from sunk_runtime.changes import Changes
from sunk_runtime.errors import SunkError

LOOK_S: Final = 1.0
FADE_EVERY_S: Final = 0.1
"""Between two Pods that turn Unknown: nobody is in a hurry to know less."""


class StalenessController:
    """Pokes NodeSets when silence begins or ends, and makes the Pods of a silent Slurm say so."""

    def __init__(
        self,
        views: KubeViews,
        healths: Mapping[str, SlurmHealth],
        marks: PodController,
        *,
        nodesets: Changes,
        pods: Changes,
    ) -> None:
        self._views = views
        self._healths = healths
        self._marks = marks
        self._nodesets = nodesets
        self._pods = pods
        self._last_health: dict[str, tuple[str, int, bool]] = {}
        """By cluster: the doubt's reason, how many nodes Slurm knows, whether all is unknown."""

    async def run(self) -> None:
        """Listen until cancelled."""
        async with anyio.create_task_group() as tasks:
            for cluster in self._healths:  # A large silent one takes minutes, and is nobody else's matter.
                tasks.start_soon(self._fading, cluster)
            while True:
                now = datetime.now(UTC)
                for cluster, slurm_health in self._healths.items():
                    self._compare(cluster, slurm_health, now)
                await anyio.sleep(LOOK_S)

    async def _fading(self, cluster: str) -> None:
        while True:
            if self._healths[cluster].is_unknown(datetime.now(UTC)):
                await self._fade(cluster)
            await anyio.sleep(LOOK_S)

    def _compare(self, cluster: str, slurm_health: SlurmHealth, now: datetime) -> None:
        doubt = slurm_health.doubt(now)
        nodes = slurm_health.nodes
        found = doubt.reason if doubt else "", len(nodes) if nodes else 0, slurm_health.is_unknown(now)
        before = self._last_health.get(cluster, ("", 0, False))
        self._last_health[cluster] = found
        if found[:2] != before[:2]:
            for nodeset in self._views.nodesets.values():
                if nodeset.spec.cluster == cluster:
                    self._nodesets.add(nodeset.key)
        if (
            found[::2] != before[::2]
        ):  # Heard again, every Pod may say what it knows; in doubt, none may be evicted.
            for pod in self._of(cluster):
                self._pods.add(pod.key)

    async def _fade(self, cluster: str) -> None:
        for pod in self._of(cluster):
            now = datetime.now(UTC)
            if not self._healths[cluster].is_unknown(now):
                return
            try:
                if await self._marks.mark_unknown(pod, now):
                    await anyio.sleep(FADE_EVERY_S)
            except SunkError:  # It has changed, or the API server is away: there is a next time.
                await anyio.sleep(FADE_EVERY_S)

    def _of(self, cluster: str) -> list[Pod]:
        pods = self._views.pods.values()
        return [pod for pod in pods if pod.metadata.labels.get(wk.LABEL_CLUSTER) == cluster]
