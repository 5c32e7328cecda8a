"""A job is gone when a look and a later, believed list agree, and one refused look loses no job."""

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec import UNSET

from sunk_events import subjects
from sunk_events.base import Cause
from sunk_events.codec import decode_fact
from sunk_events.jobs import SlurmJobState
from sunk_lab.nats import NatsServer
from sunk_runtime.errors import BusUnavailableError, PermanentError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.errors import SlurmRejectedError
from sunk_slurm.reads import KnownJob
from sunk_slurm.states import JobState
from sunk_slurm.testing import job as one_job
from sunk_slurm.wire import Job
from sunk_syncer.config import Config
from sunk_syncer.pollers.activity import ActivityPoller
from sunk_syncer.pollers.jobs import JobPoller
from sunk_syncer.pollers.poll_loop import PollSchedule
from sunk_syncer.testing.quiet_slurm import QuietSlurm

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
        self.over: Collection[int] = ()
        self.is_lost = False
        self.refused = 0
        self.held_up: anyio.Event | None = None
        """The next look at job 1 finds nothing, and says so only once this is set."""
        self.later_looks: anyio.Event | None = None
        """The looks at job 1 after that one are answered only once this is set: its turn comes at once."""

    async def job_states(self) -> dict[int, KnownJob]:
        listed = () if self.is_lost else tuple(self.jobs)
        return {job: KnownJob(JobState.of(self.state_of(job))) for job in listed}

    def state_of(self, job: int) -> tuple[str, ...]:
        return ("COMPLETED",) if job in self.over else self.state

    async def job(self, job: int) -> Job | None:
        self.jobs_looked_at += 1
        if self.refused:
            self.refused -= 1
            raise SlurmRejectedError("HTTP 403 by a proxy")
        if job == 1 and self.held_up is not None:
            held_up, self.held_up = self.held_up, None
            await held_up.wait()
            return None
        if job == 1 and self.later_looks is not None:
            await self.later_looks.wait()
        return one_job(job, *self.state_of(job)) if job in self.jobs and not self.is_lost else None


@asynccontextmanager
async def watching(
    nats: NatsServer, slurm: Slurm, over: Callable[[Bus], Bus] = lambda bus: bus
) -> AsyncGenerator[tuple[JobPoller, StateView[SlurmJobState]]]:
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        view = StateView(bus, "c1", SlurmJobState)
        activity = ActivityPoller(slurm, PollSchedule.of(CONFIG, CONFIG.poll_s))
        watch = JobPoller(slurm, StateWriter(over(bus), view, fence=None), activity, CONFIG)
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


async def test_a_short_empty_answer_does_not_end_the_only_job_that_is_not_over(nats: NatsServer) -> None:
    slurm = Slurm()
    slurm.over = MANY[1:]
    async with watching(nats, slurm) as (watch, view):
        slurm.is_lost = True
        for _ in range(3):
            looks = slurm.jobs_looked_at
            await watch.poll()
            watch.look(1)
            await until(lambda looks=looks: slurm.jobs_looked_at > looks)
            await anyio.wait_all_tasks_blocked()

        assert view.get("1") is not None


@pytest.mark.parametrize("others", [range(100, 101), range(100, 140)], ids=["one job", "many jobs"])
async def test_lists_of_another_cluster_end_no_job_before_the_doubt_has_lasted(
    nats: NatsServer, others: range
) -> None:
    slurm = Slurm()
    slurm.jobs = ours = (1, 2, 3)
    async with watching(nats, slurm) as (watch, view):
        slurm.jobs = others
        for _ in range(3):
            await watch.poll()
            await until(lambda: set(map(str, others)) <= set(view.keys()))
            await anyio.sleep(0.2)  # Jobs that were looked at would have ended by now.

        assert set(map(str, ours)) <= set(view.keys())


async def test_one_look_that_finds_nothing_forgets_no_job_whose_state_cannot_be_read(
    nats: NatsServer,
) -> None:
    slurm, buses = Slurm(), list[Bus]()

    def kept(bus: Bus) -> Bus:
        buses.append(bus)
        return bus

    async with watching(nats, slurm, kept) as (watch, view):
        await buses[0].publish(subjects.key_subject(view.bucket, "99"), b"of a later version")
        await until(lambda: "99" in view.undecodable)
        looks = slurm.jobs_looked_at
        watch.look(99)
        await until(lambda: slurm.jobs_looked_at > looks)
        await anyio.wait_all_tasks_blocked()
        assert "99" in view.undecodable

        async def is_forgotten() -> bool:
            await watch.poll()
            return "99" not in view.undecodable

        await until(is_forgotten)
        assert len(view) == len(MANY)


