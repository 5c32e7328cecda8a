"""The syncer's composition root: the only module that names concrete classes."""

import sys
from functools import partial

import anyio

from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmReservationState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState, KubeWatchState, NodeSliceState
from sunk_events.permissions import permissions
from sunk_events.placements import PlacementState
from sunk_events.requests import (
    ConfirmJobs,
    ConfirmNode,
    ExplainJob,
    ExplainJobToOwner,
    ExplainSlurmNode,
    NudgeJob,
    NudgeNode,
    RequeueJob,
)
from sunk_events.subjects import STATISTICS_KEY
from sunk_runtime.http import Health, serve_http
from sunk_runtime.jetstream import Bus, connect
from sunk_runtime.leases import BusLease, Leadership, lead
from sunk_runtime.lifecycle import identity, run, serve
from sunk_runtime.requests import answering
from sunk_runtime.rights import require_rights
from sunk_runtime.tracing import tracing
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.client import SlurmClient
from sunk_syncer.adapters.fresh_job_states import FreshStates
from sunk_syncer.adapters.views import Views
from sunk_syncer.config import PREFIX, Config, read_config
from sunk_syncer.controllers.cleanup import CleanupController
from sunk_syncer.controllers.drains import DrainController
from sunk_syncer.controllers.extra import ExtraController
from sunk_syncer.controllers.reconfigure import ReconfigureController
from sunk_syncer.controllers.releases import ReleaseController
from sunk_syncer.controllers.requeues import LostPrologController, RequeueController
from sunk_syncer.policy.requeues import is_in_prolog
from sunk_syncer.pollers.activity import ActivityPoller
from sunk_syncer.pollers.jobs import JobPoller
from sunk_syncer.pollers.nodes import NodePoller
from sunk_syncer.pollers.poll_loop import PollSchedule
from sunk_syncer.pollers.statistics import StatisticsPoller
from sunk_syncer.rpc.explain_handlers import ExplainHandlers
from sunk_syncer.rpc.handlers import Handlers
from sunk_syncer.states.nodes import SERVICE
from sunk_syncer.writers.node_writer import NodeWriter


