"""What lives in the process, and what runs while it leads."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from importlib import resources
from typing import Final

import anyio
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_events.requests import ExplainPlacement, PlacementAnnounced, PlacementSilent, ReleasePlacement
from sunk_kube.client import KubeClient
from sunk_kube.pods import Pod
from sunk_kube.reflector import Reflector
from sunk_kube.resources import NODES, PODS
from sunk_pod_scheduler.adapters.event_recorder import EventRecorder
from sunk_pod_scheduler.adapters.peers import claim, peers, when_alias_is_free
from sunk_pod_scheduler.adapters.placeholder_jobs import PlaceholderJobs
from sunk_pod_scheduler.adapters.pod_store import PodStore
from sunk_pod_scheduler.adapters.workload_client import WorkloadClient
from sunk_pod_scheduler.config import Config
from sunk_pod_scheduler.controller.bus_jobs import BusJobs
from sunk_pod_scheduler.controller.context import Context, Views
from sunk_pod_scheduler.controller.executor import Executor
from sunk_pod_scheduler.controller.mailbox import Mailbox
from sunk_pod_scheduler.controller.node_locks import NodeLocks
from sunk_pod_scheduler.controller.node_takers import NodeTakers
from sunk_pod_scheduler.controller.reconciler import Reconciler
from sunk_pod_scheduler.controller.sweeper import Sweeper
from sunk_pod_scheduler.controller.unserved_pods import UnservedPods, views
from sunk_pod_scheduler.gang_controller.dispatcher import GangDispatcher
from sunk_pod_scheduler.gang_controller.snapshotter import GangSnapshotter
from sunk_pod_scheduler.placement.events import EventSource
from sunk_pod_scheduler.placement.job_claims import keys_of
from sunk_pod_scheduler.placement.job_description import Placeholder
from sunk_pod_scheduler.placement.kubelet_rejections import KubeletRejections
from sunk_pod_scheduler.placement.node_filter import port_keys
from sunk_pod_scheduler.placement.orphans import is_news
from sunk_pod_scheduler.placement.priority import priority_s
from sunk_pod_scheduler.podspec.scopes import ALIAS, PodScope
from sunk_pod_scheduler.rpc.explain_handlers import ExplainHandlers
from sunk_pod_scheduler.rpc.handlers import Handlers
from sunk_runtime.clock import now
from sunk_runtime.jetstream import Bus
from sunk_runtime.keys import KeyLoop
from sunk_runtime.leases import Leadership
from sunk_runtime.requests import answering
from sunk_runtime.views import StateView
from sunk_runtime.writer import StateWriter
from sunk_slurm.accounting import SlurmAccounting
from sunk_slurm.client import SlurmClient

CONCURRENCY: Final = 32
"""Pods looked at at once: enough to keep slurmctld busy, and few enough that each is soon done."""
REQUESTED_AHEAD_S: Final = 60.0
"""A Pod whose script waits for an answer comes before Pods that are newer by less than this."""


class Runtime:
    """What lives as long as the process, whether or not we lead."""

    def __init__(
        self, config: Config, bus: Bus, kube: KubeClient, slurm: SlurmClient, accounting: SlurmAccounting
    ) -> None:
        self.config = config
        self.bus = bus
        self.slurm = slurm
        self.accounting = accounting
        self.key = config.key()
        self.rules = config.rules()
        self.user_tokens = config.user_tokens()
        self.placements = StateView(bus, config.cluster, PlacementState)
        self.slurm_jobs = StateView(bus, config.cluster, SlurmJobState)
        self.statistics = StateView(bus, config.cluster, SlurmStatisticsState)
        self.views = Views(
            kube_pods=StateView(bus, config.cluster, KubePodState),
            slurm_nodes=StateView(bus, config.cluster, SlurmNodeState),
            locks=NodeLocks(StateView(bus, config.cluster, LockState)),
        )
        self.kube = kube
        self.watched_by_name = {
            name: [
                Reflector(kube, PODS, namespace=namespace, fields=f"spec.schedulerName={name}")
                for namespace in config.watched_namespaces
            ]
            for name in config.scheduler_names
        }
        self._indexes_by_name = {
            name: [view.index(keys) for view in views for keys in (keys_of(self.key), port_keys)]
            for name, views in self.watched_by_name.items()
        }
        self.nodes = Reflector(kube, NODES)
        self.recorder = EventRecorder(kube)
        self.bus_views = (self.placements, self.slurm_jobs, self.statistics, *self.views.followed)
        self._uid_by_job: dict[str, str] = {}
        self.pods = self.pods_of(config.scheduler_names)
        self.workloads = WorkloadClient(kube)
        self.placeholder = Placeholder(
            script=resources.files(__package__ or "").joinpath("placeholder.sh").read_text(),
            hooks_url=config.hooks_url,
            hooks_ca_file=config.hooks_ca_file,
            hooks_env_file=config.hooks_env_file,
            key=self.key,
        )

    @property
    def watched(self) -> list[Reflector[Pod]]:
        """The Pods of all our names."""
        return [view for views in self.watched_by_name.values() for view in views]

    def pods_of(self, names: Iterable[str], check: Callable[[], None] | None = None) -> PodStore:
        """Return the Pods of some of our names; *check* raises once we may not bind them any more."""
        ours = [*names]
        watched = [view for name in ours for view in self.watched_by_name[name]]
        indexes = [index for name in ours for index in self._indexes_by_name[name]]
        return PodStore(self.kube, watched, self.nodes, self.recorder, indexes, self.config.lock_key, check)

    async def work(self, leadership: Leadership) -> None:
        """Schedule while we lead."""
        config, mailbox = self.config, Mailbox()
        own = self.kube, config.namespace, leadership.name, config.pod_scope()
        names = await claim(*own)
        self.pods = self.pods_of(names, leadership.check)
        rules = replace(self.rules, pod_scope=replace(config.pod_scope(), names=names))
        jobs = PlaceholderJobs(
            self.slurm,
            self.slurm_jobs,
            self.key,
            timeout_s=config.call_timeout_s,
            accounting=self.accounting,
            user_tokens=self.user_tokens,
            group_id=config.group_id,
            check=leadership.check,
        )
        context = Context(
            event_source=EventSource(config.cluster, self.bus.name),
            pods=self.pods,
            jobs=jobs,
            placements=StateWriter(self.bus, self.placements, fence=leadership),
            views=self.views,
            rules=rules,
            placeholder=self.placeholder,
            refusals=KubeletRejections(),
            check=leadership.check,
        )
        executor = Executor(context)
        bus_jobs = BusJobs(self.slurm_jobs, self.statistics)
        takers = NodeTakers(bus_jobs, jobs, self.views.slurm_nodes)
        scheduler = Reconciler(
            pods=self.pods,
            jobs=jobs,
            placements=self.placements,
            bus_jobs=bus_jobs,
            takers=takers,
            views=self.views,
            mailbox=mailbox,
            executor=executor,
            rules=rules,
            limits=config.limits(),
            key=self.key,
        )
        woken_by = [self.bus.recovery, *(view.recovery for view in self.bus_views)]

        def enqueue(key: str, /, *, after_s: float = 0.0) -> None:
            loop.enqueue(key, after_s=after_s)

        snapshotter = GangSnapshotter(
            pods=self.pods,
            jobs=jobs,
            placements=self.placements,
            takers=takers,
            views=self.views,
            mailbox=mailbox,
            workloads=self.workloads,
            rules=rules,
            key=self.key,
            topology_labels=config.topology_labels,
        )
        gangs = GangDispatcher(
            single=scheduler,
            pods=self.pods,
            placements=self.placements,
            slurm_jobs=self.slurm_jobs,
            mailbox=mailbox,
            executor=executor,
            snapshotter=snapshotter,
            workloads=self.workloads,
            limits=config.limits(),
            key=self.key,
            enqueue=enqueue,
        )
        loop = KeyLoop(
            "pods", gangs.reconcile, concurrency=CONCURRENCY, woken_by=woken_by, ahead_s=self._ahead_s
        )
        sweeper = Sweeper(
            pods=self.pods,
            jobs=jobs,
            placements=self.placements,
            slurm_jobs=self.slurm_jobs,
            key=self.key,
            check=leadership.check,
        )
        sweep = KeyLoop("strays", sweeper.sweep, woken_by=woken_by)
        answerer = Handlers(
            self.placements,
            self.pods,
            mailbox,
            self.key,
            partial(loop.enqueue, after_s=-REQUESTED_AHEAD_S),
            self.slurm_jobs,
            self._kube_node,
        )
        explanations = ExplainHandlers(
            self.pods, self.placements, scheduler.look, gangs.explain, bus_jobs.all
        )
        answering_here = partial(answering, self.bus, config.cluster, fence=leadership)
        changes = self.pods.changes()  # Before anybody asks: from then on Pods are found by their uid.
        async with AsyncExitStack() as stack:
            for recovery in (self.bus.recovery, self.placements.recovery):
                stack.enter_context(recovery.waking(mailbox.restart_listening))
            await stack.enter_async_context(answering_here(PlacementAnnounced, answerer.announced))
            await stack.enter_async_context(answering_here(PlacementSilent, answerer.silent))
            await stack.enter_async_context(answering_here(ReleasePlacement, answerer.released))
            await stack.enter_async_context(answering_here(ExplainPlacement, explanations.placement))
            tasks = await stack.enter_async_context(anyio.create_task_group())
            of_jobs, of_locks = self._of_jobs(gangs.invalidate), self.views.locks.woken()
            changed = (changes, self._of_placements(), of_jobs, of_locks)
            tasks.start_soon(partial(loop.run, *changed, keys=self._keys, resync_s=config.resync_s))
            tasks.start_soon(partial(sweep.run, self.slurm_jobs.changes(), keys=self.slurm_jobs.keys))
            if ALIAS in names:
                tasks.start_soon(self._report_unserved, leadership)
            elif ALIAS in config.scheduler_names:  # The next leader claims it.
                tasks.start_soon(when_alias_is_free, *own, tasks.cancel_scope.cancel)
            async for _ in self.slurm.recoveries():
                loop.wake()
                sweep.wake()

    async def _report_unserved(self, leadership: Leadership) -> None:
        """Say on Pods that no scheduler serves them: the scheduler with the common name does so."""
        config = self.config
        watched = views(self.kube, config.watched_namespaces, config.scheduler_names)

        async def scopes() -> list[PodScope]:
            others = await peers(self.kube, f"{config.namespace}/{leadership.name}")
            return [config.pod_scope(), *(other.pod_scope for other in others)]

        unserved = UnservedPods(self.kube, watched, scopes, leadership.check)
        loop = KeyLoop("unserved", unserved.look)
        async with anyio.create_task_group() as tasks:
            for view in watched:
                tasks.start_soon(view.run)
            await loop.run(unserved.changes(), keys=unserved.keys, resync_s=config.resync_s)

    def _ahead_s(self, uid: str) -> float:
        pod = self.pods.watched(uid)
        return 0.0 if pod is None else priority_s(pod, now())

    def _kube_node(self, slurm_node: str) -> str:
        state = self.views.kube_pods.get(slurm_node)
        return "" if state is None else state.kube_node

    def _keys(self) -> list[str]:
        return [*self.pods.uids(), *self.placements.keys()]

    async def _of_placements(self) -> AsyncIterator[str]:
        """Yield the uids of placements that are there, or gone, and remember whose each job is.

        What changes in between we have written ourselves, in a look at that Pod, unless the bucket went back.
        A gang's members follow each other, and its job is the gang's, not a Pod's.
        """
        stored: set[str] = set()
        async for uid in self.placements.changes():
            state = self.placements.get(uid)
            if state is not None and state.job is not None:
                self._uid_by_job[str(state.job)] = state.gang or uid
            if state is None:
                stored.discard(uid)
            elif self.placements.is_doubtful(uid):
                pass
            elif uid in stored and not state.gang and state.roster is None:
                continue
            else:
                stored.add(uid)
            yield uid

    async def _of_jobs(self, invalidate: Callable[[str], None]) -> AsyncIterator[str]:
        """Yield the uids of Pods whose job changed."""
        async for job in self.slurm_jobs.changes():
            uid = self._uid_by_job.get(job)
            if uid and is_news(self.slurm_jobs.get(job), self.placements.get(uid)):
                invalidate(uid)
                yield uid
            if self.slurm_jobs.is_complete and self.slurm_jobs.get(job) is None:
                self._uid_by_job.pop(job, None)
