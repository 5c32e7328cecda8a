"""What the syncer knows of nodes and jobs does not wait for a change in Slurm when the bus lost it."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.diag import Diag
from sunk_slurm.reads import KnownJob, NodeList, NotModified
from sunk_slurm.reservations import Reservation
from sunk_slurm.states import JobState
from sunk_slurm.testing import job as pending
from sunk_slurm.testing import node
from sunk_slurm.wire import Job, Node, Partition
from sunk_syncer.config import Config
from sunk_syncer.polling import Rhythm
from sunk_syncer.watch_jobs import JobWatch
from sunk_syncer.watch_nodes import NodeWatch
from sunk_syncer.watch_stirrings import StirringsWatch

pytestmark = pytest.mark.anyio

CONFIG = Config(cluster="c1", resync_s=3600)
QUIET = Config(cluster="c1", poll_s=3600, job_refresh_s=3600)
"""Neither a list nor a job's turn comes round."""


class Quiet:
    """A Slurm of two nodes and two jobs in which nothing ever changes."""

    def __init__(self) -> None:
        self.jobs_looked_at = 0

    async def nodes(self, update_time: int = 0) -> NodeList | NotModified:
        return NotModified() if update_time else NodeList(nodes=(node("n1"), node("n2")), last_update=1)

    async def node(self, name: str) -> Node | None:
        return node(name)

    async def job_states(self) -> dict[int, KnownJob]:
        return {7: KnownJob(JobState("PENDING")), 8: KnownJob(JobState("PENDING"))}

    async def job(self, job: int) -> Job | None:
        self.jobs_looked_at += 1
        return pending(job)

    async def diag(self) -> Diag:
        return Diag()

    async def partitions(self) -> tuple[Partition, ...]:
        return ()

    async def reservations(self) -> tuple[Reservation, ...]:
        return ()


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


async def test_a_bucket_of_nodes_that_was_removed_is_filled_again_though_nothing_changed_in_slurm(
    nats: NatsServer,
) -> None:
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        view = StateView(bus, "c1", SlurmNodeState)
        stirrings = StirringsWatch(Quiet(), Rhythm.of(CONFIG, CONFIG.poll_s))
        watch = NodeWatch(Quiet(), StateWriter(bus, view, fence=None), stirrings, CONFIG)
        async with following(view), anyio.create_task_group() as tasks:
            await view.complete()
            tasks.start_soon(watch.run)
            await until(lambda: sorted(view.keys()) == ["n1", "n2"])
            await bus.api(f"STREAM.DELETE.KV_{view.bucket}", {})

            async with following(fresh := StateView(bus, "c1", SlurmNodeState)):
                await until(lambda: sorted(fresh.keys()) == ["n1", "n2"], within_s=20)
            tasks.cancel_scope.cancel()


async def test_a_bucket_of_jobs_that_was_removed_is_filled_again_though_nothing_changed_in_slurm(
    nats: NatsServer,
) -> None:
    settings, slurm = BusSettings(url=nats.url), Quiet()
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        view = StateView(bus, "c1", SlurmJobState)
        stirrings = StirringsWatch(slurm, Rhythm.of(CONFIG, CONFIG.poll_s))
        watch = JobWatch(slurm, StateWriter(bus, view, fence=None), stirrings, QUIET)
        async with following(view), anyio.create_task_group() as tasks:
            await view.complete()
            await stirrings.poll()
            tasks.start_soon(watch.run)
            await until(lambda: sorted(view.keys()) == ["7", "8"])
            looks = slurm.jobs_looked_at
            await bus.api(f"STREAM.DELETE.KV_{view.bucket}", {})

            async with following(fresh := StateView(bus, "c1", SlurmJobState)):
                await until(lambda: sorted(fresh.keys()) == ["7", "8"], within_s=20)
            assert (looks, slurm.jobs_looked_at) == (2, 4)
            tasks.cancel_scope.cancel()
