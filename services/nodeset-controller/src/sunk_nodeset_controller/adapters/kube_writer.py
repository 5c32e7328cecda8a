"""The writes of this service: each checks right before it that we still lead."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import msgspec

from sunk_kube import wellknown as wk
from sunk_kube.bodies import EventText, labels_selector
from sunk_kube.client import KubeClient
from sunk_kube.node_slices import NodeSlice
from sunk_kube.nodesets import ControllerRevision, NodeSet, NodeSetStatus
from sunk_kube.objects import ConfigMap, KubeObject, Node, ObjectMeta
from sunk_kube.pods import Pod
from sunk_kube.resources import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DISRUPTION_BUDGETS,
    NODES,
    NODESETS,
    NODESLICES,
    PODS,
    Resource,
)
from sunk_nodeset_controller.adapters import end_events
from sunk_nodeset_controller.locks.daemonsets import DAEMONSETS, DaemonSet
from sunk_nodeset_controller.metadata import Patch
from sunk_nodeset_controller.metrics import WRITES
from sunk_nodeset_controller.nodesets.owners import owner_reference
from sunk_nodeset_controller.nodesets.template import Manifest
from sunk_runtime.errors import ConflictError, SunkError
from sunk_runtime.leases import Leadership

log = logging.getLogger(__name__)


class FencedKube:
    """Writes to the API server while *leadership* lasts."""

    def __init__(self, client: KubeClient, leadership: Leadership) -> None:
        self._client = client
        self._ends = end_events.EndEvents(client)
        self._leadership = leadership

    async def create_pod(self, body: Manifest) -> Pod:
        """Create a NodeSet Pod. Raises `KubeExistsError` where one of its name exists."""
        self._check("create pod")
        return await self._client.create(PODS, body, body["metadata"]["namespace"])

    async def find_pod(self, namespace: str, name: str) -> Pod | None:
        """Return the Pod of that name, labelled or not, consistently read; None: there is none."""
        return await self._client.find(PODS, name, namespace)

    async def daemonsets(self) -> list[DaemonSet]:
        """Return all DaemonSets."""
        return await self._client.list_all(DAEMONSETS)

    async def find_node(self, name: str) -> Node | None:
        """Return the Node of that name, consistently read; None: there is none."""
        return await self._client.find(NODES, name)

    async def label_pod(self, pod: Pod, labels: Mapping[str, str]) -> None:
        """Put labels on this Pod, and on no later one of its name."""
        self._check("label pod")
        meta = pod.metadata
        await self._client.patch(
            PODS, meta.name, {"metadata": {"labels": labels}}, meta.namespace, uid=meta.uid
        )

    async def delete_pod(self, namespace: str, name: str, uid: str) -> None:
        """Delete this Pod and no later one of its name; it being gone is success."""
        self._check("delete pod")
        await self._client.delete(PODS, name, namespace, uid=uid)

    async def condemn_pod(self, pod: Pod, why: str | None) -> None:
        """Mark this Pod, and no later one of its name, as one that is to go, or take the mark back."""
        self._check("condemn pod")
        meta = pod.metadata
        body = {"metadata": {"annotations": {wk.ANNOTATION_CONDEMNED: why}}}
        await self._client.patch(PODS, meta.name, body, meta.namespace, uid=meta.uid)

    async def apply_budget(self, body: Manifest) -> None:
        """Make a disruption budget be as *body* says. Raises `ConflictError` where somebody else made it."""
        self._check("apply budget")
        meta = body["metadata"]
        await self._client.patch(
            DISRUPTION_BUDGETS, meta["name"], body, meta["namespace"], kind="apply", is_forced=False
        )

    async def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        """Return a ConfigMap, if there is one of that name."""
        return await self._client.find(CONFIG_MAPS, name, namespace)

    async def apply_config_map(self, body: Manifest) -> None:
        """Make a ConfigMap be as *body* says."""
        self._check("apply config map")
        meta = body["metadata"]
        await self._client.patch(CONFIG_MAPS, meta["name"], body, meta["namespace"], kind="apply")

    async def evict_pod(self, namespace: str, name: str, uid: str) -> None:
        """Evict this Pod and no later one of its name; it being gone is success.

        Raises:
            KubeBusyError: a disruption budget forbids it now.
        """
        self._check("evict pod")
        await self._client.evict(Pod(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid)))

    async def record_end(self, namespace: str, name: str, uid: str, text: EventText) -> bool:
        """Record on this Pod, and on its controller, why it is about to be evicted. It returns in time.

        Returns:
            Whether that needs no other try: a Pod that is gone, or goes already, gets no Event.
        """
        self._check("say")
        if self._ends.is_quiet:
            return False
        with anyio.move_on_after(end_events.LAST_WORDS_S):
            try:
                pod = await self._client.find(PODS, name, namespace)
            except SunkError as error:
                fields = {"pod": f"{namespace}/{name}", "reason": text.reason, "error": str(error)}
                log.warning("event not recorded", extra=fields)
                return False
            if pod is None or pod.metadata.uid != uid or pod.is_terminating:
                return True
            return uid in await self._ends.record([(pod, text)])
        self._ends.rest(1)
        return False

    async def create_slice(self, body: Manifest) -> None:
        """Create a NodeSlice. Raises `KubeExistsError` where one of its name exists."""
        self._check("create slice")
        await self._client.create(NODESLICES, body, body["metadata"]["namespace"])

    async def write_slice(self, found: NodeSlice, body: Manifest) -> None:
        """Put *body* in the place of *found*. Raises `ConflictError` where that has changed."""
        self._check("write slice")
        meta = found.metadata
        body["metadata"]["resourceVersion"] = meta.resource_version
        await self._client.replace(NODESLICES, meta.name, body, meta.namespace)

    async def delete_slice(self, found: NodeSlice) -> None:
        """Delete this slice; it being gone is success."""
        self._check("delete slice")
        meta = found.metadata
        await self._client.delete(NODESLICES, meta.name, meta.namespace, uid=meta.uid)

    async def adopt(self, resource: Resource[Any], found: KubeObject, nodeset: NodeSet) -> None:
        """Make *nodeset* the controller of *found*, if it is not being deleted.

        It is read for that: a view that is behind has it without its deletion, and what is an orphan by that
        deletion would go with it.

        Raises:
            ConflictError: either has changed.
        """
        meta = nodeset.metadata
        fresh = await self._client.find(NODESETS, meta.name, meta.namespace)
        if fresh is None or fresh.metadata.uid != meta.uid or fresh.metadata.deletion_timestamp is not None:
            raise ConflictError(f"nodeset {nodeset.key} is being deleted")
        self._check("adopt")
        meta = found.metadata
        owners = [*msgspec.to_builtins(meta.owner_references), owner_reference(nodeset)]
        body = {"metadata": {"resourceVersion": meta.resource_version, "ownerReferences": owners}}
        await self._client.patch(resource, meta.name, body, meta.namespace, uid=meta.uid)

    async def revisions(self, nodeset: NodeSet) -> list[ControllerRevision]:
        """Return the templates that NodeSets of this name have had."""
        labels = labels_selector({wk.LABEL_NODESET: nodeset.metadata.name})
        return await self._client.list_all(CONTROLLER_REVISIONS, nodeset.metadata.namespace, labels=labels)

    async def create_revision(self, body: Manifest) -> None:
        """Keep a template. Raises `KubeExistsError` where one of its name is kept."""
        self._check("create revision")
        await self._client.create(CONTROLLER_REVISIONS, body, body["metadata"]["namespace"])

    async def delete_revision(self, found: ControllerRevision) -> None:
        """Keep a template no longer; it being gone is success."""
        self._check("delete revision")
        meta = found.metadata
        await self._client.delete(CONTROLLER_REVISIONS, meta.name, meta.namespace, uid=meta.uid)

    async def hold_nodeset(self, nodeset: NodeSet, finalizers: Sequence[str]) -> None:
        """Set what must be done before a NodeSet may go. Raises `ConflictError` where it has changed."""
        self._check("hold nodeset")
        meta = nodeset.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": list(finalizers)}}
        await self._client.patch(NODESETS, meta.name, body, meta.namespace, uid=meta.uid)

    async def record_event(self, nodeset: NodeSet, text: EventText) -> None:
        """Say *text* about a NodeSet, as an Event."""
        self._check("say")
        await self._client.record(NODESETS, nodeset, text)

    async def mark_pod(self, pod: Pod, body: Patch) -> None:
        """Put marks on this Pod and no later one of its name. `ConflictError`: look again."""
        self._check("mark pod")
        meta = pod.metadata
        await self._client.patch_status(PODS, meta.name, body, meta.namespace, kind="strategic", uid=meta.uid)

    async def mark_node(self, node: Node, body: Patch) -> None:
        """Put marks on a Node."""
        self._check("mark node")
        meta = node.metadata
        await self._client.patch_status(NODES, meta.name, body, kind="strategic", uid=meta.uid)

    async def write_status(self, nodeset: NodeSet, status: NodeSetStatus) -> None:
        """Write our part of the status of a NodeSet."""
        self._check("write status")
        meta, fields = nodeset.metadata, msgspec.to_builtins(status)
        if not status.gpus_awaited:  # A definition of before does not have it.
            del fields["gpusAwaited"]
        body = {
            "apiVersion": NODESETS.api_version,
            "kind": NODESETS.kind,
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "status": fields,
        }
        await self._client.patch_status(NODESETS, meta.name, body, meta.namespace, kind="apply", uid=meta.uid)

    def _check(self, write: str) -> None:
        self._leadership.check()
        WRITES.labels(write).inc()
