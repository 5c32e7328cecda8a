"""Wanted drains from the bus to Slurm: whenever either side of a node changes, both are compared.

What must stay true: nothing is decided on views that are not complete; the node is read again right
before it is written; nothing is written when the lease may have ended.
"""

import logging
from collections.abc import AsyncIterator
from typing import Any, Final

from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_runtime.errors import TransientError
from sunk_runtime.keys import KeyLoop
from sunk_runtime.leases import Leadership
from sunk_runtime.recovery import Recovery
from sunk_runtime.views import StateView, now
from sunk_slurm.states import NodeState
from sunk_slurm.wire import Node
from sunk_syncer.apply import apply
from sunk_syncer.config import Config
from sunk_syncer.deadline import within
from sunk_syncer.drains import PREFIX, decide
from sunk_syncer.model import Action, DownNode, KubeSide, SlurmSide
from sunk_syncer.ports import NodeWrites
from sunk_syncer.watch_nodes import NodeWatch

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 1.0


class Views:
    """What others have said on the bus about the nodes of one cluster."""

    def __init__(
        self,
        nodes: StateView[SlurmNodeState],
        pods: StateView[KubePodState],
        placements: StateView[PlacementState],
        locks: StateView[LockState],
    ) -> None:
        self.nodes = nodes
        self.pods = pods
        self.placements = placements
        self.locks = locks

    def recoveries(self) -> list[Recovery]:
        """Return what tells that one of them is complete again."""
        return [view.recovery for view in self._all()]

    def _all(self) -> tuple[StateView[Any], ...]:
        return self.nodes, self.pods, self.placements, self.locks

    def require_complete(self) -> None:
        """Raise `TransientError` while one of them is not read yet, or a value cannot be read."""
        for view in self._all():
            view.require_complete()
        if self.placements.undecodable:
            raise TransientError("a placement cannot be read: whether one is overdue is unknown")


class DrainPropagation:
    """Keeps the drains of one cluster's nodes as Kubernetes' side wants them. Only the leader runs it."""

    def __init__(
        self, slurm: NodeWrites, watch: NodeWatch, views: Views, leadership: Leadership, config: Config
    ) -> None:
        self._slurm = slurm
        self._watch = watch
        self._views = views
        self._leadership = leadership
        self._config = config
        self._loop = KeyLoop("drain", self._settle, woken_by=views.recoveries())
        self._node_by_placement: dict[str, str] = {}
        self._downed: dict[str, str] = {}
        """The uid of the Pod that each node was set down for."""

    async def run(self) -> None:
        """Compare until cancelled."""
        views = self._views
        await self._loop.run(
            views.nodes.changes(),
            views.pods.changes(),
            views.locks.changes(),
            self._nodes_of_placements(),
            keys=views.nodes.keys,
            resync_s=self._config.resync_s,
        )

    def wake(self) -> None:
        """Do now what was put off because Slurm did not answer."""
        self._loop.wake()

    async def _nodes_of_placements(self) -> AsyncIterator[str]:
        """Yield the node of each placement that changed, and of each that is gone."""
        async for uid in self._views.placements.changes():
            state = self._views.placements.get(uid)
            before = self._node_by_placement.pop(uid, "")
            if state is not None and state.node:
                self._node_by_placement[uid] = state.node
            for node in {before, state.node if state else ""} - {""}:
                yield node

    async def _settle(self, name: str) -> float | None:
        """Bring one node's drain in line; return when to look again although nothing changes."""
        self._views.require_complete()
        if name in self._views.pods.undecodable or name in self._views.locks.undecodable:
            raise TransientError(f"what is known of node {name} cannot be read", retry_after_s=5.0)
        told = self._views.nodes.get(name)
        if told is None:
            return self._look_for(name)
        kube = self._kube_side(name)
        if not self._decide(_told_side(told), kube):
            return self._again_s(_told_side(told))
        fresh = await self._watch.fresh(name)
        if fresh is None:
            return None
        slurm = _fresh_side(fresh)
        for action in self._decide(slurm, self._kube_side(name)):
            await self._apply(action, slurm, kube)
        return self._again_s(slurm)

    def _look_for(self, name: str) -> float | None:
        """A slurmd that answers has registered, or is about to: no need to wait for the next list."""
        pod = self._views.pods.get(name)
        if pod is None or not pod.is_ready:
            return None
        self._watch.look(name)
        return _LOOK_AGAIN_S

    def _decide(self, slurm: SlurmSide, kube: KubeSide) -> tuple[Action, ...]:
        return decide(slurm, kube, prehook_pause_s=self._config.prehook_pause_s)

    def _again_s(self, slurm: SlurmSide) -> float | None:
        """A drain of ours may have to go for no other reason than time."""
        is_ours = slurm.state.is_drain and slurm.reason.startswith(PREFIX)
        return self._config.prehook_pause_s if is_ours else None

    async def _apply(self, action: Action, slurm: SlurmSide, kube: KubeSide) -> None:
        """Carry out one action, say so, and look at what became of it, whatever the answer was."""
        self._leadership.check()
        timeout_s = min(self._config.call_timeout_s, self._leadership.left_s)
        try:
            with within(timeout_s, f"change node {slurm.node}"):
                await apply(action, self._slurm)
        finally:
            self._watch.look(slurm.node)
        if isinstance(action, DownNode) and kube.pod is not None:
            self._downed[slurm.node] = kube.pod.uid
        log.info(
            "node changed",
            extra={
                "node": slurm.node,
                "action": type(action).__name__,
                "reason": getattr(action, "reason", None),
                "reason_before": slurm.reason,
            },
        )

    def _kube_side(self, name: str) -> KubeSide:
        pod = self._views.pods.get(name)
        return KubeSide(
            pod=pod,
            is_overdue=self._is_overdue(name),
            lock=self._views.locks.get(name),
            is_downed=pod is not None and self._downed.get(name) == pod.uid,
        )

    def _is_overdue(self, name: str) -> bool:
        return any(
            placement.node == name and placement.is_overdue and placement.is_pod_present
            for placement in self._views.placements.values()
        )


def _told_side(told: SlurmNodeState) -> SlurmSide:
    return SlurmSide(
        node=told.node,
        state=NodeState(told.state, frozenset(told.flags)),
        reason=told.reason,
        reason_age_s=(now() - told.reason_changed).total_seconds() if told.reason_changed else float("inf"),
    )


def _fresh_side(node: Node) -> SlurmSide:
    changed = node.reason_changed_at.moment
    return SlurmSide(
        node=node.name,
        state=node.state_now,
        reason=node.reason,
        reason_age_s=(now() - changed).total_seconds() if changed else float("inf"),
    )
