"""The files that are generated from the Nodes of a Slurm cluster's NodeSets, as ConfigMaps.

What must stay true: a ConfigMap is written only if its text changes, and not more often than every few
seconds; where nobody has the cluster's name nothing is written, and nothing is taken away. A topology.yaml
and its blocks stay: slurmctld ends without what its nodes' places are in (ADR 0030).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from sunk_kube import wellknown as wk
from sunk_kube.node_slices import NodeSlice
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node
from sunk_nodeset_controller.adapters.cluster_views import BusConnections
from sunk_nodeset_controller.adapters.kube_views import KubeViews, slice_owner
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.adapters.rate_limit import RateLimit
from sunk_nodeset_controller.node_controller.gres import Counts, Gres, gres_conf
from sunk_nodeset_controller.nodesets.gpus import advertised
from sunk_nodeset_controller.nodesets.owners import cluster_holders
from sunk_nodeset_controller.nodesets.slices import members_of
from sunk_nodeset_controller.nodesets.topology import (
    Topology,
    block_of,
    blocks_of,
    topology_conf,
    topology_yaml,
)
from sunk_runtime.changes import Changes

REST_S: Final = 5.0
"""Nodes come and go in numbers; Slurm reads its configuration anew for each version."""


YAML: Final = "topology.yaml"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is generated. Where nothing is chosen there is no ConfigMap."""

    topology: Topology = Topology()
    gres: tuple[Gres, ...] = ()
    gres_type_labels: tuple[str, ...] = ()


class GeneratedFiles:
    """Keeps the ConfigMaps current. Keys are Slurm clusters."""

    def __init__(self, views: KubeViews, kube: FencedKube, bus: BusConnections, wanted: Wanted) -> None:
        self._views = views
        self._kube = kube
        self._bus = bus
        self._wanted = wanted
        self._rest = RateLimit(REST_S)
        self._counts = Counts()

    async def settle(self, cluster: str) -> float | None:
        """Write what has changed for *cluster*; return when to look again if that is too soon to say."""
        self._views.require_complete()
        namespace = cluster_holders(self._views.nodesets.values()).get(cluster)
        if namespace is None:
            return None
        if left_s := self._rest.left_s(cluster):
            return left_s
        self._rest.begin(cluster)
        before = ""
        if self._wanted.topology.kind != "none":
            found = await self._kube.config_map(namespace, f"{cluster}-topology")
            before = "" if found is None else found.data.get(YAML, "")
        for part, data in self._texts(cluster, namespace, before).items():
            await self._put(namespace, f"{cluster}-{part}", part, data)
        return self._counts.again_s()

    def _texts(self, cluster: str, namespace: str, before: str) -> Mapping[str, Mapping[str, str]]:
        """Return what each ConfigMap is to hold; *before* is the topology.yaml that is there."""
        slices = [
            one
            for one in self._views.slices.values()
            if one.cluster == cluster and one.metadata.namespace == namespace
        ]
        members = members_of(slices)
        nodes = {
            name: node for kube_node, name in members.items() if (node := self._views.nodes.get(kube_node))
        }
        texts: dict[str, dict[str, str]] = {}
        if self._wanted.topology.kind != "none":
            by_name = {name: node.metadata.labels for name, node in nodes.items()}
            texts["topology"] = {"topology.conf": topology_conf(self._wanted.topology, by_name)}
            if self._wanted.topology.kind == "both":
                kept = blocks_of(before) | self._blocks_in_use(cluster)
                texts["topology"][YAML] = topology_yaml(self._wanted.topology, by_name, kept)
            elif before:
                texts["topology"][YAML] = before
        if self._wanted.gres:
            known = self._views.nodes.objects.items()
            self._counts.keep({node.metadata.uid for name, node in known if self._views.slices_at.of(name)})
            nodesets = {
                name: self._views.nodesets.get(slice_owner(one))
                for one in slices
                for name in members_of((one,)).values()
            }

            def types_of(name: str) -> Mapping[str, str]:
                nodeset = nodesets.get(name)
                return {} if nodeset is None else nodeset.spec.gpu_types

            labels = self._wanted.gres_type_labels
            text = gres_conf(self._wanted.gres, labels, nodes, types_of, count_of=self._counts.of)
            texts["gres"] = {"gres.conf": text}
        return texts

    def _blocks_in_use(self, cluster: str) -> set[str]:
        """Return the blocks in which Slurm has nodes, as the bus says: the ConfigMap may have been lost."""
        found = self._bus.find(cluster)
        states = () if found is None else found.slurm_nodes.values()
        return {block_of(state.topology) for state in states} - {""}

    async def _put(self, namespace: str, name: str, part: str, data: Mapping[str, str]) -> None:
        found = await self._kube.config_map(namespace, name)
        if found is None or found.data != data:
            meta = {"name": name, "namespace": namespace, "labels": {wk.LABEL_COMPONENT: part}}
            await self._kube.apply_config_map(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
            )

    def changes(self) -> Changes:
        """Return the clusters whose files may have changed."""
        changes = Changes(())

        def of_slice(before: NodeSlice | None, after: NodeSlice | None) -> Iterable[str]:
            return {one.cluster for one in (before, after) if one is not None}

        def of_node(before: Node | None, after: Node | None) -> Iterable[str]:
            if self._read_of(before) == self._read_of(after):
                return ()
            node = after or before
            name = node.metadata.name if node is not None else ""
            return {one.cluster for one in self._views.slices_at.of(name)}

        def of_nodeset(before: NodeSet | None, after: NodeSet | None) -> Iterable[str]:
            return {one.spec.cluster for one in (before, after) if one is not None} if before != after else ()

        self._views.slices.follow(changes, of_slice)
        self._views.nodes.follow(changes, of_node)
        self._views.nodesets.follow(changes, of_nodeset)
        return changes

    def clusters(self) -> Iterable[str]:
        """Return all clusters that have NodeSets."""
        return {nodeset.spec.cluster for nodeset in self._views.nodesets.values()}

    def _read_of(self, node: Node | None) -> object:
        if node is None:
            return None
        topology = self._wanted.topology
        labels = (*topology.labels, topology.block_label, *self._wanted.gres_type_labels)
        found = [node.metadata.labels.get(label) for label in labels]
        return found, [advertised(node, one.resource) for one in self._wanted.gres]
