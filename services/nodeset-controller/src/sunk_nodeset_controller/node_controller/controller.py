"""One turn of the loop over Nodes: what their NodeSet Pods say is put on them."""

from contextlib import suppress
from datetime import UTC, datetime

from sunk_kube.errors import KubeNotFoundError
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.adapters.rate_limit import RateLimit
from sunk_nodeset_controller.metadata import patch
from sunk_nodeset_controller.nodes.conditions import marks
from sunk_nodeset_controller.nodesets.owners import labelled_key
from sunk_nodeset_controller.nodesets.plan import is_wanted


class NodeController:
    """The Node Controller."""

    def __init__(self, views: KubeViews, kube: FencedKube, *, lock_key: str) -> None:
        self._views = views
        self._kube = kube
        self._lock_key = lock_key
        self._rest = RateLimit()

    async def settle(self, kube_node: str) -> float | None:
        """Make the Node *kube_node* bear what it shall; return when to look again if it was just written."""
        self._views.require_complete()
        node = self._views.nodes.get(kube_node)
        if node is None:
            return None
        nodeset = self._views.nodesets.get(labelled_key(node))
        wanted = marks(
            node,
            self._views.pod_on(kube_node),
            is_wanted=self._views.is_member(labelled_key(node), kube_node)
            and is_wanted(nodeset, node, self._lock_key),
        )
        body = patch(node.metadata, node.status.conditions, wanted, datetime.now(UTC))
        if body is None:
            return None
        if left_s := self._rest.left_s(kube_node):
            return left_s
        self._rest.begin(kube_node)
        with suppress(KubeNotFoundError):  # Gone meanwhile: the view will say so.
            await self._kube.mark_node(node, body)
        return None
