"""The lock manager of one Slurm cluster: a loop over its nodes, and answers to prologs and epilogs."""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import anyio

from sunk_events.nodesets import KubePodState
from sunk_events.requests import AcquireLock, ExplainKubeNode, ReleaseLock
from sunk_kube.client import KubeClient
from sunk_kube.objects import Node
from sunk_nodeset_controller.adapters.cluster_views import ClusterViews
from sunk_nodeset_controller.adapters.daemonset_view import DaemonSetView
from sunk_nodeset_controller.lock_controller.evictor import Evictor
from sunk_nodeset_controller.lock_controller.handlers import Explain, Handlers, only_locks
from sunk_nodeset_controller.lock_controller.job_confirmer import JobConfirmer
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.pod_watches import PodWatches
from sunk_nodeset_controller.lock_controller.reconciler import Locks
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.lock_controller.stray_taints import enqueue_stray_taints, is_stray_taint
from sunk_nodeset_controller.locks.annotations import left_over
from sunk_nodeset_controller.locks.annotations import read as read_lock
from sunk_nodeset_controller.locks.daemonsets import DAEMONSETS, driven_out
from sunk_nodeset_controller.locks.metrics import DAEMONS_DRIVEN
from sunk_nodeset_controller.locks.model import Rules
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_runtime.changes import Changes
from sunk_runtime.errors import PermanentError, SunkError
from sunk_runtime.keys import KeyLoop
from sunk_runtime.leases import Leadership
from sunk_runtime.requests import answering
from sunk_runtime.views import StateView
from sunk_runtime.writer import StateWriter

log = logging.getLogger(__name__)

CONCURRENCY: Final = 64
"""Nodes looked at at once: a job may start on thousands, and a look is three short calls."""
DAEMONSETS_AGAIN_S: Final = 30.0


async def run_locks(
    views: ClusterViews,
    kube: KubeClient,
    leadership: Leadership,
    *,
    measure: EvictionPolicy,
    rules: Rules,
    resync_s: float = 300.0,
    explain: Explain = only_locks,
    viewed: Mapping[str, Node] = MappingProxyType({}),
    changed: Changes | None = None,
    others: Collection[StateView[KubePodState]] = (),
) -> None:
    """Lock and unlock the Nodes of one cluster until cancelled, going on from what stands on them.

    Args:
        views: Kept running by the caller, whether we lead or not.
        kube: Calls of the API server.
        leadership: Every write asks whether it still holds.
        measure: The taint, and who may stay on a locked Node.
        rules: The settings of the machine.
        resync_s: Every node is looked at this often though nothing happens.
        explain: What else there is to say of a node, to those who ask why it is as it is.
        viewed: Nodes as a view has them, for the first look at one that is new.
        changed: Names of Nodes of that view on which marks of a lock changed: `lock_changes`.
        others: The Pods of the other Slurm clusters, to which a Node may have moved.
    """
    writer = StateWriter(views.bus, views.locks, fence=leadership)
    read = (views.slurm_nodes, views.slurm_jobs, views.placements, views.kube_pods, views.locks, *others)
    for view in read:
        await view.complete()
    snapshotter = LockSnapshotter(views, others)
    met = {snapshotter.kube_node(node) for node in snapshotter.nodes()}
    nodes = NodeLockStore(kube, leadership, measure, viewed=viewed, met=met)

    async def look(node: str) -> float | None:
        return await locks.reconcile(node)

    def came(node: str) -> None:
        locks.lock_requests(node).looked_at = None
        loop.enqueue(node)

    woken_by = [views.bus.recovery, *(view.recovery for view in read)]
    loop = KeyLoop(f"locks-{views.cluster}", look, concurrency=CONCURRENCY, woken_by=woken_by)
    async with anyio.create_task_group() as tasks:
        watches = PodWatches(kube, measure, tasks, changed=loop.enqueue, came=came)
        daemonsets = DaemonSetView(kube)
        if measure.taint.evicts and measure.clearing.are_daemons_exempt:  # Nobody else asks who is a daemon.
            tasks.start_soon(daemonsets.run)
        confirm = JobConfirmer(views.bus, views.cluster)
        evictor = Evictor(snapshotter, nodes, rules, confirm=confirm, daemonsets=daemonsets)
        locks = Locks(snapshotter, nodes, watches, writer, rules, evictor=evictor)
        answers = Handlers(snapshotter, locks, loop, explain)
        tasks.start_soon(answers.failed.follow, views.slurm_nodes)
        tasks.start_soon(warn_of_daemons, kube, measure, views.cluster)
        if changed is not None:
            take_off = partial(take_off_stray, snapshotter, nodes, loop.enqueue)
            strays = KeyLoop(f"stray-taints-{views.cluster}", take_off, woken_by=woken_by)
            tasks.start_soon(strays.run)
            look_at_marks = partial(enqueue_stray_taints, owned=loop.enqueue, unowned=strays.enqueue)
            tasks.start_soon(look_at_marks, changed, snapshotter, viewed, measure.taint)
        async with (
            answering(views.bus, views.cluster, AcquireLock, answers.acquire, fence=leadership),
            answering(views.bus, views.cluster, ReleaseLock, answers.release, fence=leadership),
            answering(views.bus, views.cluster, ExplainKubeNode, answers.explain, fence=leadership),
        ):
            await loop.run(
                views.kube_pods.changes(),
                views.locks.doubts(),
                snapshotter.job_changes(),
                snapshotter.placement_changes(),
                snapshotter.drain_changes(),
                _rounds(snapshotter, nodes, resync_s),
            )


