"""The services that answer the view's questions, as they do: a part of ``view``.

Their own code answers, from the states on the bus and from a real API server; no Slurm is there, and none is
asked. No lock is taken and no state is written.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from sunk_ctl.testing import CLUSTER, bus_settings
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState, KubeWatchState
from sunk_events.placements import PlacementState
from sunk_events.requests import ExplainJob, ExplainKubeNode, ExplainSlurmNode
from sunk_kube.client import KubeClient
from sunk_kube.client import connect as connect_kube
from sunk_kube.resources import NODES
from sunk_lab.nats import NatsServer
from sunk_nodeset_controller.adapters.cluster_views import ClusterViews
from sunk_nodeset_controller.adapters.daemonset_view import DaemonSetView
from sunk_nodeset_controller.lock_controller.evictor import Evictor
from sunk_nodeset_controller.lock_controller.handlers import Handlers
from sunk_nodeset_controller.lock_controller.job_confirmer import JobConfirmer
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.pod_watches import PodWatches
from sunk_nodeset_controller.lock_controller.reconciler import Locks
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.locks.model import Rules
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_runtime.jetstream import Bus, connect
from sunk_runtime.keys import KeyLoop
from sunk_runtime.leases import Leadership
from sunk_runtime.requests import answering
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_syncer.adapters.views import Views
from sunk_syncer.rpc.explain_handlers import ExplainHandlers

SILENT_S: Final = 60.0
AT_ONCE: Final = 16


@asynccontextmanager
async def answered(server: NatsServer, folder: Path, kubeconfig: Path, nodes: int) -> AsyncGenerator[None]:
    """Have questions answered, of nodes the first *nodes*: only these have a Node."""
    async with (
        connect(bus_settings(server, folder, "syncer-c1"), "syncer") as syncer,
        connect(bus_settings(server, folder, "nodeset-controller"), "nodeset-controller") as controller,
        connect_kube("bench", kubeconfig=kubeconfig) as kube,
    ):
        await _make_nodes(kube, nodes)
        async with _by_syncer(syncer), _by_controller(controller, kube):
            yield


async def _make_nodes(kube: KubeClient, nodes: int) -> None:
    left = iter(range(nodes))

    async def work() -> None:
        for number in left:
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"kube-{number}"}}
            await kube.create(NODES, node)

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(work)


@asynccontextmanager
async def _by_syncer(bus: Bus) -> AsyncGenerator[None]:
    views = Views(
        nodes=StateView(bus, CLUSTER, SlurmNodeState),
        jobs=StateView(bus, CLUSTER, SlurmJobState),
        pods=StateView(bus, CLUSTER, KubePodState),
        placements=StateView(bus, CLUSTER, PlacementState),
        locks=StateView(bus, CLUSTER, LockState),
        kube=StateView(bus, CLUSTER, KubeWatchState),
        age_max_s=SILENT_S,
        kube_silent_max_s=SILENT_S,
        bucket_doubt_s=0.0,
    )
    answers = ExplainHandlers(views)
    async with following(*views.parts()):
        await views.complete()
        async with (
            answering(bus, CLUSTER, ExplainSlurmNode, answers.node),
            answering(bus, CLUSTER, ExplainJob, answers.job),
        ):
            yield


@asynccontextmanager
async def _by_controller(bus: Bus, kube: KubeClient) -> AsyncGenerator[None]:
    """Answer as the nodeset-controller's lock manager does, without its loop: no lock is wanted."""
    views, leads, rules, policy = (
        ClusterViews.of(bus, CLUSTER),
        Leadership("bench", 1, float("inf")),
        Rules(),
        EvictionPolicy(),
    )

    async def look(node: str) -> float | None:
        return await locks.reconcile(node)

    async with following(*views.all), anyio.create_task_group() as tasks:
        for view in views.all:
            await view.complete()
        loop = KeyLoop("bench", look)
        snapshotter, nodes = LockSnapshotter(views), NodeLockStore(kube, leads, policy)
        watches = PodWatches(kube, policy, tasks, changed=loop.enqueue, came=loop.enqueue)
        confirm, daemonsets = JobConfirmer(bus, CLUSTER), DaemonSetView(kube)
        evictor = Evictor(snapshotter, nodes, rules, confirm=confirm, daemonsets=daemonsets)
        writer = StateWriter(bus, views.locks, fence=leads)
        locks = Locks(snapshotter, nodes, watches, writer, rules, evictor=evictor)
        async with answering(bus, CLUSTER, ExplainKubeNode, Handlers(snapshotter, locks, loop).explain):
            yield
        tasks.cancel_scope.cancel()
