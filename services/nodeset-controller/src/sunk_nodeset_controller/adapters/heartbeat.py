"""Says on the bus that we lead and see Kubernetes: what does not change is not told again, and may be old."""

import logging
from typing import Final

import anyio

from sunk_events import subjects
from sunk_events.nodesets import KubeWatchState
from sunk_nodeset_controller.adapters.cluster_views import ClusterViews
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_runtime.errors import ConflictError, TransientError
from sunk_runtime.leases import Leadership
from sunk_runtime.views import StateView, following, now
from sunk_runtime.writer import StateWriter

log = logging.getLogger(__name__)

EVERY_S: Final = 10.0


async def send_heartbeats(views: KubeViews, cluster: ClusterViews, leadership: Leadership) -> None:
    """Say so to those of one Slurm cluster until cancelled."""
    view = StateView(cluster.bus, cluster.cluster, KubeWatchState)
    writer = StateWriter(cluster.bus, view, fence=leadership)
    async with following(view):
        while True:
            await view.complete()
            await views.complete()
            moment = now()
            state = KubeWatchState(changed=moment, seen=moment)
            try:
                await writer.record(subjects.LEADER_KEY, state, revision=view.revision(subjects.LEADER_KEY))
            except (ConflictError, TransientError) as error:
                log.warning("no sign of life", extra={"cluster": cluster.cluster, "error": str(error)})
            await anyio.sleep(EVERY_S)
