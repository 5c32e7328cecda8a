"""The two sides of a node as decisions want them: what Slurm shows, and what others have said on the bus.

What must stay true: nothing is concluded from a view that is not complete, has not heard of its server for
long, or holds a value that cannot be read; nor while nobody sees Kubernetes; nor from an answer of Slurm that
names no state.
"""

from collections.abc import AsyncIterator, Collection
from datetime import datetime
from typing import Any, Final

from sunk_events import subjects
from sunk_events.base import UNKNOWN
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState, KubeWatchState
from sunk_events.placements import PlacementState
from sunk_runtime.clock import now
from sunk_runtime.errors import TransientError
from sunk_runtime.recovery import Recovery
from sunk_runtime.views import StateView
from sunk_slurm.states import NodeState
from sunk_slurm.wire import Node
from sunk_syncer.actions import KubeInputs, SlurmInputs, gone_uid

_WAITS: Final = frozenset({"submitted", "released"})
"""Phases before the job has a node: a Pod on a node has lost its job then, runs on and waits for the next."""


class Views:
    """What is known on the bus about the nodes of one cluster."""

    def __init__(
        self,
        *,
        nodes: StateView[SlurmNodeState],
        jobs: StateView[SlurmJobState],
        pods: StateView[KubePodState],
        placements: StateView[PlacementState],
        locks: StateView[LockState],
        kube: StateView[KubeWatchState],
        age_max_s: float,
        kube_silent_max_s: float,
        bucket_doubt_s: float,
    ) -> None:
        """Put the views together.

        Args:
            nodes: Slurm's nodes, our own.
            jobs: Slurm's jobs, our own.
            pods: NodeSet Pods and their Nodes.
            placements: Pods that Slurm places.
            locks: Locks of Nodes.
            kube: Whether somebody sees Kubernetes.
            age_max_s: Older than this none of them is believed.
            kube_silent_max_s: Nor is any when nobody said for so long that he sees Kubernetes.
            bucket_doubt_s: What a bucket lacks says nothing while it was not written to for so long.
        """
        self.nodes = nodes
        self.jobs = jobs
        self.pods = pods
        self.placements = placements
        self.locks = locks
        self.kube = kube
        self._age_max_s = age_max_s
        self._kube_silent_max_s = kube_silent_max_s
        self._bucket_doubt_s = bucket_doubt_s
        self._node_by_placement: dict[str, str] = {}
        self._placements_by_node: dict[str, set[str]] = {}

    def parts(self) -> tuple[StateView[Any], ...]:
        """Return every view, to be run."""
        return self.nodes, self.jobs, self.pods, self.placements, self.locks, self.kube

    def recoveries(self) -> list[Recovery]:
        """Return what tells that one of them is complete again."""
        return [view.recovery for view in self.parts()]

    def require_seen(self) -> None:
        """Raise `TransientError` if no service has seen Kubernetes for long: known states of Pods may be old.

        A nodeset-controller of before 0.2 never says so: then it is not known.
        """
        silent_s = self.kube.newest_age_s
        is_lost = self.kube.written_for_s < 0 and silent_s < float("inf")
        has_reported = self.kube.get(subjects.LEADER_KEY) is not None or is_lost
        if has_reported and silent_s > self._kube_silent_max_s:
            raise TransientError(f"no message from the nodeset-controller for {silent_s:.0f} s")

    def require_known(self, node: str) -> None:
        """Raise `TransientError` where something that counts for *node* is not known now.

        What we tell of Slurm ourselves too: whether an older bucket is right says another loop of ours.
        """
        self.require_seen()
        for view in self.parts():
            view.require_settled()
            if view.age_s > self._age_max_s:
                raise TransientError(f"no message about state {view.bucket} for {view.age_s:.0f} s")
        if self.placements.undecodable:
            raise TransientError("a placement cannot be read: whether one is overdue is unknown")
        if node in self.pods.undecodable or node in self.locks.undecodable:
            raise TransientError(f"what is known of node {node} cannot be read", retry_after_s=5.0)

    def require_complete(self) -> None:
        """Raise `TransientError` while a view is not complete, or in doubt."""
        for view in self.parts():
            view.require_settled()

    async def complete(self) -> None:
        """Return when every view is complete and placements are known by their nodes."""
        for view in self.parts():
            await view.complete()
        for uid in self.placements.keys():  # noqa: SIM118 - no dict
            self._index(uid)

    async def nodes_of_placements(self) -> AsyncIterator[str]:
        """Yield the node of each placement that changed, and of each that is gone."""
        async for uid in self.placements.changes():
            for node in self._index(uid):
                yield node

    def _index(self, uid: str) -> set[str]:
        """Note which node a placement is on now; return that and the one that it was on before."""
        state = self.placements.get(uid)
        node = state.node if state else ""
        before = self._node_by_placement.pop(uid, "")
        self._placements_by_node.get(before, set()).discard(uid)
        if node:
            self._node_by_placement[uid] = node
            self._placements_by_node.setdefault(node, set()).add(uid)
        return {before, node} - {""}

    def jobs_of_pods(self, node: str) -> frozenset[int]:
        """Return the placeholder jobs that run on *node*, as far as we know, and whose Pods are there."""
        return frozenset(
            placement.job
            for placement in self._placements_on(node)
            if placement.is_pod_present and placement.phase not in _WAITS and placement.job is not None
        )

    def kube_inputs(
        self, node: str, moment: datetime, *, downed_uid: str = "", left: Collection[int] = ()
    ) -> KubeInputs:
        """Return Kubernetes' side of *node*.

        Args:
            node: Its name.
            moment: Now.
            downed_uid: The Pod that it was set down for last.
            left: Jobs that do not run there by a fresh look, whatever the bus says of them.
        """
        pod = self.pods.get(node)
        verified = pod.hpc_verified if pod else None
        here = self._placements_on(node)
        placed = [placement for placement in here if placement.is_pod_present]
        counts = max(here, key=lambda one: (one.is_overdue and one.is_pod_present, one.changed), default=None)
        return KubeInputs(
            pod=pod,
            is_overdue=any(placement.is_overdue for placement in placed),
            is_pod_leaving=any(placement.job in left or self._is_leaving(placement) for placement in placed),
            are_placements_known=self.placements.written_for_s >= self._bucket_doubt_s,
            lock=self.locks.get(node),
            is_downed=bool(downed_uid) and downed_uid == gone_uid(pod),
            pod_event=self.pods.event(node),
            placement_event=UNKNOWN if counts is None else self.placements.event(counts.uid),
            lock_event=self.locks.event(node),
            verified_age_s=(moment - verified).total_seconds() if verified else float("inf"),
        )

    def _placements_on(self, node: str) -> list[PlacementState]:
        found = map(self.placements.get, self._placements_by_node.get(node, ()))
        return [placement for placement in found if placement is not None]

    def _is_leaving(self, placement: PlacementState) -> bool:
        """Whether the Pod, which is there, has no running job any more, and waits for no other."""
        if placement.job is None or placement.phase in _WAITS:
            return placement.phase == "ending"
        job = self.jobs.get(str(placement.job))
        return placement.phase == "ending" or job is None or not job.is_running


