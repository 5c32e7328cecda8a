"""What deeds are carried out with, for Pods and for gangs alike."""

from collections.abc import Callable, Mapping

import msgspec

from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_kube.objects import Node
from sunk_pod_scheduler.adapters.ports import JobPort, PodPort
from sunk_pod_scheduler.controller.node_locks import NodeLocks
from sunk_pod_scheduler.placement.events import EventSource
from sunk_pod_scheduler.placement.job_description import Placeholder
from sunk_pod_scheduler.placement.kubelet_rejections import KubeletRejections
from sunk_pod_scheduler.podspec.validation import Rules
from sunk_runtime.views import StateView
from sunk_runtime.writer import StateWriter


class Views(msgspec.Struct, frozen=True, kw_only=True):
    """What we know of Slurm nodes, their Pods and their locks, from the bus."""

    kube_pods: StateView[KubePodState]
    slurm_nodes: StateView[SlurmNodeState]
    locks: NodeLocks

    @property
    def followed(
        self,
    ) -> tuple[StateView[KubePodState] | StateView[SlurmNodeState] | StateView[LockState], ...]:
        """What has to be kept current."""
        return self.kube_pods, self.slurm_nodes, self.locks.view

    def nodes(self, pods: PodPort) -> Mapping[str, Node | None]:
        """Return the Node of every node that Slurm has; None where it is no NodeSet's."""
        states = {name: self.kube_pods.get(name) for name in self.slurm_nodes.keys()}  # noqa: SIM118 - not a dict
        return {name: None if state is None else pods.node(state.kube_node) for name, state in states.items()}


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader for one Slurm cluster works with."""

    event_source: EventSource
    pods: PodPort
    jobs: JobPort
    placements: StateWriter[PlacementState]
    views: Views
    rules: Rules
    placeholder: Placeholder
    refusals: KubeletRejections
    check: Callable[[], None]
    """Raises once we may no longer lead; called right before each write to the outside."""

    async def confirm(self, uid: str, seen: PlacementState | None) -> None:
        """Tell that *uid* was looked at and is as *seen*, where it came back, or went, with its bucket.

        Others wait to hear that. What was to be told of one of which nothing is stored is told too.
        """
        view = self.placements.view
        if not view.is_complete or view.get(uid) != seen:
            return  # It has changed meanwhile, or is of before a job that its Pod claims.
        if seen is None:
            await self.placements.forget(uid, revision=view.revision(uid))
        elif view.is_doubtful(uid):
            await self.placements.record(uid, seen, revision=view.revision(uid))
