"""Why a Slurm node's Pod, Node and lock are as they are, from all that is seen now."""

from datetime import UTC, datetime

from sunk_events.requests import Finding
from sunk_nodeset_controller.clusters import ClusterViews
from sunk_nodeset_controller.pods.explain import Explained, explain
from sunk_nodeset_controller.pods.hearing import Ear
from sunk_nodeset_controller.views import KubeViews


class NodeWords:
    """What there is to say of the nodes of one Slurm cluster."""

    def __init__(self, views: KubeViews, cluster: ClusterViews, ear: Ear) -> None:
        self._views = views
        self._cluster = cluster
        self._ear = ear

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
            doubt=self._ear.doubt(datetime.now(UTC)),
            locks=locks,
        )
        return explain(seen)
