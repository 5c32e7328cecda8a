"""Why a Slurm node's Pod, Node and lock are as they are, from all that is seen now."""

from datetime import UTC, datetime

from sunk_events.requests import Finding
from sunk_nodeset_controller.adapters.cluster_views import ClusterViews
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.pods.explain import Explained, explain
from sunk_nodeset_controller.slurm_health import SlurmHealth


class NodeExplainer:
    """What there is to say of the nodes of one Slurm cluster."""

    def __init__(self, views: KubeViews, cluster: ClusterViews, slurm_health: SlurmHealth) -> None:
        self._views = views
        self._cluster = cluster
        self._slurm_health = slurm_health

    def __call__(self, node: str, locks: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """Return what stands out of *node*, the weightiest first; *locks* is what its lock has to say.

        Raises:
            TransientError: a view is not complete.
        """
        self._views.require_complete()
        state = self._cluster.kube_pods.get(node)
        if state is None:
            return locks
        seen = Explained(
            state=state,
            pod=self._views.pods.get(f"{state.namespace}/{state.pod}"),
            node=self._views.nodes.get(state.kube_node),
            nodeset=self._views.nodesets.get(f"{state.namespace}/{state.nodeset}"),
            doubt=self._slurm_health.doubt(datetime.now(UTC)),
            locks=locks,
        )
        return explain(seen)