async def _rounds(snapshotter: LockSnapshotter, nodes: NodeLockStore, every_s: float) -> AsyncIterator[str]:
    """Yield every node at once, and again each *every_s* seconds; take locks off that nobody looks after."""
    suspects: set[str] = set()
    while True:
        known = {snapshotter.kube_node(node) for node in snapshotter.nodes()}
        try:
            listed = await nodes.prefetch(known)
            suspects = await _take_off(snapshotter, nodes, listed, suspects)
        except SunkError as error:
            log.warning("nodes not listed: each is read by itself", extra={"error": str(error)})
        for node in snapshotter.nodes():
            yield node
        await anyio.sleep(every_s)


async def _take_off(
    snapshotter: LockSnapshotter, nodes: NodeLockStore, listed: Iterable[Node], suspects: Collection[str]
) -> set[str]:
    """Take the locks off *suspects* that nobody looks after yet, and return all that nobody looks after.

    A bus that lost its data has to be told anew which Nodes there are: so none goes at first sight.
    """
    snapshotter.require_complete()
    known = {snapshotter.kube_node(node) for node in snapshotter.nodes()}
    unowned = [node for node in listed if not snapshotter.has_owner(node.metadata.name)]
    found = left_over(unowned, known, snapshotter.views.cluster, nodes.taint)
    for node in found:
        if node.metadata.name in suspects:
            name = {"kube_node": node.metadata.name}
            try:  # One Node that may not be written keeps no other locked: the next round looks again.
                await nodes.take_off(node)
            except SunkError as error:
                log.warning("leftover lock not removed", extra={**name, "error": str(error)})
            else:
                log.warning("leftover lock removed", extra=name)
    return {node.metadata.name for node in found}


async def take_off_stray(
    snapshotter: LockSnapshotter, nodes: NodeLockStore, enqueue: Callable[[str], None], kube_node: str
) -> None:
    """Take a stray taint off *kube_node* if no Slurm node has it; that is this cluster's to do, or another's.

    Of a lock of ours the annotation stands there too, so this needs no second sight.
    """
    snapshotter.require_complete()
    viewed = nodes.viewed(kube_node)
    if viewed is None or snapshotter.has_owner(kube_node):
        return  # It is gone, or its cluster's locks look after it.
    if former := snapshotter.former(kube_node):
        for node in former:
            enqueue(node)
    elif snapshotter.is_responsible(viewed):
        found = await nodes.read(kube_node)
        if found is not None and is_stray_taint(read_lock(found, nodes.taint)):
            await nodes.take_off(found)


async def warn_of_daemons(kube: KubeClient, measure: EvictionPolicy, cluster: str) -> None:
    """Log which DaemonSets do not tolerate the lock, or that they cannot be listed.

    Kubernetes deletes their Pods again and again: with ``NoExecute`` its controller ends what the *template*
    does not tolerate. No lock asks about such Pods, so the log says it before a lock ends them.
    """
    while True:
        try:
            found = driven_out(await kube.list_all(DAEMONSETS), measure)
        except PermanentError as error:  # We may not list them: locks work without.
            log.warning("daemons not checked", extra={"cluster": cluster, "error": str(error)})
            return
        except SunkError as error:
            log.info("daemons not checked yet", extra={"cluster": cluster, "error": str(error)})
            await anyio.sleep(DAEMONSETS_AGAIN_S)
        else:
            break
    DAEMONS_DRIVEN.labels(cluster).set(len(found))
    if found:
        fields = {"cluster": cluster, "daemonsets": found, "taint": measure.taint.key}
        log.warning("daemons do not tolerate the lock: each lock ends their Pods", extra=fields)