class Syncer:
    """Everything that is wired once a process; what only a leader does is in `work`."""

    def __init__(self, bus: Bus, slurm: SlurmClient, config: Config) -> None:
        self._bus = bus
        self._slurm = slurm
        self._config = config
        cluster = config.cluster
        self.nodes = StateView(bus, cluster, SlurmNodeState)
        self.jobs = StateView(bus, cluster, SlurmJobState)
        self.partitions = StateView(bus, cluster, SlurmPartitionState)
        self.reservations = StateView(bus, cluster, SlurmReservationState)
        self.statistics = StateView(bus, cluster, SlurmStatisticsState)
        self.slices = StateView(bus, cluster, NodeSliceState)
        self.node_views = Views(
            nodes=self.nodes,
            jobs=self.jobs,
            pods=StateView(bus, cluster, KubePodState),
            placements=StateView(bus, cluster, PlacementState),
            locks=StateView(bus, cluster, LockState),
            kube=StateView(bus, cluster, KubeWatchState),
            age_max_s=config.view_age_max_s,
            kube_silent_max_s=config.kube_silent_max_s,
            bucket_doubt_s=config.bucket_doubt_s,
        )

    async def work(self, leadership: Leadership) -> None:
        """Observe, tell, drain and answer until cancelled."""
        config, bus, slurm = self._config, self._bus, self._slurm
        for own in (self.nodes, self.jobs, self.partitions, self.reservations, self.statistics):
            own.own()
            await own.complete()
        published = self.statistics.get(STATISTICS_KEY)
        reconfigure = ReconfigureController(
            slurm,
            leadership,
            config,
            done=published.reconfigured if published else "",
            in_prolog=lambda: [job.job for job in self.jobs.values() if is_in_prolog(job)],
        )
        activity = ActivityPoller(slurm, PollSchedule.of(config, config.poll_s))
        nodes = NodePoller(slurm, StateWriter(bus, self.nodes, fence=leadership), activity, config)
        jobs = JobPoller(slurm, StateWriter(bus, self.jobs, fence=leadership), activity, config)
        statistics = StatisticsPoller(
            slurm,
            StateWriter(bus, self.partitions, fence=leadership),
            StateWriter(bus, self.reservations, fence=leadership),
            StateWriter(bus, self.statistics, fence=leadership),
            config,
            nodes=nodes,
            jobs=jobs,
            reconfigured=lambda: reconfigure.done,
        )
        node_writer = NodeWriter(slurm, nodes, leadership, config)
        drains = DrainController(node_writer, nodes, jobs, self.node_views, config)
        descriptions = ExtraController(
            bus, node_writer, self.node_views, leadership=leadership, config=config
        )
        clean_up = CleanupController(node_writer, self.node_views, self.slices, config)
        watches = (activity, nodes, jobs, statistics)
        requeues = RequeueController(
            slurm, jobs, node_writer, self.node_views, leadership=leadership, config=config
        )
        acting = (
            drains,
            descriptions,
            clean_up,
            LostPrologController(requeues, self.node_views, config),
            ReleaseController(slurm, jobs, self.node_views, leadership=leadership, config=config),
            reconfigure,
        )
        answers = Handlers(nodes, jobs, FreshStates(slurm, config.call_timeout_s), self.jobs)
        explanations = ExplainHandlers(self.node_views)
        async with (
            anyio.create_task_group() as tasks,
            # First in and last out: only earlier versions answer the second alone.
            answering(bus, config.cluster, ConfirmJobs, answers.confirm_jobs, fence=leadership),
            answering(bus, config.cluster, ConfirmNode, answers.confirm, fence=leadership),
            answering(bus, config.cluster, RequeueJob, requeues.answer, fence=leadership),
            answering(bus, config.cluster, ExplainSlurmNode, explanations.node, fence=leadership),
            answering(bus, config.cluster, ExplainJob, explanations.job, fence=leadership),
            answering(bus, config.cluster, ExplainJobToOwner, explanations.job_to_owner, fence=leadership),
            answering(bus, config.cluster, NudgeNode, answers.nudge_node, fence=leadership),
            answering(bus, config.cluster, NudgeJob, answers.nudge_job, fence=leadership),
        ):
            for part in (*watches, *acting):
                tasks.start_soon(part.run)
            async for _ in slurm.recoveries():
                for part in (*watches, *acting):
                    part.wake()


async def start() -> None:
    """Run the syncer until it is told to stop."""
    config = read_config(sys.argv[1:])
    tokens = config.tokens(PREFIX)
    async with (
        tracing(SERVICE, config.traces),
        connect(config.bus, SERVICE) as bus,
        SlurmClient(config.slurm_url, tokens, timeout_s=config.call_timeout_s, trust=config.trust) as slurm,
    ):
        await require_rights(bus, permissions(SERVICE, (config.cluster,)))
        await bus.provision(config.cluster, config.bus)
        syncer = Syncer(bus, slurm, config)
        views = (
            syncer.nodes,
            syncer.jobs,
            syncer.partitions,
            syncer.reservations,
            syncer.statistics,
            syncer.node_views.pods,
            syncer.node_views.placements,
            syncer.node_views.locks,
            syncer.node_views.kube,
            syncer.slices,
        )
        lease = BusLease(bus, config.cluster, SERVICE, identity(SERVICE), ttl_s=config.lease_ttl_s)
        health = Health()
        health.require("bus", lambda: bus.is_connected)
        health.require("space on the bus", lambda: bus.has_space)
        health.require("views", lambda: all(view.is_complete for view in views))
        async with following(*views):
            await serve(
                partial(lead, lease, syncer.work),
                partial(serve_http, config.http_host, config.http_port, health),
            )


def main() -> None:
    """Start the process."""
    run(SERVICE, start)