def published_inputs(
    published: SlurmNodeState, moment: datetime, *, clock_ahead_s: float | None = 0.0
) -> SlurmInputs:
    """Return Slurm's side as the bus holds it.

    Args:
        published: The node.
        moment: Now.
        clock_ahead_s: By how much slurmctld's clock is ahead of ours; None: that is not known yet.
    """
    return SlurmInputs(
        node=published.node,
        state=NodeState(published.state, frozenset(published.flags)),
        reason=published.reason,
        reason_age_s=_age_s(published.reason_changed, moment, clock_ahead_s),
        clock_ahead_s=clock_ahead_s or 0.0,
    )


def fresh_inputs(node: Node, *, clock_ahead_s: float | None = 0.0) -> SlurmInputs:
    """Return Slurm's side as a fresh look showed it.

    Raises:
        TransientError: the answer names no state: whether the node is drained, and by which user, is unknown.
    """
    if not node.state:
        raise TransientError(f"Slurm's answer about node {node.name} names no state")
    return SlurmInputs(
        node=node.name,
        state=node.state_now,
        reason=node.reason,
        reason_age_s=_age_s(node.reason_changed_at.moment, now(), clock_ahead_s),
        clock_ahead_s=clock_ahead_s or 0.0,
    )


def _age_s(changed: datetime | None, moment: datetime, clock_ahead_s: float | None) -> float:
    if clock_ahead_s is None:
        return float("-inf")
    return (moment - changed).total_seconds() + clock_ahead_s if changed else float("inf")
