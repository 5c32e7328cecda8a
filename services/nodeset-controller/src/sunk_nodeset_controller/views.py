"""What this service sees of Kubernetes: Nodes, NodeSets and NodeSet Pods, whether it leads or not."""

from collections.abc import Iterable

import anyio

from sunk_kube import wellknown as wk
from sunk_kube.client import KubeClient
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node, Pod
from sunk_kube.reflector import Reflector
from sunk_kube.resources import NODES, NODESETS, PODS
from sunk_nodeset_controller.nodesets.owners import owner_key
from sunk_nodeset_controller.nodesets.template import pinned_node
from sunk_runtime.views import Changes


class KubeViews:
    """The three views, and the Pods of each Node."""

    def __init__(self, client: KubeClient) -> None:
        self.nodes: Reflector[Node] = Reflector(client, NODES)
        self.nodesets: Reflector[NodeSet] = Reflector(client, NODESETS)
        self.pods: Reflector[Pod] = Reflector(client, PODS, labels=wk.LABEL_NODESET)

    async def run(self) -> None:
        """Keep all three current until cancelled."""
        async with anyio.create_task_group() as tasks:
            for view in (self.nodes, self.nodesets, self.pods):
                tasks.start_soon(view.run)

    @property
    def is_complete(self) -> bool:
        """All three have read their whole lists."""
        return self.nodes.is_complete and self.nodesets.is_complete and self.pods.is_complete

    async def complete(self) -> None:
        """Return when all three have read their whole lists."""
        for view in (self.nodes, self.nodesets, self.pods):
            await view.complete()

    def require_complete(self) -> None:
        """Raise `KubeUnavailableError` while one of the views is not complete."""
        for view in (self.nodes, self.nodesets, self.pods):
            view.require_complete()

    def pod_on(self, kube_node: str) -> Pod | None:
        """Return the NodeSet Pod on a Node; of two, the one that is not about to go."""
        node = self.nodes.get(kube_node)
        usual = self.pods.get(labelled_pod(node)) if node is not None else None
        if usual is not None and pinned_node(usual) == kube_node and not usual.is_terminating:
            return usual  # The labels say so on all Nodes but the newest: no need to walk through all Pods.
        pods = [pod for pod in self.pods.values() if pinned_node(pod) == kube_node]
        return min(pods, key=lambda pod: (pod.is_terminating, pod.is_over, pod.key), default=None)

    def nodeset_changes(self) -> Changes:
        """Return the keys of NodeSets that a change of anything here concerns."""
        changes = self.nodesets.changes()

        def of_nodeset(_: NodeSet | None, after: NodeSet | None) -> Iterable[str]:
            return self.nodesets.keys() if after is None else ()  # Its cluster's name and Nodes are free.

        def of_pod(before: Pod | None, after: Pod | None) -> Iterable[str]:
            if after is None:  # Its Node and its name are free, for any of them.
                return self.nodesets.keys()
            return {owner_key(pod) for pod in (before, after) if pod is not None} - {""}

        def of_node(before: Node | None, after: Node | None) -> Iterable[str]:
            return self.nodesets.keys() if _place(before) != _place(after) else ()

        self.nodesets.follow(changes, of_nodeset)
        self.pods.follow(changes, of_pod)
        self.nodes.follow(changes, of_node)
        return changes

    def pod_changes(self) -> Changes:
        """Return the keys of NodeSet Pods that changed, or whose Node did."""
        changes = self.pods.changes()

        def of_node(before: Node | None, after: Node | None) -> Iterable[str]:
            found = after or before
            pod = self.pod_on(found.metadata.name) if found is not None else None
            return (pod.key,) if pod is not None else ()

        self.nodes.follow(changes, of_node)
        return changes

    def node_changes(self) -> Changes:
        """Return the names of Nodes that changed, or whose NodeSet Pod did."""
        changes = self.nodes.changes()

        def of_pod(before: Pod | None, after: Pod | None) -> Iterable[str]:
            return {pinned_node(pod) for pod in (before, after) if pod is not None} - {""}

        self.pods.follow(changes, of_pod)
        return changes


def labelled_pod(node: Node) -> str:
    """Return the key of the NodeSet Pod whose labels *node* bears."""
    labels = node.metadata.labels
    return f"{labels.get(wk.LABEL_NAMESPACE, '')}/{labels.get(wk.LABEL_POD, '')}"


def _place(node: Node | None) -> object:
    """Return what of a Node decides whether a Pod may be there."""
    if node is None:
        return None
    meta, status = node.metadata, node.status
    return (
        meta.labels,
        meta.deletion_timestamp is None,
        {(taint.key, taint.value, taint.effect) for taint in node.spec.taints},
        status.allocatable,
        status.addresses,
    )
