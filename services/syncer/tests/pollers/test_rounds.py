"""Each job is looked at in its turn, though no word of its state changes: by whoever leads."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.wire import Job
from sunk_syncer.config import Config
from sunk_syncer.pollers.activity import ActivityPoller
from sunk_syncer.pollers.jobs import JobPoller
from sunk_syncer.pollers.poll_loop import PollSchedule
from sunk_syncer.testing.quiet_slurm import QuietSlurm
from sunk_syncer.testing.stage import CLUSTER

pytestmark = pytest.mark.anyio

SELDOM = Config(cluster=CLUSTER, job_refresh_s=3600)
OFTEN = replace(SELDOM, job_refresh_s=0.3)


@asynccontextmanager
async def told(nats: NatsServer) -> AsyncGenerator[StateWriter[SlurmJobState]]:
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        view = StateView(bus, CLUSTER, SlurmJobState)
        async with following(view):
            await view.complete()
            yield StateWriter(bus, view, fence=None)


@asynccontextmanager
async def leading(
    slurm: QuietSlurm, writer: StateWriter[SlurmJobState], config: Config, crowd_s: float = 3600.0
) -> AsyncGenerator[JobPoller]:
    activity = ActivityPoller(slurm, PollSchedule.of(config, config.poll_s))
    watch = JobPoller(slurm, writer, activity, config, crowd_s=crowd_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        yield watch
        tasks.cancel_scope.cancel()


async def test_a_new_leader_looks_at_jobs_that_it_finds_told_as_they_are(nats: NatsServer) -> None:
    slurm = QuietSlurm()
    async with told(nats) as writer:
        async with leading(slurm, writer, SELDOM):
            await until(lambda: len(writer.view) == 2)
        slurm.reason = "Resources"
        async with leading(slurm, writer, OFTEN):
            await until(lambda: {job.reason for job in writer.view.values()} == {"Resources"})


async def test_a_new_leader_looks_at_once_at_jobs_that_were_told_in_their_prolog(nats: NatsServer) -> None:
    slurm = QuietSlurm("RUNNING", reason="Prolog")
    async with told(nats) as writer:
        async with leading(slurm, writer, SELDOM):
            await until(lambda: {job.reason for job in writer.view.values()} == {"Prolog"})
        slurm.reason = "None"
        async with leading(slurm, writer, SELDOM):
            await until(lambda: {job.reason for job in writer.view.values()} == {""})


async def test_a_crowd_of_new_jobs_costs_one_look_at_each_that_starts_soon(nats: NatsServer) -> None:
    slurm = QuietSlurm()
    async with told(nats) as writer, leading(slurm, writer, SELDOM) as watch:
        await until(lambda: len(writer.view) == 2)
        looks = slurm.jobs_looked_at
        slurm.jobs = range(7, 107)
        await watch.poll()
        slurm.reason = "Priority"
        watch.look(7)
        await until(lambda: (job := writer.view.get("7")) is not None and job.reason == "Priority")
        slurm.state = ("RUNNING",)
        await watch.poll()
        await until(lambda: [job.state for job in writer.view.values()] == ["RUNNING"] * 100)

        assert slurm.jobs_looked_at - looks == 1 + 100


class SlowSlurm(QuietSlurm):
    """Answers looks at jobs once the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()

    async def job(self, job: int) -> Job | None:
        """Return it, late."""
        found = await super().job(job)
        await self.gate.wait()
        return found


async def test_a_new_job_is_not_looked_at_twice_because_the_look_takes_long(nats: NatsServer) -> None:
    slurm = SlowSlurm()
    async with told(nats) as writer, leading(slurm, writer, SELDOM) as watch:
        await until(lambda: slurm.jobs_looked_at == 2)
        for _ in range(3):
            await watch.poll()
        slurm.gate.set()
        await until(lambda: len(writer.view) == 2)
        watch.look(8)
        await until(lambda: slurm.jobs_looked_at > 2)

        assert slurm.jobs_looked_at == 3


async def test_who_waits_on_after_a_crowd_came_is_told_all_the_same(nats: NatsServer) -> None:
    slurm = QuietSlurm()
    async with told(nats) as writer, leading(slurm, writer, SELDOM, crowd_s=0.1) as watch:
        await until(lambda: len(writer.view) == 2)
        slurm.jobs = range(7, 107)
        await watch.poll()

        await until(lambda: len(writer.view) == 100)


async def test_a_pending_array_that_lost_tasks_is_looked_at_again(nats: NatsServer) -> None:
    slurm = QuietSlurm()
    slurm.tasks = 5
    async with told(nats) as writer, leading(slurm, writer, OFTEN) as watch:
        await until(lambda: [job.array_tasks for job in writer.view.values()] == [5, 5])
        slurm.tasks, slurm.reason = 3, "Priority"
        await watch.poll()

        await until(lambda: {job.reason for job in writer.view.values()} == {"Priority"})
        assert [job.array_tasks for job in writer.view.values()] == [3, 3]
