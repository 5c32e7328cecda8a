"""The writes of this service: each checks right before it that we still lead."""

import msgspec

from sunk_kube.client import KubeClient
from sunk_kube.nodesets import NodeSet, NodeSetStatus
from sunk_kube.objects import Node, Pod
from sunk_kube.resources import NODES, NODESETS, PODS
from sunk_nodeset_controller.marks import Patch
from sunk_nodeset_controller.metrics import WRITES
from sunk_nodeset_controller.nodesets.template import Manifest
from sunk_runtime.leases import Leadership


class FencedKube:
    """Writes to the API server while *leadership* lasts."""

    def __init__(self, client: KubeClient, leadership: Leadership) -> None:
        self._client = client
        self._leadership = leadership

    async def create_pod(self, body: Manifest) -> Pod:
        """Create a NodeSet Pod. Raises `KubeExistsError` where one of its name exists."""
        self._check("create pod")
        return await self._client.create(PODS, body, body["metadata"]["namespace"])

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Delete this Pod and no later one of its name; it being gone is success."""
        self._check("delete pod")
        await self._client.delete(PODS, name, namespace, uid=uid)

    async def mark_pod(self, pod: Pod, body: Patch) -> None:
        """Put marks on this Pod and no later one of its name."""
        self._check("mark pod")
        meta = pod.metadata
        await self._client.patch_status(PODS, meta.name, body, meta.namespace, kind="strategic", uid=meta.uid)

    async def mark_node(self, node: Node, body: Patch) -> None:
        """Put marks on a Node."""
        self._check("mark node")
        meta = node.metadata
        await self._client.patch_status(NODES, meta.name, body, kind="strategic", uid=meta.uid)

    async def tell_status(self, nodeset: NodeSet, status: NodeSetStatus) -> None:
        """Write the status of a NodeSet."""
        self._check("tell status")
        meta = nodeset.metadata
        body = {"status": msgspec.to_builtins(status)}
        await self._client.patch_status(NODESETS, meta.name, body, meta.namespace, uid=meta.uid)

    def _check(self, write: str) -> None:
        self._leadership.check()
        WRITES.labels(write).inc()
