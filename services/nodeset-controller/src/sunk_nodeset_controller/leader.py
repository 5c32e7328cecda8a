"""What only the leader does: the loops, each on its own, so that an outage stops no more than it must."""

import logging
import time
from collections.abc import Collection
from functools import partial
from typing import Final

import anyio

from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.requests import RebootNode
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeRejectedError
from sunk_nodeset_controller.adapters.cluster_views import (
    BusConnections,
    ClusterViews,
    FirstRound,
    persistently,
    send_heartbeats,
)
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.adapters.rate_limit import RateLimit
from sunk_nodeset_controller.config import Config
from sunk_nodeset_controller.lock_controller.controller import run_locks
from sunk_nodeset_controller.lock_controller.job_index import JobsOnNodes
from sunk_nodeset_controller.lock_controller.stray_taints import lock_changes
from sunk_nodeset_controller.missing_rights import missing_right
from sunk_nodeset_controller.node_controller.controller import NodeController
from sunk_nodeset_controller.node_controller.reboots import Reboots
from sunk_nodeset_controller.node_controller.slurm_files import GeneratedFiles
from sunk_nodeset_controller.nodeset_controller.executor import Executor
from sunk_nodeset_controller.nodeset_controller.observer import Observer
from sunk_nodeset_controller.nodeset_controller.reconciler import NodeSetLoop
from sunk_nodeset_controller.nodeset_controller.slice_publisher import SlicePublisher
from sunk_nodeset_controller.pod_controller.controller import PodController
from sunk_nodeset_controller.pod_controller.explainer import NodeExplainer
from sunk_nodeset_controller.pod_controller.publisher import PodStatePublisher
from sunk_nodeset_controller.pod_controller.staleness import StalenessController
from sunk_runtime.changes import Changes
from sunk_runtime.keys import Handle, KeyLoop, LogDeduplicator
from sunk_runtime.leases import Leadership
from sunk_runtime.requests import answering
from sunk_runtime.views import StateView
from sunk_runtime.writer import StateWriter

log = logging.getLogger(__name__)

RIGHTS_AGAIN_S: Final = 15.0
"""An upgrade of a chart gives rights, and no object of ours changes by that."""


def awaiting_rights(handle: Handle) -> Handle:
    """Return *handle* that looks again later at a key for which a right is missing, and says which."""
    deduplicator = LogDeduplicator()

    async def look(key: str) -> float | None:
        try:
            return await handle(key)
        except KubeRejectedError as error:
            if not (why := missing_right(str(error))):
                raise
            left_out = deduplicator.left_out(why, time.monotonic())
            if left_out is not None:  # Thousands of Pods lack one right.
                log.error("right missing", extra={"key": key, "error": why, "left_out": left_out})  # noqa: TRY400 - no bug, no traceback
            return RIGHTS_AGAIN_S

    return look


async def work(
    config: Config, client: KubeClient, views: KubeViews, bus: BusConnections, leadership: Leadership
) -> None:
    """Do everything that only the leader does, until cancelled."""
    kube = FencedKube(client, leadership)
    observer = Observer(
        views,
        bus,
        clusters=config.clusters,
        lock_key=config.lock_key,
        replace_after_s=config.replace_after_s,
        gpu_rules=config.gpu_rules,
    )
    rest = RateLimit()
    executor = Executor(
        kube,
        bus,
        rest,
        measure=config.lock_eviction,
        gpu_rules=config.gpu_rules,
        topology=config.topology_rules,
    )
    nodesets = NodeSetLoop(views, kube, observer, executor)
    nodes = NodeController(views, kube, lock_key=config.lock_key)
    pods = PodController(views, kube, bus, unknown_s=config.slurm_unknown_s, rest=rest)
    nodeset_changes, pod_changes = views.nodeset_changes(), views.pod_changes()
    files = GeneratedFiles(views, kube, bus, config.generated)
    listening = StalenessController(views, bus.healths, pods, nodesets=nodeset_changes, pods=pod_changes)
    await views.complete()
    for name in config.clusters:
        pods.jobs_of(name)  # Else the first Pod waits for all jobs to be looked through.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listening.run)
        for name, handle, changes, keys, at_once in (
            ("nodesets", nodesets.reconcile, nodeset_changes, views.nodesets.keys, 1),
            ("pods", pods.settle, pod_changes, views.pods.keys, 8),
            # Fewer than Pods, which people look at: both are many when much changes.
            ("nodes", nodes.settle, views.node_changes(), views.nodes.keys, 2),
            ("files", files.settle, files.changes(), files.clusters, 1),
        ):
            loop = KeyLoop(name, awaiting_rights(handle), concurrency=at_once)
            tasks.start_soon(partial(loop.run, changes, keys=keys, resync_s=config.resync_s))
        clusters = await bus.clusters()
        for cluster in clusters:
            first_round = anyio.Event()
            published = partial(
                publish,
                config,
                views,
                cluster,
                leadership,
                kube=kube,
                pods=pod_changes,
                marks=pods,
                first_round=first_round,
            )
            words = NodeExplainer(views, cluster, bus.healths[cluster.cluster])
            others = [other.kube_pods for other in clusters if other is not cluster]
            locked = partial(lock, config, client, cluster, leadership, words, views=views, others=others)
            rebooted = partial(reboot, config, views, cluster, leadership, kube=kube)
            alive = partial(send_heartbeats, views, cluster, leadership, first_round)
            tasks.start_soon(persistently, f"tell {cluster.cluster}", published)
            tasks.start_soon(persistently, f"be alive for {cluster.cluster}", alive)
            tasks.start_soon(persistently, f"lock {cluster.cluster}", locked)
            tasks.start_soon(persistently, f"reboot {cluster.cluster}", rebooted)


