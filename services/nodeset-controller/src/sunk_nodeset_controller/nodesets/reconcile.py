"""One turn of the NodeSet loop: look, plan, carry out, tell."""

import logging
from collections.abc import Collection
from datetime import UTC, datetime

import anyio
import msgspec

from sunk_kube.errors import KubeExistsError, KubeRejectedError, KubeUnavailableError
from sunk_kube.nodesets import NodeSet
from sunk_nodeset_controller.fenced import FencedKube
from sunk_nodeset_controller.nodesets.model import Action, CreatePod, Observed, Plan, ReplacePod
from sunk_nodeset_controller.nodesets.owners import is_owned, node_owners, owner_key, refusal
from sunk_nodeset_controller.nodesets.plan import plan
from sunk_nodeset_controller.nodesets.status import status
from sunk_nodeset_controller.nodesets.template import manifest, pinned_node
from sunk_nodeset_controller.views import KubeViews
from sunk_runtime.errors import ConflictError

log = logging.getLogger(__name__)

SEEN_S = 5.0
"""How long our own Pods may take to come back to us by the watch."""

REFUSED_AGAIN_S = 10.0
"""A quota may grow, a ServiceAccount be made: neither tells us."""


class NodeSetLoop:
    """Brings NodeSets closer to what they declare. One at a time: what one takes, the next must see."""

    def __init__(
        self,
        views: KubeViews,
        kube: FencedKube,
        *,
        clusters: Collection[str],
        lock_key: str,
        replace_after_s: float,
    ) -> None:
        self._views = views
        self._kube = kube
        self._clusters = clusters
        self._lock_key = lock_key
        self._replace_after_s = replace_after_s

    async def reconcile(self, key: str) -> float | None:
        """Bring the NodeSet *key* one step closer; return when to look again though nothing changes."""
        self._views.require_complete()
        nodeset = self._views.nodesets.get(key)
        if nodeset is None:
            return None
        seen = self._observe(nodeset)
        found = plan(seen)
        try:
            await self._carry_out(seen, found.actions)
        except KubeRejectedError as error:
            log.error("pods refused", extra={"nodeset": key, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
            await self._tell(self._observe(nodeset), Plan(invalid=str(error)))
            return REFUSED_AGAIN_S
        await self._tell(self._observe(nodeset), found)
        return found.again_s

    def _observe(self, nodeset: NodeSet) -> Observed:
        """Return all that concerns *nodeset*, as it is now."""
        pods = self._views.pods.values()
        nodes = self._views.nodes.values()
        nodesets = self._views.nodesets
        own = [pod for pod in pods if owner_key(pod) == nodeset.key and is_owned(pod, nodeset)]
        uids = {pod.metadata.uid for pod in own}
        others = [pod for pod in pods if pod.metadata.uid not in uids]
        owners = node_owners(nodes, pods, nodesets.keys())
        leftovers = {pinned_node(pod): owner_key(pod) for pod in others if owner_key(pod) == nodeset.key}
        return Observed(
            nodeset=nodeset,
            nodes=tuple(nodes),
            pods=tuple(own),
            foreign=leftovers | {name: key for name, key in owners.items() if key != nodeset.key},
            taken=frozenset(
                pod.metadata.name for pod in others if pod.metadata.namespace == nodeset.metadata.namespace
            ),
            refusal=refusal(nodeset, nodesets.values(), self._clusters),
            lock_key=self._lock_key,
            now=datetime.now(UTC).replace(microsecond=0),
            replace_after_s=self._replace_after_s,
        )

    async def _carry_out(self, seen: Observed, actions: tuple[Action, ...]) -> None:
        """Carry out *actions* and wait until the view shows them: the next plan is made on it.

        Raises:
            ConflictError: the view was stale; the others were carried out all the same.
        """
        stale: list[str] = []
        for action in actions:
            try:
                await self._apply(seen, action)
            except KubeExistsError as error:
                stale.append(str(error))
        if actions:
            log.info("nodeset reconciled", extra={"nodeset": seen.nodeset.key, "actions": len(actions)})
        created = [action.name for action in actions if isinstance(action, CreatePod)]
        await self._await_seen(seen.nodeset.metadata.namespace, created)
        if stale:
            raise ConflictError("; ".join(stale))

    async def _apply(self, seen: Observed, action: Action) -> None:
        match action:
            case CreatePod(name, kube_node):
                node = next(node for node in seen.nodes if node.metadata.name == kube_node)
                await self._kube.create_pod(manifest(seen.nodeset, node, name, self._lock_key))
            case ReplacePod(name, uid):
                await self._kube.delete_pod(seen.nodeset.metadata.namespace, name, uid)

    async def _await_seen(self, namespace: str, names: list[str]) -> None:
        with anyio.move_on_after(SEEN_S):
            changes = self._views.pods.changes()
            while any(self._views.pods.get(f"{namespace}/{name}") is None for name in names):
                await anext(changes)
            return
        raise KubeUnavailableError(f"pods of {namespace} are made, and not seen yet")

    async def _tell(self, seen: Observed, found: Plan) -> None:
        told = status(seen, found)
        if msgspec.to_builtins(told) != msgspec.to_builtins(seen.nodeset.status):
            await self._kube.tell_status(seen.nodeset, told)