async def test_a_list_that_is_not_believed_does_not_say_that_a_job_is_gone(nats: NatsServer) -> None:
    slurm = Slurm()
    async with watching(nats, slurm) as (watch, view):
        slurm.held_up, slurm.later_looks = held_up, later_looks = anyio.Event(), anyio.Event()
        watch.look(1)
        await until(lambda: slurm.held_up is None)
        await watch.poll()  # It was asked for later than the look, has the job, and is believed.
        held_up.set()
        await until(lambda: watch.misses_jobs)
        slurm.is_lost = True
        await watch.poll()
        looks = slurm.jobs_looked_at
        later_looks.set()
        watch.look(1)
        await until(lambda: slurm.jobs_looked_at > looks)
        await anyio.sleep(0.3)  # Whoever would end it now has done so.

        assert view.get("1") is not None


class Unlucky(Bus):
    """The same connection, but the next deletion's acknowledgement is lost."""

    def __init__(self, real: Bus) -> None:
        self.__dict__.update(real.__dict__)
        self.is_due = True

    async def publish(self, subject: str, data: bytes, **more: Any) -> int:  # noqa: ANN401 - whatever the real one takes
        stored = await super().publish(subject, data, **more)
        if self.is_due and subject.startswith("$KV") and not data:
            self.is_due = False
            raise BusUnavailableError("no acknowledgement")
        return stored


async def test_a_job_whose_deletion_was_not_acknowledged_is_looked_for_no_longer(nats: NatsServer) -> None:
    slurm = Slurm()
    async with watching(nats, slurm, Unlucky) as (watch, view):
        slurm.jobs = MANY[1:]

        async def is_gone() -> bool:
            await watch.poll()
            return view.get("1") is None

        await until(is_gone)

        await until(lambda: not watch.misses_jobs)


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


class Denying(Bus):
    """The same connection, but NATS denies each publish while *is_denied*."""

    def __init__(self, real: Bus) -> None:
        self.__dict__.update(real.__dict__)
        self.is_denied = False
        self.denied = 0

    async def publish(self, subject: str, data: bytes, **more: Any) -> int:  # noqa: ANN401 - whatever the real one takes
        if self.is_denied:
            self.denied += 1
            raise PermanentError(f"NATS denies the publish to {subject}")
        return await super().publish(subject, data, **more)


async def test_a_refused_publish_keeps_no_job_from_its_next_turn(nats: NatsServer) -> None:
    slurm, buses = Slurm(), list[Denying]()
    slurm.jobs = (1, 2, 3)

    def denying(bus: Bus) -> Bus:
        buses.append(Denying(bus))
        return buses[0]

    async with watching(nats, slurm, denying) as (watch, view):
        buses[0].is_denied = True
        slurm.over = slurm.jobs
        await watch.poll()
        await until(lambda: buses[0].denied >= len(slurm.jobs))
        buses[0].is_denied = False

        await until(lambda: {job.state for job in view.values()} == {"COMPLETED"})


async def test_what_was_done_to_a_job_that_is_forgotten_leads_to_nothing_of_the_next_one_of_its_number(
    nats: NatsServer,
) -> None:
    slurm, buses = Slurm(), list[Bus]()
    slurm.jobs = (1, 2, 3)

    def keep(bus: Bus) -> Bus:
        buses.append(bus)
        return bus

    async with watching(nats, slurm, keep) as (watch, view):
        watch.expect(1, Cause("requeue_job:1"))
        slurm.jobs = (2, 3)
        looks = slurm.jobs_looked_at
        await watch.poll()
        await until(lambda: slurm.jobs_looked_at > looks + len(slurm.jobs))
        await watch.poll()
        await until(lambda: view.get("1") is None)

        slurm.jobs = (1, 2, 3)
        await watch.poll()
        await until(lambda: view.get("1") is not None)
        slurm.state = ("PENDING",)
        await watch.poll()
        await until(lambda: (told := view.get("1")) is not None and told.state == "PENDING")

        found = await buses[0].last(subjects.fact_stream("c1"), "sunk.ev.c1.slurm.job.1.requeued")

    assert found is not None
    assert decode_fact(found[1].subject, found[1].data).cause is UNSET