async def publish(
    config: Config,
    views: KubeViews,
    cluster: ClusterViews,
    leadership: Leadership,
    *,
    kube: FencedKube,
    pods: Changes,
    marks: PodController,
    first_round: anyio.Event,
) -> None:
    """Keep one Slurm cluster and its NodeSet Pods told of each other, until cancelled.

    *first_round* is set when all Pods that the bus knew were looked at once.
    """
    writer = StateWriter(cluster.bus, cluster.kube_pods, fence=leadership)
    states = PodStatePublisher(
        views,
        kube,
        writer,
        cluster.slurm_nodes,
        leadership,
        lock_key=config.lock_key,
        topology=config.topology_rules,
    )
    await cluster.kube_pods.complete()  # It says what was known before: without it nothing can be told.
    woken_by = [cluster.bus.recovery, cluster.kube_pods.recovery]
    look = FirstRound(cluster.kube_pods.keys(), first_round).within(awaiting_rights(states.settle))
    loop = KeyLoop(f"states-{cluster.cluster}", look, woken_by=woken_by)
    slices = SlicePublisher(views, StateWriter(cluster.bus, cluster.slices, fence=leadership), leadership)
    slice_loop = KeyLoop(
        f"slices-{cluster.cluster}", slices.settle, woken_by=[cluster.bus.recovery, cluster.slices.recovery]
    )
    async with anyio.create_task_group() as tasks:
        if (jobs := marks.jobs_of(cluster.cluster)) is not None:
            tasks.start_soon(pass_on_jobs, states, jobs, cluster.slurm_nodes, pods)
        keys = cluster.slices.keys
        tasks.start_soon(partial(slice_loop.run, slices.changes(), keys=keys, resync_s=config.resync_s))
        changes = states.changes()
        tasks.start_soon(pass_on, states, cluster.slurm_nodes.changes(), pods, changes)
        await loop.run(changes, keys=cluster.kube_pods.keys, resync_s=config.resync_s)


async def pass_on(states: PodStatePublisher, slurm_nodes: Changes, pods: Changes, changes: Changes) -> None:
    """Have the Pods looked at whose Slurm nodes changed, and nodes whose Pod is gone, until cancelled."""
    async for node in slurm_nodes:
        pods.add(states.key_of(node))
        if states.is_gone(node):
            changes.add(node)


async def pass_on_jobs(
    states: PodStatePublisher, jobs: JobsOnNodes, slurm_nodes: StateView[SlurmNodeState], pods: Changes
) -> None:
    """Have Pods looked at whose node Slurm calls drained where a job comes or goes, until cancelled."""
    async for node in jobs.follow():
        node_state = slurm_nodes.get(node)
        if node_state is not None and node_state.is_drain and not node_state.is_busy:
            pods.add(states.key_of(node))


async def lock(
    config: Config,
    client: KubeClient,
    cluster: ClusterViews,
    leadership: Leadership,
    explain: NodeExplainer,
    *,
    views: KubeViews,
    others: Collection[StateView[KubePodState]],
) -> None:
    """Lock and unlock the Nodes of one Slurm cluster, until cancelled."""
    await run_locks(
        cluster,
        client,
        leadership,
        measure=config.lock_eviction,
        rules=config.lock_rules,
        resync_s=config.resync_s,
        explain=explain,
        viewed=views.nodes.objects,
        changed=lock_changes(views.nodes, config.lock_eviction.taint),
        others=others,
    )


async def reboot(
    config: Config, views: KubeViews, cluster: ClusterViews, leadership: Leadership, *, kube: FencedKube
) -> None:
    """Answer those who want a Node of one Slurm cluster rebooted, until cancelled."""
    reboots = Reboots(views.nodes, cluster.kube_pods, kube, config.reboots(cluster.cluster))
    async with answering(cluster.bus, cluster.cluster, RebootNode, reboots.answer, fence=leadership):
        await anyio.sleep_forever()
