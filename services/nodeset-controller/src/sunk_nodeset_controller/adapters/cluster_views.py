"""The side of the service that needs the bus: one connection, and for each Slurm cluster its views."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import anyio
import msgspec

from sunk_events import subjects
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState, KubeWatchState, NodeSliceState
from sunk_events.permissions import permissions
from sunk_events.placements import PlacementState
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.slurm_health import SlurmHealth
from sunk_runtime.clock import now
from sunk_runtime.errors import ConflictError, PermanentError, TransientError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.keys import Handle
from sunk_runtime.leases import Leadership
from sunk_runtime.rights import require_rights
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

log = logging.getLogger(__name__)

AGAIN_S = 1.0


class ClusterViews(msgspec.Struct, frozen=True):
    """What the bus says of one Slurm cluster."""

    bus: Bus
    cluster: str
    slurm_nodes: StateView[SlurmNodeState]
    slurm_jobs: StateView[SlurmJobState]
    placements: StateView[PlacementState]
    kube_pods: StateView[KubePodState]
    """Our own: what was known before."""
    locks: StateView[LockState]
    """Our own."""
    slices: StateView[NodeSliceState]
    """Our own."""
    statistics: StateView[SlurmStatisticsState]

    @classmethod
    def of(cls, bus: Bus, cluster: str) -> "ClusterViews":
        """Return the views of *cluster*, which the caller keeps running."""
        return cls(
            bus,
            cluster,
            StateView(bus, cluster, SlurmNodeState),
            StateView(bus, cluster, SlurmJobState),
            StateView(bus, cluster, PlacementState),
            StateView(bus, cluster, KubePodState),
            StateView(bus, cluster, LockState),
            StateView(bus, cluster, NodeSliceState),
            StateView(bus, cluster, SlurmStatisticsState),
        )

    @property
    def all(self) -> tuple[StateView[Any], ...]:
        """Every view."""
        others = self.slurm_nodes, self.slurm_jobs, self.placements
        return *others, self.kube_pods, self.locks, self.slices, self.statistics

    @property
    def is_complete(self) -> bool:
        """Every bucket is read."""
        return all(view.is_complete for view in self.all)


class BusConnections:
    """Everything on the bus. It connects by itself, however late: what needs only Kubernetes goes on."""

    def __init__(self, settings: BusSettings, healths: Mapping[str, SlurmHealth], name: str) -> None:
        self._settings = settings
        self._names = tuple(healths)
        self.healths: Final = healths
        """One for each Slurm cluster; each hears as soon as the bus was reached."""
        self._name = name
        self._clusters: tuple[ClusterViews, ...] = ()
        self._connected = anyio.Event()

    @property
    def is_complete(self) -> bool:
        """The bus was reached, and every bucket of every cluster is read."""
        return self._connected.is_set() and all(cluster.is_complete for cluster in self._clusters)

    @property
    def has_space(self) -> bool:
        """The bus takes what we write."""
        return all(cluster.bus.has_space for cluster in self._clusters)

    async def clusters(self) -> tuple[ClusterViews, ...]:
        """Return every cluster, as soon as the bus was reached."""
        await self._connected.wait()
        return self._clusters

    def find(self, cluster: str) -> ClusterViews | None:
        """Return a cluster of that name, if the bus was reached and the cluster is one of ours."""
        return next((found for found in self._clusters if found.cluster == cluster), None)

    async def run(self) -> None:
        """Stay connected and keep the views current until cancelled."""
        async with connect(self._settings, self._name) as bus, AsyncExitStack() as stack:
            await require_rights(bus, permissions("nodeset-controller", self._names))
            found: list[ClusterViews] = []
            for name in self._names:
                await persistently("provision", lambda name=name: bus.provision(name, self._settings))
                views = ClusterViews.of(bus, name)
                await stack.enter_async_context(following(*views.all))
                self.healths[name].attach(views.slurm_nodes, views.statistics)
                found.append(views)
            self._clusters = tuple(found)
            self._connected.set()
            await anyio.sleep_forever()


async def persistently(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do *work*, again and again while it fails only for now: a bus that is away ends nothing else."""
    while True:
        try:
            await work()
        except* TransientError as group:
            log.warning("begins again", extra={"work": what, "error": str(group.exceptions[0])})
        else:
            return
        await anyio.sleep(AGAIN_S)


HEARTBEAT_S: Final = 10.0


async def send_heartbeats(
    views: KubeViews,
    cluster: ClusterViews,
    leadership: Leadership,
    published: anyio.Event,
    every_s: float = HEARTBEAT_S,
) -> None:
    """Say to those of one Slurm cluster that we lead and see Kubernetes, until cancelled.

    What does not change is not told again, and may be old. So we say nothing before *published*, when all
    Pods that the bus knows were looked at once, nor while the API server does not say what changes.
    """
    view = StateView(cluster.bus, cluster.cluster, KubeWatchState)
    writer = StateWriter(cluster.bus, view, fence=leadership)
    async with following(view):
        await published.wait()
        while True:
            await view.complete()
            await views.complete()
            moment = now()
            state = KubeWatchState(changed=moment, seen=moment)
            try:
                views.require_current()
                await writer.record(subjects.LEADER_KEY, state, revision=view.revision(subjects.LEADER_KEY))
            except (ConflictError, TransientError) as error:
                log.warning("no sign of life", extra={"cluster": cluster.cluster, "error": str(error)})
            await anyio.sleep(every_s)


class FirstRound:
    """The first looks at some keys: *done* is set when each key had one that ended."""

    def __init__(self, keys: Iterable[str], done: anyio.Event) -> None:
        self._left = set(keys)
        self._done = done
        self._looked("")

    def within(self, handle: Handle) -> Handle:
        """Return *handle* that counts."""

        async def look(key: str) -> float | None:
            try:
                again_s = await handle(key)
            except PermanentError:  # One Pod that is refused must not keep us silent about all others.
                self._looked(key)
                raise
            self._looked(key)
            return again_s

        return look

    def _looked(self, key: str) -> None:
        self._left.discard(key)
        if not self._left:
            self._done.set()
