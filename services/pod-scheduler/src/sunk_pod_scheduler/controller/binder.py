"""Binds Pods to the Nodes that Slurm has given them: one Pod, or the members of a gang with their ranks."""

from collections.abc import Awaitable, Callable

from sunk_events.placements import PlacementState
from sunk_kube.pods import Pod
from sunk_kube.wellknown import (
    ANNOTATION_GANG_LEADER,
    ANNOTATION_GANG_NODES,
    ANNOTATION_GANG_RANK,
    ANNOTATION_GANG_REQUESTED_SIZE,
    ANNOTATION_GANG_SIZE,
    ANNOTATION_JOB,
)
from sunk_pod_scheduler import metrics
from sunk_pod_scheduler.controller.context import Context
from sunk_pod_scheduler.gangs.model import BindMembers
from sunk_pod_scheduler.gangs.ownership import AnySeen, Pods, name
from sunk_pod_scheduler.gangs.ranks import distinct
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.actions import Bind
from sunk_pod_scheduler.reasons import PodReason
from sunk_runtime.clock import now
from sunk_runtime.errors import ConflictError
from sunk_runtime.together import each


class Binder:
    """Binds Pods of one Slurm cluster, while it may."""

    def __init__(self, context: Context, store: Callable[[PlacementState], Awaitable[None]]) -> None:
        self._context = context
        self._pods = context.pods
        self._store = store

    async def bind(self, action: Bind, pod: Pod) -> None:
        """Bind *pod* to the Node of its job, and store that it is."""
        await self._pods.bind(pod, action.state.kube_node)
        await self._store(action.state)
        count_bound(action.state)
        text = f"Slurm job {action.state.job} placed {pod.key} on {action.state.kube_node}"
        self._pods.record_event(pod, PodReason.BOUND, text)

    async def bind_members(self, action: BindMembers, seen: AnySeen, pods: Pods) -> None:
        """Ranks are written before the Pods are bound: a container reads them once, at its start."""
        record = seen.placement
        if record is None or record.job is None:
            raise ConflictError(f"{name(seen)} has no job any more")
        claim = marks.claim(self._context.placeholder.key, seen.uid, record.attempt, record.job)
        rank_by_uid = {member.uid: rank for rank, member in enumerate(action.gang.members)}
        size, nodes = len(rank_by_uid), distinct(action.gang)
        shared = {
            ANNOTATION_JOB: claim,  # A replacement does not have it yet.
            ANNOTATION_GANG_SIZE: str(size),
            ANNOTATION_GANG_NODES: ",".join(nodes),
            ANNOTATION_GANG_LEADER: action.gang.members[0].pod,
        }

        async def bind(uid: str) -> None:
            pod, rank = pods[uid], rank_by_uid[uid]
            requested = pod.metadata.annotations.get(ANNOTATION_GANG_SIZE, "")
            is_first = ANNOTATION_GANG_RANK not in pod.metadata.annotations
            wish = {ANNOTATION_GANG_REQUESTED_SIZE: requested} if is_first and requested else {}
            written = await self._pods.note(pod, {**shared, **wish, ANNOTATION_GANG_RANK: str(rank)})
            self._context.check()
            await self._pods.bind(written, action.kube_nodes[uid])
            text = f"Slurm job {record.job} placed {pod.key}, rank {rank} of {size} of {name(seen)}, "
            self._pods.record_event(pod, PodReason.BOUND, text + f"on {action.kube_nodes[uid]}")

        await each([uid for uid in action.kube_nodes if uid in pods], bind)


def count_bound(state: PlacementState) -> None:
    """Count how long a Pod took to be bound."""
    if state.created is not None:
        metrics.BOUND_SECONDS.observe(max(0.0, (now() - state.created).total_seconds()))
