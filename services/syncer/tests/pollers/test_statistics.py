"""When Slurm was last heard of what is told, whatever else it does not answer."""

from datetime import datetime

import pytest

from sunk_events import subjects
from sunk_events.nodes import SlurmPartitionState, SlurmReservationState, SlurmStatisticsState
from sunk_lab.nats import NatsServer
from sunk_runtime.clock import now
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_syncer.config import Config
from sunk_syncer.pollers.statistics import StatisticsPoller
from sunk_syncer.testing.quiet_slurm import QuietSlurm
from sunk_syncer.testing.stage import CLUSTER

pytestmark = pytest.mark.anyio


class Answered:
    """Slurm answered for all nodes, or all jobs, a moment ago."""

    @property
    def answered(self) -> datetime | None:
        return now()


@pytest.mark.parametrize("question", ["diag", "partitions", "reservations"])
async def test_a_question_that_slurm_does_not_answer_hides_no_sign_of_life(
    nats: NatsServer, question: str
) -> None:
    slurm, settings = QuietSlurm(), BusSettings(url=nats.url)
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
                nodes=Answered(),
                jobs=Answered(),
                reconfigured=lambda: "digest",
            )
            await watch.poll()
            slurm.unanswered, began = {question}, now()
            with pytest.raises(TransientError, match="no answer"):
                await watch.poll()
            told = statistics.get(subjects.STATISTICS_KEY)

    assert told is not None
    assert told.nodes_answered is not None
    assert told.nodes_answered > began
    assert told.reconfigured == "digest"
