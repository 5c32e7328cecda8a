"""A node's Extra, features and topology as its Kubernetes side has them.

At most one write for each node and change.

A place is a write of its own: Slurm refuses one in a block that its topology.yaml does not have yet, and the
rest is not to wait for that.
"""

import logging
from typing import Final

from sunk_events.base import REASON_MAX, UNKNOWN, Cause, event_id, source
from sunk_events.nodes import NodeExtraReplaced, ReplacedExtra
from sunk_runtime.clock import now
from sunk_runtime.jetstream import Bus
from sunk_runtime.keys import KeyLoop
from sunk_runtime.leases import Leadership
from sunk_runtime.writer import publish
from sunk_slurm.wire import Features, Node
from sunk_syncer.actions import DescribeNode, PlaceNode
from sunk_syncer.adapters.views import Views
from sunk_syncer.config import Config
from sunk_syncer.policy.extra import ExtraContent, content, features, is_current, is_elsewhere, merged, parsed
from sunk_syncer.states.nodes import SERVICE
from sunk_syncer.writers.node_writer import NodeWriter

log = logging.getLogger(__name__)

_AT_ONCE: Final = 2
"""Nothing waits for a description; drains come first."""
_LATER_S: Final = 1.0


class ExtraController:
    """Keeps Extra and features of one cluster's nodes. Only the leader runs it."""

    def __init__(
        self, bus: Bus, node_writer: NodeWriter, views: Views, *, leadership: Leadership, config: Config
    ) -> None:
        self._bus = bus
        self._leadership = leadership
        self._node_writer = node_writer
        self._views = views
        self._config = config
        self._loop = KeyLoop("describe", self._settle, concurrency=_AT_ONCE, woken_by=views.recoveries())

    async def run(self) -> None:
        """Compare until cancelled."""
        views = self._views
        await views.complete()
        await self._loop.run(
            views.nodes.changes(),
            views.pods.changes(),
            views.locks.changes(),
            keys=views.nodes.keys,
            resync_s=self._config.resync_s,
        )

    def wake(self) -> None:
        """Do now what was put off because Slurm did not answer."""
        self._loop.wake()

    async def _settle(self, name: str) -> float | None:
        """Bring one node's description in line; return when to look again although nothing changes."""
        self._views.require_known(name)
        published = self._views.nodes.get(name)
        if (wanted := self._wanted(name)) is None or published is None:
            return None
        there = parsed(published.extra)  # Cut where it is long; then it is no object, and a look tells.
        on_node = Features(published.features, published.features)  # The bus has those that are active.
        is_described = is_current(there, wanted) and features(there, wanted, on_node) is None
        if is_described and not is_elsewhere(published.topology, self._place(name)):
            return None
        return _LATER_S if self._node_writer.is_crowded else await self._describe(name)

    async def _describe(self, name: str) -> float | None:
        async with self._node_writer.place(name):
            seen = await self._node_writer.look(name)
            self._views.require_known(name)
            if seen is None or (wanted := self._wanted(name)) is None:
                return None
            action = _action(seen.node, wanted, self._place(name), self._cause(name))
            if action is None:
                return None
            if isinstance(action, DescribeNode) and parsed(seen.node.extra).users is None:
                await self._publish_replaced(seen.node)
            is_done = await self._node_writer.carry_out(action, seen)
        return None if is_done else self._config.refused_again_s

    def _wanted(self, name: str) -> ExtraContent | None:
        pod = self._views.pods.get(name)
        return None if pod is None else content(pod, self._views.locks.get(name))

    def _place(self, name: str) -> str:
        pod = self._views.pods.get(name)
        return "" if pod is None else pod.topology

    def _cause(self, name: str) -> Cause:
        """Return what changed last of what the node's Extra shows."""
        views = (self._views.pods, self._views.locks)
        stored = {at: view.event(name) for view in views if (at := view.stored(name)) is not None}
        return stored[max(stored)] if stored else UNKNOWN

    async def _publish_replaced(self, node: Node) -> None:
        """Publish what is about to be lost; a crash before the write tells it again under the same id."""
        cluster, name = self._config.cluster, node.name
        event = NodeExtraReplaced(
            id=event_id("NodeExtraReplaced", name, self._views.nodes.revision(name)),
            source=source(cluster, SERVICE),
            subject=name,
            time=now(),
            data=ReplacedExtra(node=name, extra=node.extra[:REASON_MAX]),
        )
        await publish(self._bus, cluster, event, fence=self._leadership)
        log.warning("extra is no JSON object and is replaced", extra={"node": name})


def _action(fresh: Node, wanted: ExtraContent, place: str, cause: Cause) -> DescribeNode | PlaceNode | None:
    """Return the one write that the node needs next."""
    there = parsed(fresh.extra)
    new_features = features(there, wanted, fresh.features_now)
    if new_features is None and is_current(there, wanted):
        return PlaceNode(fresh.name, place, cause) if is_elsewhere(fresh.topology, place) else None
    return DescribeNode(fresh.name, merged(there, wanted, now()), new_features, cause)
