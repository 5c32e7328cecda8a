"""What the bus is told of NodeSet Pods and their Nodes, for one Slurm cluster."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_kube import wellknown as wk
from sunk_kube.node_slices import NodeSlice
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.nodesets.owners import cluster_holders, is_owned, owner_key
from sunk_nodeset_controller.nodesets.slices import members_of
from sunk_nodeset_controller.nodesets.template import pinned_node, pod_labels
from sunk_nodeset_controller.nodesets.topology import NO_TOPOLOGY, Topology
from sunk_nodeset_controller.pods.events import FactContext, facts
from sunk_nodeset_controller.pods.projection import cordon_reason, given_features, shown, verification
from sunk_nodeset_controller.pods.state import PodObserved, condemned_for, state
from sunk_runtime.changes import Changes
from sunk_runtime.leases import Leadership
from sunk_runtime.views import StateView
from sunk_runtime.writer import StateWriter

log = logging.getLogger(__name__)

SERVICE: Final = "nodeset-controller"
HIDDEN_AGAIN_S: Final = 5.0
"""How soon a Pod that we do not see, and that is there, is looked for again."""


class PodStatePublisher:
    """The Pod Controller towards the bus, for one Slurm cluster. Keys are Slurm nodes."""

    def __init__(
        self,
        views: KubeViews,
        kube: FencedKube,
        writer: StateWriter[KubePodState],
        slurm: StateView[SlurmNodeState],
        leadership: Leadership,
        *,
        lock_key: str,
        topology: Topology = NO_TOPOLOGY,
    ) -> None:
        self._views = views
        self._kube = kube
        self._writer = writer
        self._slurm = slurm
        self._leadership = leadership
        self._lock_key = lock_key
        self._topology = topology
        self._cluster = writer.view.cluster

    async def settle(self, node: str) -> float | None:
        """Tell the bus of the Pod of the Slurm node *node*; return when to look again, if it hides."""
        self._views.require_complete()
        self._writer.view.require_complete()
        if self._pod(node) is None and await self._is_hidden(node):
            return HIDDEN_AGAIN_S
        await self._publish(node, self._pod(node))  # It may have come back into view meanwhile.
        return None

    async def _is_hidden(self, node: str) -> bool:
        """Whether the Pod that the bus knows is there after all, without the labels by which we see it.

        Nobody is told that it is gone, for its jobs run on. While its NodeSet controls it, it gets them back.
        """
        before = self._writer.view.get(node)
        if before is None or before.phase == "gone":
            return False
        found = await self._kube.find_pod(before.namespace, before.pod)
        if found is None or found.metadata.uid != before.uid:
            return False
        if self._pod(node) is not None:
            return False
        nodeset = self._views.nodesets.get(f"{before.namespace}/{before.nodeset}")
        log.warning("pod without its label", extra={"pod": found.key})
        if nodeset is not None and is_owned(found, nodeset):
            await self._kube.label_pod(found, pod_labels(nodeset))
        return True

    def key_of(self, node: str) -> str:
        """Return the key of the Pod that is the Slurm node *node*."""
        before = self._writer.view.get(node)
        holder = cluster_holders(self._views.nodesets.values()).get(self._cluster)
        namespace = holder or (before.namespace if before is not None else "")
        return f"{namespace}/{node}"

    def _may_run(self, node: str) -> bool:
        """Whether jobs are on the Slurm node *node*, as far as is known."""
        found = self._slurm.get(node)
        if found is not None:
            return found.is_busy
        return not self._slurm.is_complete or node in self._slurm.undecodable

    def _pod(self, node: str) -> Pod | None:
        pod = self._views.pods.get(self.key_of(node))
        return pod if pod is not None and _is_of(pod, self._cluster) else None

    async def _node(self, kube_node: str) -> Node | None:
        """Return a Node; one that the view does not have is asked for: the view may only be behind."""
        found = self._views.nodes.get(kube_node)
        return await self._kube.find_node(kube_node) if found is None and kube_node else found

    async def _publish(self, node: str, pod: Pod | None) -> None:
        """Facts first, then the state."""
        before, revision = self._writer.view.get(node), self._writer.view.revision(node)
        kube_node, owner = "", ""
        if pod is not None:
            kube_node, owner = pinned_node(pod), owner_key(pod)
        elif before is not None:
            kube_node, owner = before.kube_node, f"{before.namespace}/{before.nodeset}"
        node_found = await self._node(kube_node)
        now = datetime.now(UTC)
        seen = PodObserved(
            pod=pod,
            node=node_found,
            nodeset=self._views.nodesets.get(owner),
            before=before,
            is_member=self._views.is_member(owner, kube_node),
            may_run=self._may_run(node),
            lock_key=self._lock_key,
            topology=self._topology,
            now=now,
        )
        after = state(seen)
        if after != before and pod is not None and given_features(pod) is None:
            log.error("annotation is too long", extra={"pod": pod.key, "annotation": wk.ANNOTATION_FEATURES})
        context = FactContext(
            cluster=self._cluster,
            service=SERVICE,
            revision=revision,
            now=now,
            condemned_for=condemned_for(pod, seen.nodeset, seen.node),
        )
        events = facts(before, after, context)
        self._leadership.check()
        if after is None:
            await self._writer.forget(node, events, revision=revision)
        else:
            await self._writer.record(node, after, events, revision=revision)

    def changes(self) -> Changes:
        """Return the Slurm nodes whose Pod, Node or NodeSet changed."""
        changes = self._writer.view.changes()  # All that the bus knows now; and who is told anew.

        def of_pod(before: Pod | None, after: Pod | None) -> set[str]:
            return {pod.metadata.name for pod in (before, after) if pod and _is_of(pod, self._cluster)}

        self._views.pods.follow(changes, of_pod)
        self._views.nodes.follow(changes, self._of_node)
        self._views.nodesets.follow(changes, self._of_nodeset)
        self._views.slices.follow(changes, self._of_slice)
        return changes

    def is_gone(self, node: str) -> bool:
        """Whether the bus knows *node* and its Pod is gone: what Slurm says of it is then to be looked at."""
        before = self._writer.view.get(node)
        return before is not None and before.phase == "gone"

    def _of_slice(self, before: NodeSlice | None, after: NodeSlice | None) -> set[str]:
        """Return the Slurm nodes whose Node their NodeSet has let go, or taken back."""
        were, are = (members_of((one,)) if one is not None else {} for one in (before, after))
        return set(were.values()) ^ set(are.values())

    def _of_node(self, before: Node | None, after: Node | None) -> Iterable[str]:
        """Return the Slurm node on a Node, if what we tell of it may have changed."""
        node = after or before
        if node is None or _projected(before) == _projected(after):
            return ()
        if node.metadata.labels.get(wk.LABEL_CLUSTER) == self._cluster:
            return (node.metadata.labels.get(wk.LABEL_POD, ""),)
        return self._on(node.metadata.name)

    def _on(self, kube_node: str) -> set[str]:
        """Return the Slurm nodes on a Node that does not say so yet; asked of every Node, so from indexes."""
        pods = self._views.member_pods(kube_node)
        slices = (one for one in self._views.slices_at.of(kube_node) if one.cluster == self._cluster)
        entries = (entry for one in slices for entry in one.nodes if entry.kube_node == kube_node)
        return {
            *(pod.metadata.name for pod in pods if _is_of(pod, self._cluster)),
            *(entry.name for entry in entries),
        }

    def _of_nodeset(self, before: NodeSet | None, after: NodeSet | None) -> Iterable[str]:
        """Return the Slurm nodes of a NodeSet whose will has changed; its status is made of them."""
        if _willed(before) == _willed(after):
            return ()
        keys = {one.key for one in (before, after) if one is not None}
        return [one.pod for one in self._writer.view.values() if f"{one.namespace}/{one.nodeset}" in keys]


def _willed(nodeset: NodeSet | None) -> object:
    """Return what of a NodeSet its Pods' states depend on."""
    if nodeset is None:
        return None
    meta = nodeset.metadata
    return nodeset.spec, meta.deletion_timestamp, meta.finalizers


def _projected(node: Node | None) -> object:
    """Return what of a Node others are told."""
    if node is None:
        return None
    meta = node.metadata
    conditions = shown(node.status.conditions)
    return cordon_reason(node), verification(node, None), conditions, meta.labels, meta.deletion_timestamp


def _is_of(pod: Pod, cluster: str) -> bool:
    """Whether *pod* is a NodeSet Pod of the Slurm cluster *cluster*."""
    return pod.metadata.labels.get(wk.LABEL_CLUSTER) == cluster
