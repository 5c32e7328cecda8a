"""The lock's calls of the API server: read one Node, write its lock, list the Pods on it.

What must stay true: annotation, holders and taint are one patch, for the version of the Node that was
decided upon; Pods are asked for on one Node at a time, which the API server has an index for, and read
consistently; nothing is written unless we lead.
"""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeNotFoundError, KubeRejectedError, KubeUnavailableError
from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_kube.resources import NODES, PODS
from sunk_nodeset_controller.adapters.end_events import EndEvents, PodEnd
from sunk_nodeset_controller.lock_controller.stray_taints import (
    MANAGED_NODES,
    is_stray_taint,
    taken_off,
    who_tainted,
)
from sunk_nodeset_controller.locks.annotations import patch, read
from sunk_nodeset_controller.locks.eviction import PodEviction
from sunk_nodeset_controller.locks.metrics import LOCK_WRITES, PODS_DRIVEN
from sunk_nodeset_controller.locks.model import OPEN, NodeLock
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_runtime.errors import ConflictError, SunkError
from sunk_runtime.leases import Leadership

log = logging.getLogger(__name__)

PREFETCHED_S: Final = 10.0
"""For how long a Node that was listed with all others is as good as one that is read."""


class NodeLockStore:
    """Locks of Nodes, written while *leadership* lasts."""

    def __init__(
        self,
        client: KubeClient,
        leadership: Leadership,
        measure: EvictionPolicy,
        *,
        viewed: Mapping[str, Node] = MappingProxyType({}),
        met: Collection[str] = (),
    ) -> None:
        """Describe them.

        Args:
            client: Calls of the API server.
            leadership: Every write asks whether it still holds.
            measure: The taint, and who may stay on a locked Node.
            viewed: Nodes as a view has them: it may be behind what is written, so it decides nothing but what
                a write has to prove, and the first look at a Node that nobody has written a lock on.
            met: Those that an earlier leader may have written.
        """
        self._client = client
        self._ends = EndEvents(client)
        self._leadership = leadership
        self._viewed = viewed
        self.measure = measure
        self.taint = measure.taint
        self._prefetched: dict[str, Node] = {}
        self._prefetched_until = 0.0
        self._touched: set[str] = set()
        """What was read or written since the last list began: that list may have it as it was before."""
        self._met = set(met)

    async def prefetch(self, kube_nodes: Collection[str]) -> list[Node]:
        """Return all Nodes, consistently listed: before each of *kube_nodes* is looked at."""
        self._prefetched, self._touched = {}, set()
        until = time.monotonic() + PREFETCHED_S
        found = {node.metadata.name: node for node in await self._client.list_all(NODES)}
        self._prefetched = {
            name: found[name] for name in kube_nodes if name in found and name not in self._touched
        }
        self._prefetched_until = until
        self._met &= found.keys() | self._touched  # A Node that is gone and comes back is a new one.
        return list(found.values())

    def viewed(self, kube_node: str) -> Node | None:
        """Return the Node as a view has it, behind what was written or not; None: none does."""
        return self._viewed.get(kube_node)

    async def read(self, kube_node: str, *, may_be_prefetched: bool = False) -> Node | None:
        """Return the Node, consistently read; None: there is none.

        Args:
            kube_node: Its name.
            may_be_prefetched: Nobody asks for anything: the Node as it was listed will do, once.
                Nobody else changes a lock while we lead, and a write is for the version that was read.
        """
        prefetched = self._prefetched.pop(kube_node, None)
        if prefetched is not None and time.monotonic() >= self._prefetched_until:
            prefetched = None
        if kube_node not in self._met:  # A new one: thousands are made at once where a NodeSet is.
            prefetched = self._viewed.get(kube_node, prefetched)
        self._touched.add(kube_node)
        self._met.add(kube_node)
        if prefetched is not None and may_be_prefetched:
            return prefetched
        return await self._client.find(NODES, kube_node)

    async def write(self, node: Node, lock: NodeLock) -> Node:
        """Make *lock* stand on *node* and return the Node as it is then.

        Raises:
            ConflictError: the Node is no longer as *node* has it: read and decide again.
            KubeUnavailableError: it may stand there or not: read it again.
        """
        self._leadership.check()
        self._prefetched.pop(node.metadata.name, None)
        self._touched.add(node.metadata.name)
        self._met.add(node.metadata.name)
        outcome = "ok"
        try:
            return await self._client.patch(NODES, node.metadata.name, patch(node, lock, self.taint))
        except KubeNotFoundError as error:
            outcome = "gone"
            raise ConflictError(str(error)) from error
        except SunkError as error:
            outcome = type(error).__name__
            raise
        finally:
            LOCK_WRITES.labels(lock.value, outcome).inc()

    async def take_off(self, node: Node) -> None:
        """Take a lock, or what is left of one, off a Node that no Slurm node has. Errors: as of `write`."""
        if is_stray_taint(read(node, self.taint)):
            await self.record_stray_taint(node)
        await self.write(node, OPEN)

    async def record_stray_taint(self, node: Node) -> None:
        """Say on *node* who put our taint there, before it is taken off. A refusal holds nothing up."""
        self._leadership.check()
        try:
            found = await self._client.find(MANAGED_NODES, node.metadata.name)
            if found is None or not is_stray_taint(read(found, self.taint)):
                return  # The view was behind.
            who = who_tainted(found)
            log.warning("stray lock taint", extra={"kube_node": node.metadata.name, "who": who})
            await self._client.record(NODES, node, taken_off(self.taint, who))
        except SunkError as error:
            fields = {"kube_node": node.metadata.name, "error": str(error)}
            log.warning("stray lock taint not recorded", extra=fields)

    async def pods_on(self, kube_node: str) -> list[Pod]:
        """Return every Pod that is bound to the Node, terminating and ended ones too."""
        return await self._client.list_all(PODS, fields=_on(kube_node))

    async def report(self, ends: Sequence[PodEnd]) -> frozenset[str]:
        """Record why Pods are about to be evicted; return the uids of those whose Events need no other try.

        A dry run evicts no Pod, and records none.
        """
        if not ends or self.measure.clearing.is_dry_run:
            return frozenset()
        self._leadership.check()
        return await self._ends.record(ends)

    async def carry_out(self, eviction: PodEviction) -> str:
        """Have a Pod leave; return why it need not, in the API server's words, or nothing.

        A budget that forbids it and an API server without time look alike: asked again in a moment.
        """
        self._leadership.check()
        meta, outcome = eviction.pod.metadata, "ok"
        is_dry_run = self.measure.clearing.is_dry_run
        try:
            if is_dry_run:
                await self._client.evict(eviction.pod, is_dry_run=True)
                outcome = "dry_run"
                return "its eviction would succeed, and is not done: this is a dry run"
            if eviction.how == "delete":
                await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid)
            else:
                await self._client.evict(eviction.pod)
        except ConflictError:
            outcome = "gone"  # Another Pod has its name: it is looked at in its own right.
        except (KubeUnavailableError, KubeRejectedError) as error:
            outcome = "forbidden"
            return str(error)
        finally:
            PODS_DRIVEN.labels(eviction.how, outcome).inc()
        log.info("pod made to leave", extra={"pod": eviction.pod.key, "how": eviction.how})
        return ""


def _on(kube_node: str) -> str:
    return f"spec.nodeName={kube_node}"
