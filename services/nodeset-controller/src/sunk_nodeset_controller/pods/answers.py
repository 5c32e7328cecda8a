"""Answers why a Slurm node's Pod, Node and lock are as they are."""

from collections.abc import Callable
from datetime import UTC, datetime

from sunk_events.base import Reply
from sunk_events.requests import ExplainKubeNode, Explanation, Finding, Refused
from sunk_nodeset_controller.clusters import ClusterViews
from sunk_nodeset_controller.pods.explain import Explained, explain
from sunk_nodeset_controller.pods.hearing import Ear
from sunk_nodeset_controller.views import KubeViews


def nothing_of_locks(_: str) -> tuple[Finding, ...]:
    """Say nothing of the lock of a Slurm node."""
    return ()


class PodAnswers:
    """Answers for one Slurm cluster. *locks* says what there is to say of a Slurm node's lock."""

    def __init__(
        self,
        views: KubeViews,
        cluster: ClusterViews,
        ear: Ear,
        locks: Callable[[str], tuple[Finding, ...]] = nothing_of_locks,
    ) -> None:
        self._views = views
        self._cluster = cluster
        self._ear = ear
        self._locks = locks

    async def explain(self, question: ExplainKubeNode) -> Reply:
        """Answer; "later" while a view is not complete."""
        self._views.require_complete()
        self._cluster.kube_pods.require_complete()
        state = self._cluster.kube_pods.get(question.node)
        if state is None:
            reason = f"no NodeSet of Slurm cluster {self._cluster.cluster} has {question.node}"
            return Refused(code="unknown_node", reason=reason)
        seen = Explained(
            state=state,
            pod=self._views.pods.get(f"{state.namespace}/{state.pod}"),
            node=self._views.nodes.get(state.kube_node),
            nodeset=self._views.nodesets.get(f"{state.namespace}/{state.nodeset}"),
            doubt=self._ear.doubt(datetime.now(UTC)),
            locks=self._locks(question.node),
        )
        return Explanation(findings=explain(seen))
