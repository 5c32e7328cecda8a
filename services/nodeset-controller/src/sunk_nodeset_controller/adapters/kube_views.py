"""What this service sees of Kubernetes: Nodes, NodeSets, their Pods and slices, whether it leads or not."""

from collections.abc import Iterable

import anyio

from sunk_kube import wellknown as wk
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeUnavailableError
from sunk_kube.following import STALE_S
from sunk_kube.node_slices import NodeSlice
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node, condition
from sunk_kube.pods import Pod
from sunk_kube.reflector import Reflector
from sunk_kube.resources import NODES, NODESETS, NODESLICES, PODS
from sunk_nodeset_controller.nodes.conditions import LABELS, MIRRORED
from sunk_nodeset_controller.nodesets.feasibility import place
from sunk_nodeset_controller.nodesets.owners import is_member_pod, owner_key
from sunk_nodeset_controller.nodesets.slices import members_of
from sunk_nodeset_controller.nodesets.template import pinned_node
from sunk_nodeset_controller.pods.projection import cordon_reason
from sunk_runtime.changes import Changes


class KubeViews:
    """The four views, and the Pods of each Node."""

    def __init__(self, client: KubeClient) -> None:
        self.nodes: Reflector[Node] = Reflector(client, NODES)
        self.nodesets: Reflector[NodeSet] = Reflector(client, NODESETS)
        self.pods: Reflector[Pod] = Reflector(client, PODS, labels=wk.LABEL_NODESET)
        self.slices: Reflector[NodeSlice] = Reflector(client, NODESLICES)
        self.pods_of = self.pods.index(lambda pod: (owner_key(pod),))
        """NodeSet Pods by the key of the NodeSet that they say they belong to."""
        self.pods_at = self.pods.index(lambda pod: (pinned_node(pod),))
        """NodeSet Pods by Node."""
        self.slices_of = self.slices.index(lambda one: (slice_owner(one),))
        """Slices by the key of their NodeSet."""
        self.slices_at = self.slices.index(lambda one: members_of((one,)))
        """Slices by each Node that their NodeSet has."""

    @property
    def _all(self) -> "tuple[Reflector[Node], Reflector[NodeSet], Reflector[Pod], Reflector[NodeSlice]]":
        return self.nodes, self.nodesets, self.pods, self.slices

    async def run(self) -> None:
        """Keep all of them current until cancelled."""
        async with anyio.create_task_group() as tasks:
            for view in self._all:
                tasks.start_soon(view.run)

    @property
    def is_complete(self) -> bool:
        """All of them have read their whole lists."""
        return all(view.is_complete for view in self._all)

    def require_current(self, silent_max_s: float = STALE_S) -> None:
        """Raise `KubeUnavailableError` while one of the views does not learn what changes."""
        self.require_complete()
        for view in self._all:
            if view.age_s > silent_max_s:
                what = f"no message about {view.resource.plural} for {view.age_s:.0f} s"
                raise KubeUnavailableError(what)

    async def complete(self) -> None:
        """Return when all of them have read their whole lists."""
        for view in self._all:
            await view.complete()

    def require_complete(self) -> None:
        """Raise `KubeUnavailableError` while one of the views is not complete."""
        for view in self._all:
            view.require_complete()

    def pod_on(self, kube_node: str) -> Pod | None:
        """Return the NodeSet Pod on a Node; of two, the one that is not about to go."""
        pods = self.member_pods(kube_node)
        return min(pods, key=lambda pod: (pod.is_terminating, pod.is_over, pod.key), default=None)

    def is_member_pod(self, pod: Pod) -> bool:
        """Whether *pod*, which has the label, is a NodeSet Pod."""
        return is_member_pod(pod, self._namespaces())

    def member_pods(self, kube_node: str) -> list[Pod]:
        """Return the NodeSet Pods on a Node; a label alone makes none."""
        pods = self.pods_at.of(kube_node)
        return [pod for pod in pods if is_member_pod(pod, self._namespaces())] if pods else pods

    def _namespaces(self) -> set[str]:
        return {nodeset.metadata.namespace for nodeset in self.nodesets.objects.values()}

    def is_member(self, nodeset_key: str, kube_node: str) -> bool:
        """Whether a NodeSet has a Node, be there a Pod on it now or not. Only complete views can say no."""
        return any(slice_owner(one) == nodeset_key for one in self.slices_at.of(kube_node))

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
            return self.nodesets.keys() if place(before) != place(after) else ()

        def of_slice(before: NodeSlice | None, after: NodeSlice | None) -> Iterable[str]:
            return {slice_owner(one) for one in (before, after) if one is not None}

        self.slices.follow(changes, of_slice)
        self.nodesets.follow(changes, of_nodeset)
        self.pods.follow(changes, of_pod)
        self.nodes.follow(changes, of_node)
        return changes

    def pod_changes(self) -> Changes:
        """Return the keys of NodeSet Pods that changed, or whose Node or NodeSet's features did."""
        changes = self.pods.changes()

        def of_node(before: Node | None, after: Node | None) -> Iterable[str]:
            found = after or before
            if found is None or pod_fingerprint(before) == pod_fingerprint(after):
                return ()
            pod = self.pod_on(found.metadata.name)
            return (pod.key,) if pod is not None else ()

        def of_nodeset(before: NodeSet | None, after: NodeSet | None) -> Iterable[str]:
            if after is None or (before is not None and before.spec.features == after.spec.features):
                return ()  # One that came may have replaced another of its name: its Pods show the former's.
            return (pod.key for pod in self.pods_of.of(after.key))

        self.nodes.follow(changes, of_node)
        self.nodesets.follow(changes, of_nodeset)
        return changes

    def node_changes(self) -> Changes:
        """Return the names of Nodes whose NodeSet Pod changed, or that bear marks of ours and changed."""
        changes = Changes(())

        def of_node(before: Node | None, after: Node | None) -> Iterable[str]:
            if after is None or marks_fingerprint(before) == marks_fingerprint(after):
                return ()
            name = after.metadata.name
            is_ours = any(label in after.metadata.labels for label in LABELS)
            return (name,) if is_ours or self.pods_at.count(name) else ()

        def of_pod(before: Pod | None, after: Pod | None) -> Iterable[str]:
            if mirror_fingerprint(before) == mirror_fingerprint(after):
                return ()
            return {pinned_node(pod) for pod in (before, after) if pod is not None} - {""}

        def of_slice(before: NodeSlice | None, after: NodeSlice | None) -> Iterable[str]:
            were, are = (members_of((one,)) if one is not None else {} for one in (before, after))
            return were.keys() ^ are.keys()

        def of_nodeset(before: NodeSet | None, after: NodeSet | None) -> Iterable[str]:
            if before is not None and after is not None:
                return ()
            keys = {one.metadata.namespace for one in (before, after) if one is not None}
            pods = self.pods.objects.values()
            return {pinned_node(pod) for pod in pods if pod.metadata.namespace in keys} - {""}

        self.nodes.follow(changes, of_node)
        self.nodesets.follow(changes, of_nodeset)
        self.pods.follow(changes, of_pod)
        self.slices.follow(changes, of_slice)
        return changes


