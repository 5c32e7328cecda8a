"""The stage that a syncer plays on: Slurm, the bus and what other services would write to it."""

import signal
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final, Protocol

import anyio
from msgspec import Struct

from sunk_events import subjects
from sunk_events.base import Event, Reply, Request
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmReservationState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState, KubeWatchState, NodeSliceEntry, NodeSliceState
from sunk_events.placements import PlacementState
from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import Bus
from sunk_runtime.requests import ask_until
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.views import StateView
from sunk_runtime.writer import StateWriter
from sunk_syncer.adapters.views import Views
from sunk_syncer.states.nodes import SERVICE
from sunk_syncer.testing.process import SyncerProcess

CLUSTER: Final = "lab"
FLEETING: Final = frozenset(
    {"NodeNotResponding", "NodeResponding", "NodeAllocated", "NodeIdle", "JobCompleting"}
)
"""What may or may not be seen in between: nobody promises to see what lasts for less than a look."""


def ready_pod(node: str = "node01", *, changed: datetime | None = None) -> KubePodState:
    """Return what nodeset-controller says of a Pod that is well, and of its Node, by default now."""
    return KubePodState(
        changed=changed or datetime.now(UTC),
        pod=node,
        namespace="slurm",
        nodeset="compute",
        kube_node="k1",
        uid="uid-1",
        phase="running",
        is_ready=True,
    )


def node_views(
    bus: Bus, cluster: str, *, kube_silent_max_s: float = 60.0, bucket_doubt_s: float = 30.0
) -> Views:
    """Return views of *cluster* that nobody runs yet."""
    return Views(
        nodes=StateView(bus, cluster, SlurmNodeState),
        jobs=StateView(bus, cluster, SlurmJobState),
        pods=StateView(bus, cluster, KubePodState),
        placements=StateView(bus, cluster, PlacementState),
        locks=StateView(bus, cluster, LockState),
        kube=StateView(bus, cluster, KubeWatchState),
        age_max_s=30,
        kube_silent_max_s=kube_silent_max_s,
        bucket_doubt_s=bucket_doubt_s,
    )


class Commands(Protocol):
    """A Slurm cluster that commands can be run in."""

    @property
    def url(self) -> str:
        """Slurmrestd's address."""
        ...

    def exec(self, *argv: str, timeout_s: float = 60.0) -> str:
        """Run a command of Slurm and return what it prints."""
        ...

    def start_daemon(self, name: str) -> None:
        """Start ``slurmrestd``, ``slurmctld`` or a node's slurmd."""
        ...

    def kill_daemon(self, name: str, sig: int = signal.SIGKILL) -> None:
        """End one of them."""
        ...

    def freeze_daemon(self, name: str) -> None:
        """Let one of them hang."""
        ...

    def thaw_daemon(self, name: str) -> None:
        """Let it go on."""
        ...

    def add_node(self, name: str) -> None:
        """Start a slurmd that registers itself."""
        ...


class Stage(Struct):
    """Everything a story needs."""

    slurm: Commands
    nats: NatsServer
    bus: Bus
    syncer: SyncerProcess
    nodes: StateView[SlurmNodeState]
    jobs: StateView[SlurmJobState]
    partitions: StateView[SlurmPartitionState]
    reservations: StateView[SlurmReservationState]
    statistics: StateView[SlurmStatisticsState]
    pods: StateWriter[KubePodState]
    placements: StateWriter[PlacementState]
    locks: StateWriter[LockState]
    slices: StateWriter[NodeSliceState]
    facts: list[Event]

    async def pod(self, state: KubePodState) -> None:
        """Say on the bus what nodeset-controller would say."""
        await self.pods.record(state.pod, state, revision=self.pods.view.revision(state.pod))

    async def pod_forgotten(self, pod: str) -> None:
        """Say that no NodeSet has the Pod's Node any more."""
        await self.pods.forget(pod, revision=self.pods.view.revision(pod))

    async def node_slice(self, *nodes: str) -> None:
        """Say that the one NodeSlice there is has *nodes*."""
        key = "slurm/compute-0"
        state = NodeSliceState(
            changed=datetime.now(UTC),
            namespace="slurm",
            name="compute-0",
            nodeset="compute",
            entries=tuple(NodeSliceEntry(node=node, kube_node=f"k-{node}") for node in sorted(nodes)),
        )
        await self.slices.record(key, state, revision=self.slices.view.revision(key))

    async def lock(self, state: LockState) -> None:
        """Say that a Node is locked, or not."""
        await self.locks.record(state.node, state, revision=self.locks.view.revision(state.node))

    async def placement(self, state: PlacementState) -> None:
        """Say on the bus what pod-scheduler would say."""
        await self.placements.record(state.uid, state, revision=self.placements.view.revision(state.uid))

    async def ask(self, request: Request) -> Reply:
        """Return the syncer's answer, which is to ask later only if it stays so."""
        return await ask_until(self.bus, CLUSTER, request, deadline=anyio.current_time() + WITHIN_S)

    async def stop_syncer(self) -> None:
        """End the syncer as its Pod would be ended: it gives its lease up, and the next one leads at once."""
        self.syncer.kill(signal.SIGTERM)
        await until(lambda: not self.syncer.is_running())

    async def crash_syncer(self) -> None:
        """Kill the syncer. The next one leads at once all the same: few tests are about its lease."""
        self.syncer.kill()
        await self.end_lease()

    async def end_lease(self) -> None:
        """Have whoever takes the syncer's lease next find it given up, as by one that was stopped."""
        subject = subjects.key_subject(subjects.lease_bucket(CLUSTER), SERVICE)
        headers = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
        await self.bus.publish(subject, b"", ttl_s=60, headers=headers)

    def published(self, subject: str, but: Collection[str] = FLEETING) -> list[str]:
        """Return the kinds of facts that were published about a node or job, in order, each id once.

        As the stream holds them: what a crash repeats has the same id and is stored once.
        """
        facts = {fact.id: fact for fact in self.facts if fact.subject == subject}
        return [kind for fact in facts.values() if (kind := type(fact).__name__) not in but]

    async def until_node(self, node: str, drain: str | None, *, is_busy: bool = False) -> None:
        """Return when the bus says that *node* is drained with reason *drain*; None: not drained."""

        def holds() -> bool:
            state = self.nodes.get(node)
            if state is None or state.is_busy != is_busy:
                return False
            if drain is None or not state.is_drain:
                return drain is None and not state.is_drain
            return is_reason(state.reason, drain)

        await until(holds)


def is_reason(shown: str, given: str) -> bool:
    """Whether *shown* is the reason that was *given*; slurmctld adds its own words where slurmd is silent.

    Source: slurmctld 24.11, measured: ``by hand : Not responding``.
    """
    return shown == given or shown.startswith(f"{given} : ")
