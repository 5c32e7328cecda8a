"""When Slurm was last heard of what is told, whatever else it does not answer."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import anyio
import pytest
from prometheus_client import REGISTRY

from sunk_events import subjects
from sunk_events.nodes import SlurmPartitionState, SlurmReservationState, SlurmStatisticsState
from sunk_lab.nats import NatsServer
from sunk_runtime.clock import now
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_syncer.config import Config
from sunk_syncer.pollers.statistics import StatisticsPoller
from sunk_syncer.testing.quiet_slurm import QuietSlurm
from sunk_syncer.testing.stage import CLUSTER

pytestmark = pytest.mark.anyio


class Answered:
    """When Slurm answered for all nodes, or all jobs."""

    def __init__(self, answered: datetime | None) -> None:
        self.answered = answered


class Leader:
    """One that watches, and what the bus has of it."""

    def __init__(self, watch: StatisticsPoller, statistics: StateView[SlurmStatisticsState]) -> None:
        self.watch = watch
        self._statistics = statistics

    @property
    def told(self) -> SlurmStatisticsState:
        told = self._statistics.get(subjects.STATISTICS_KEY)
        assert told is not None
        return told


@asynccontextmanager
async def leading(nats: NatsServer, slurm: QuietSlurm, lists: Answered) -> AsyncGenerator[Leader]:
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        partitions = StateView(bus, CLUSTER, SlurmPartitionState)
        reservations = StateView(bus, CLUSTER, SlurmReservationState)
        statistics = StateView(bus, CLUSTER, SlurmStatisticsState)
        views = partitions, reservations, statistics
        async with following(*views):
            for view in views:
                await view.complete()
            watch = StatisticsPoller(
                slurm,
                StateWriter(bus, partitions, fence=None),
                StateWriter(bus, reservations, fence=None),
                StateWriter(bus, statistics, fence=None),
                Config(cluster=CLUSTER),
                nodes=lists,
                jobs=lists,
                reconfigured=lambda: "digest",
            )
            yield Leader(watch, statistics)


@pytest.mark.parametrize("question", ["diag", "partitions", "reservations"])
async def test_a_question_that_slurm_does_not_answer_hides_no_sign_of_life(
    nats: NatsServer, question: str
) -> None:
    slurm, lists = QuietSlurm(), Answered(now())
    async with leading(nats, slurm, lists) as leader:
        await leader.watch.poll()
        slurm.unanswered, lists.answered = {question}, now()
        with pytest.raises(TransientError, match="no answer"):
            await leader.watch.poll()

        assert leader.told.nodes_answered == lists.answered
        assert leader.told.reconfigured == "digest"


async def test_a_leader_that_slurm_does_not_answer_shows_when_it_answered_the_one_before(
    nats: NatsServer,
) -> None:
    slurm, heard = QuietSlurm(), now() - timedelta(minutes=10)
    async with leading(nats, slurm, Answered(heard)) as before:
        await before.watch.poll()
    slurm.unanswered = {"diag", "partitions", "reservations"}

    def shown(kind: str) -> float:
        return REGISTRY.get_sample_value("sunk_syncer_answered_timestamp_seconds", {"kind": kind}) or 0.0

    async with leading(nats, slurm, Answered(None)) as leader, anyio.create_task_group() as tasks:
        tasks.start_soon(leader.watch.run)
        await until(lambda: shown("nodes") == heard.timestamp())
        tasks.cancel_scope.cancel()

        assert shown("nodes") == shown("jobs") == heard.timestamp()
        assert leader.told.nodes_answered == heard


async def test_lists_of_an_earlier_leader_whose_clock_is_ahead_do_not_look_fresh(nats: NatsServer) -> None:
    slurm, ahead = QuietSlurm(), timedelta(minutes=10)
    async with leading(nats, slurm, Answered(now() + ahead)) as former:
        await former.watch.poll()
    async with leading(nats, slurm, Answered(None)) as leader:
        for _ in range(2):
            await leader.watch.poll()
        told = leader.told

    assert told.nodes_answered is not None
    assert told.nodes_answered == told.jobs_answered
    assert told.nodes_answered < now() + ahead / 2