def pod_fingerprint(node: Node | None) -> object:
    """Return what of a Node its NodeSet Pod shows."""
    if node is None:
        return None
    meta = node.metadata
    return (
        meta.labels,
        meta.annotations.get(wk.ANNOTATION_LOCK),
        cordon_reason(node),
        condition(node.status.conditions, wk.CONDITION_HPC_VERIFICATION),
    )


def marks_fingerprint(node: Node | None) -> object:
    """Return what of a Node decides which marks of ours it shall bear, and which it does."""
    if node is None:
        return None
    found = [condition(node.status.conditions, kind) for kind in (*MIRRORED, wk.CONDITION_SLURM_CORDON)]
    return place(node), node.metadata.annotations.get(wk.ANNOTATION_DRAIN), found


def mirror_fingerprint(pod: Pod | None) -> object:
    """Return what of a NodeSet Pod its Node depends on: what the Pod says, and which Pod it is."""
    if pod is None:
        return None
    meta = pod.metadata
    return (
        pinned_node(pod),
        meta.uid,
        meta.labels,
        meta.owner_references,
        pod.is_terminating,
        pod.is_over,
        [condition(pod.status.conditions, kind) for kind in MIRRORED],
    )


def slice_owner(one: NodeSlice) -> str:
    """Return the key of the NodeSet whose slice *one* is."""
    return f"{one.metadata.namespace}/{one.node_set}"
