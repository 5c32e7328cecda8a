"""The syncer's composition root: the only module that names concrete classes."""

import sys
from functools import partial

import anyio

from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import (
    SlurmNodeState,
    SlurmPartitionState,
    SlurmReservationState,
    SlurmStatisticsState,
)
from sunk_events.nodesets import KubePodState, KubeWatchState, NodeSliceState
from sunk_events.permissions import permissions
from sunk_events.placements import PlacementState
from sunk_events.requests import (
    ConfirmJobs,
    ConfirmNode,
    ExplainJob,
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
from sunk_syncer.answers import Answers
from sunk_syncer.clean_up_nodes import NodeCleanUp
from sunk_syncer.config import PREFIX, Config, read_config
from sunk_syncer.deeds import Deeds
from sunk_syncer.describe_nodes import NodeDescriptions
from sunk_syncer.drain_nodes import DrainPropagation
from sunk_syncer.explanations import Explanations
from sunk_syncer.facts import SERVICE
from sunk_syncer.fresh_states import FreshStates
from sunk_syncer.polling import Rhythm
from sunk_syncer.reconfigure import Reconfigure
from sunk_syncer.release_jobs import JobReleases
from sunk_syncer.requeue_jobs import JobRequeues, LostPrologs
from sunk_syncer.requeues import is_in_prolog
from sunk_syncer.sides import Views
from sunk_syncer.watch_jobs import JobWatch
from sunk_syncer.watch_nodes import NodeWatch
from sunk_syncer.watch_statistics import StatisticsWatch
from sunk_syncer.watch_stirrings import StirringsWatch


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
        self.sides = Views(
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
        told = self.statistics.get(STATISTICS_KEY)
        reconfigure = Reconfigure(
            slurm,
            leadership,
            config,
            done=told.reconfigured if told else "",
            in_prolog=lambda: [job.job for job in self.jobs.values() if is_in_prolog(job)],
        )
        stirrings = StirringsWatch(slurm, Rhythm.of(config, config.poll_s))
        nodes = NodeWatch(slurm, StateWriter(bus, self.nodes, fence=leadership), stirrings, config)
        jobs = JobWatch(slurm, StateWriter(bus, self.jobs, fence=leadership), stirrings, config)
        statistics = StatisticsWatch(
            slurm,
            StateWriter(bus, self.partitions, fence=leadership),
            StateWriter(bus, self.reservations, fence=leadership),
            StateWriter(bus, self.statistics, fence=leadership),
            config,
            nodes=nodes,
            jobs=jobs,
            reconfigured=lambda: reconfigure.done,
        )
        deeds = Deeds(slurm, nodes, leadership, config)
        drains = DrainPropagation(deeds, nodes, self.sides, config)
        descriptions = NodeDescriptions(bus, deeds, self.sides, leadership=leadership, config=config)
        clean_up = NodeCleanUp(deeds, self.sides, self.slices, config)
        watches = (stirrings, nodes, jobs, statistics)
        requeues = JobRequeues(slurm, jobs, deeds, self.sides, leadership=leadership, config=config)
        acting = (
            drains,
            descriptions,
            clean_up,
            LostPrologs(requeues, self.sides, config),
            JobReleases(slurm, jobs, self.sides, leadership=leadership, config=config),
            reconfigure,
        )
        answers = Answers(nodes, jobs, FreshStates(slurm, config.call_timeout_s), self.jobs)
        explanations = Explanations(self.sides)
        async with (
            anyio.create_task_group() as tasks,
            # First in and last out: who answers the second without the first is of an earlier version.
            answering(bus, config.cluster, ConfirmJobs, answers.confirm_jobs),
            answering(bus, config.cluster, ConfirmNode, answers.confirm),
            answering(bus, config.cluster, RequeueJob, requeues.answer),
            answering(bus, config.cluster, ExplainSlurmNode, explanations.node),
            answering(bus, config.cluster, ExplainJob, explanations.job),
            answering(bus, config.cluster, NudgeNode, answers.nudge_node),
            answering(bus, config.cluster, NudgeJob, answers.nudge_job),
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
            syncer.sides.pods,
            syncer.sides.placements,
            syncer.sides.locks,
            syncer.sides.kube,
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
