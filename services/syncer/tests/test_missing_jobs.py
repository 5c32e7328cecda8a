"""A job is gone when a look and a later, believed list agree, and one refused look loses no job."""

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager

import anyio
import pytest

from sunk_events.jobs import SlurmJobState
from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.errors import SlurmRejectedError
from sunk_slurm.reads import KnownJob
from sunk_slurm.states import JobState
from sunk_slurm.testing import job as one_job
from sunk_slurm.wire import Job
from sunk_syncer.config import Config
from sunk_syncer.polling import Rhythm
from sunk_syncer.testing import QuietSlurm
from sunk_syncer.watch_jobs import JobWatch
from sunk_syncer.watch_stirrings import StirringsWatch

pytestmark = pytest.mark.anyio

MANY = range(1, 41)
CONFIG = Config(cluster="c1", poll_s=3600, job_refresh_s=0.1, job_refresh_rate=10_000)
"""Lists are asked for by the test, and each job's turn comes at once."""


class Slurm(QuietSlurm):
    """Jobs that run, a state that may be lost, and looks that may be refused."""

    def __init__(self) -> None:
        super().__init__("RUNNING")
        self.jobs_looked_at: int = 0
        self.jobs: Collection[int] = MANY
        self.is_lost = False
        self.refused = 0

    async def job_states(self) -> dict[int, KnownJob]:
        listed = () if self.is_lost else tuple(self.jobs)
        return dict.fromkeys(listed, KnownJob(JobState.of(self.state)))

    async def job(self, job: int) -> Job | None:
        self.jobs_looked_at += 1
        if self.refused:
            self.refused -= 1
            raise SlurmRejectedError("HTTP 403 by a proxy")
        return one_job(job, *self.state) if job in self.jobs and not self.is_lost else None


@asynccontextmanager
async def watching(
    nats: NatsServer, slurm: Slurm
) -> AsyncGenerator[tuple[JobWatch, StateView[SlurmJobState]]]:
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        view = StateView(bus, "c1", SlurmJobState)
        stirrings = StirringsWatch(slurm, Rhythm.of(CONFIG, CONFIG.poll_s))
        watch = JobWatch(slurm, StateWriter(bus, view, fence=None), stirrings, CONFIG)
        async with following(view), anyio.create_task_group() as tasks:
            await view.complete()
            tasks.start_soon(watch.run)
            await until(lambda: len(view) == len(slurm.jobs))
            yield watch, view
            tasks.cancel_scope.cancel()


async def test_a_short_empty_answer_ends_no_job(nats: NatsServer) -> None:
    slurm = Slurm()
    async with watching(nats, slurm) as (watch, view):
        slurm.is_lost = True
        await watch.poll()  # This list lacks all, and is not believed yet.
        looks = slurm.jobs_looked_at
        await until(lambda: slurm.jobs_looked_at > looks + len(MANY))
        await watch.poll()

        assert sorted(map(int, view.keys())) == list(MANY)
        slurm.is_lost = False
        await watch.poll()
        assert sorted(map(int, view.keys())) == list(MANY)


async def test_a_job_that_a_look_and_later_lists_lack_is_gone(nats: NatsServer) -> None:
    slurm = Slurm()
    async with watching(nats, slurm) as (watch, view):
        slurm.jobs = tuple(MANY)[1:]

        async def is_gone() -> bool:
            await watch.poll()
            return view.get("1") is None

        await until(is_gone)
        assert len(view) == len(MANY) - 1


async def test_a_refused_look_keeps_no_job_from_its_next_turn(nats: NatsServer) -> None:
    slurm = Slurm()
    async with watching(nats, slurm) as (_, _view):
        slurm.refused = len(MANY)
        await until(lambda: slurm.refused == 0)
        looks = slurm.jobs_looked_at
        await until(lambda: slurm.jobs_looked_at > looks + len(MANY))
