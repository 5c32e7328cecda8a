"""Whether a node is free is said only by who knows its jobs: a suspended one shows on no node."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

import anyio
import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_events.requests import ConfirmJobs, ConfirmNode, JobsConfirmed
from sunk_lab.nats import NatsServer
from sunk_runtime.clock import now
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.testing import job as one_job
from sunk_slurm.testing import node
from sunk_slurm.wire import Job, Node
from sunk_syncer.adapters.fresh_job_states import FreshStates
from sunk_syncer.config import Config
from sunk_syncer.pollers.activity import ActivityPoller
from sunk_syncer.pollers.jobs import JobPoller
from sunk_syncer.pollers.nodes import NodePoller
from sunk_syncer.pollers.poll_loop import PollSchedule
from sunk_syncer.rpc.handlers import Handlers
from sunk_syncer.testing.quiet_slurm import QuietSlurm
from sunk_syncer.testing.stage import CLUSTER

pytestmark = pytest.mark.anyio

CONFIG = Config(cluster=CLUSTER, poll_s=3600, job_refresh_s=3600)
"""Lists are asked for by the test."""
FREE = ConfirmNode(node="n1")


class Slurm(QuietSlurm):
    """Two drained nodes, and a suspended job on the first."""

    def __init__(self) -> None:
        super().__init__("SUSPENDED")
        self.jobs = (7,)

    async def node(self, name: str) -> Node | None:
        return node(name, "IDLE", "DRAIN")

    async def job(self, job: int) -> Job | None:
        return replace(one_job(job, *self.state), nodes="n1") if job in self.jobs else None


class Leader(NamedTuple):
    """Who answers."""

    bus: Bus
    jobs: JobPoller
    told: StateWriter[SlurmJobState]
    answers: Handlers


@asynccontextmanager
async def leading(nats: NatsServer, slurm: Slurm) -> AsyncGenerator[Leader]:
    """Lead, without any loop that runs."""
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        nodes, jobs = StateView(bus, CLUSTER, SlurmNodeState), StateView(bus, CLUSTER, SlurmJobState)
        activity = ActivityPoller(slurm, PollSchedule.of(CONFIG, CONFIG.poll_s))
        writer = StateWriter(bus, jobs, fence=None)
        watch = JobPoller(slurm, writer, activity, CONFIG)
        watched = NodePoller(slurm, StateWriter(bus, nodes, fence=None), activity, CONFIG)
        async with following(nodes, jobs):
            await nodes.complete()
            await jobs.complete()
            yield Leader(bus, watch, writer, Handlers(watched, watch, FreshStates(slurm, 5), jobs))


async def test_who_has_just_begun_to_lead_calls_no_node_free_before_a_list_of_jobs(nats: NatsServer) -> None:
    """The job started, and was suspended, while nobody led; the bus has it as it waited."""
    async with leading(nats, Slurm()) as leader:
        waited = SlurmJobState(changed=now(), job=7, state="PENDING")
        await leader.told.record("7", waited, revision=0)
        with pytest.raises(TransientError, match="no list of jobs"):
            await leader.answers.confirm(FREE)

        await leader.jobs.poll()

        assert not (await leader.answers.confirm(FREE)).is_drained_and_idle
        assert (await leader.answers.confirm(ConfirmNode(node="n2"))).is_drained_and_idle


async def test_no_node_is_called_free_while_the_jobs_that_went_with_their_bucket_are_told_anew(
    nats: NatsServer,
) -> None:
    slurm = Slurm()
    async with leading(nats, slurm) as leader, anyio.create_task_group() as tasks:
        view = leader.told.view
        held = SlurmJobState(changed=now(), job=7, state="RUNNING", is_running=True, nodes="n1")
        await leader.told.record("7", held, revision=0)
        slurm.state = ("RUNNING",)
        await leader.jobs.poll()  # It was suspended only since.
        slurm.state = ("SUSPENDED",)
        assert not (await leader.answers.confirm(FREE)).is_drained_and_idle

        await leader.bus.js.delete_stream(f"KV_{view.bucket}")
        await until(lambda: view.is_complete and view.is_doubtful("7"))
        with pytest.raises(TransientError, match="lost its latest messages"):
            await leader.answers.confirm(FREE)
        tasks.start_soon(leader.jobs.run)
        await until(lambda: view.is_settled)

        assert not (await leader.answers.confirm(FREE)).is_drained_and_idle
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("state", "runs"),
    [
        (("RUNNING",), True),
        (("SUSPENDED",), True),
        (("RUNNING", "COMPLETING"), False),
        (("PENDING",), False),
        (("CANCELLED", "COMPLETING"), False),
        (("COMPLETED",), False),
    ],
)
async def test_jobs_run_that_a_list_shows_which_was_asked_for_after_the_question(
    nats: NatsServer, state: tuple[str, ...], *, runs: bool
) -> None:
    slurm = Slurm()
    slurm.state = ("RUNNING",)
    async with leading(nats, slurm) as leader:
        held = SlurmJobState(changed=now(), job=7, state="RUNNING", is_running=True, nodes="n1")
        await leader.told.record("7", held, revision=0)
        await leader.jobs.poll()
        slurm.state = state

        answer = await leader.answers.confirm_jobs(ConfirmJobs(node="n1", jobs=(7, 8)))

        assert answer == JobsConfirmed(running=(7,) if runs else ())


async def test_a_job_that_slurm_took_at_another_moment_is_not_the_one_that_was_asked_for(
    nats: NatsServer,
) -> None:
    """Slurmctld has lost its state and gives numbers anew; the bus has the job of before, which ran too."""
    slurm = Slurm()
    slurm.state = ("RUNNING",)
    taken = one_job(7).submit_time.moment
    assert taken is not None
    async with leading(nats, slurm) as leader:
        question = ConfirmJobs(node="n1", jobs=(7,))
        for submitted, running in (
            ((), (7,)),
            ((None,), (7,)),
            ((taken,), (7,)),
            ((taken - timedelta(seconds=1),), ()),
        ):
            answer = await leader.answers.confirm_jobs(replace(question, submitted=submitted))

            assert answer == JobsConfirmed(running=running)


async def test_the_bus_is_told_at_once_of_a_job_that_does_not_run_any_more(nats: NatsServer) -> None:
    slurm = Slurm()
    slurm.state = ("RUNNING",)
    async with leading(nats, slurm) as leader, anyio.create_task_group() as tasks:
        held = SlurmJobState(changed=now(), job=7, state="RUNNING", is_running=True, nodes="n1")
        await leader.told.record("7", held, revision=0)
        tasks.start_soon(leader.jobs.run)
        await until(lambda: leader.jobs.answered is not None, within_s=20)
        slurm.state = ("COMPLETED",)  # No list is due for an hour.

        await leader.answers.confirm_jobs(ConfirmJobs(node="n1", jobs=(7,)))

        await until(lambda: (told := leader.told.view.get("7")) is not None and told.is_over, within_s=20)
        tasks.cancel_scope.cancel()
