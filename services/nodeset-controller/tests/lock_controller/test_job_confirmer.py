"""Which jobs run is asked of the syncer each time, and silence holds up one lock at most."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from sunk_events.base import Reply
from sunk_events.requests import ConfirmJobs, ConfirmNode, JobsConfirmed, Later, NodeConfirmed
from sunk_lab.nats import NatsServer
from sunk_nodeset_controller.lock_controller.job_confirmer import JobConfirmer
from sunk_runtime.clock import now
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.requests import answering

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncGenerator[Bus]:
    with NatsServer(tmp_path / "nats") as server:
        async with connect(BusSettings(url=server.url), "test") as bus:
            yield bus


async def test_each_lock_has_an_answer_of_its_own(bus: Bus) -> None:
    running, confirm = {5}, JobConfirmer(bus, "lab")

    async def answer(question: ConfirmJobs) -> Reply:
        return JobsConfirmed(running=tuple(running.intersection(question.jobs)))

    async with answering(bus, "lab", ConfirmJobs, answer):
        first = await confirm("n1", {5: None, 6: None})
        running.clear()
        second = await confirm("n1", {5: None, 6: None})

    assert (first, second) == ({5}, frozenset())


async def test_whose_number_may_be_anothers_is_asked_for_with_the_moment_of_its_submission(bus: Bus) -> None:
    asked, taken, confirm = list[ConfirmJobs](), now(), JobConfirmer(bus, "lab")

    async def answer(question: ConfirmJobs) -> Reply:
        asked.append(question)
        return JobsConfirmed()

    async with answering(bus, "lab", ConfirmJobs, answer):
        await confirm("n1", {6: taken, 5: None})

    assert asked == [ConfirmJobs(node="n1", jobs=(5, 6), submitted=(None, taken))]


async def test_no_answer_and_one_that_says_later_are_not_known(bus: Bus) -> None:
    confirm = JobConfirmer(bus, "lab")

    async def later(_: ConfirmJobs) -> Reply:
        return Later(reason="Slurm does not answer")

    nobody = await confirm("n1", {5: None})
    async with answering(bus, "lab", ConfirmJobs, later):
        assert await confirm("n1", {5: None}) is None

    assert nobody is None


async def test_a_syncer_of_an_earlier_version_is_believed_as_the_bus_has_its_word(bus: Bus) -> None:
    """The nodeset-controller is upgraded first; so old a syncer answers for nodes only."""
    confirm = JobConfirmer(bus, "lab")

    async def node(question: ConfirmNode) -> Reply:
        return NodeConfirmed(node=question.node, is_known=True, is_drained_and_idle=False)

    async with answering(bus, "lab", ConfirmNode, node):
        earlier = await confirm("n1", {5: None})

    assert earlier == {5}


async def test_a_syncer_that_begins_to_lead_between_two_questions_is_none_of_an_earlier_version(
    bus: Bus,
) -> None:
    confirm, leads, asked = JobConfirmer(bus, "lab"), anyio.Event(), anyio.Event()

    async def jobs(_: ConfirmJobs) -> Reply:
        return JobsConfirmed(running=())

    async def node(question: ConfirmNode) -> Reply:
        asked.set()
        await leads.wait()
        return NodeConfirmed(node=question.node, is_known=True, is_drained_and_idle=False)

    async def lead() -> None:
        await asked.wait()
        async with answering(bus, "lab", ConfirmJobs, jobs):
            leads.set()
            await anyio.sleep_forever()

    async with answering(bus, "lab", ConfirmNode, node), anyio.create_task_group() as tasks:
        tasks.start_soon(lead)
        found = await confirm("n1", {5: None})
        tasks.cancel_scope.cancel()
        assert found == frozenset()


async def test_while_one_question_that_follows_a_silence_is_under_way_the_others_do_not_wait(
    bus: Bus,
) -> None:
    confirm, come, go = JobConfirmer(bus, "lab"), anyio.Event(), anyio.Event()
    found: list[frozenset[int] | None] = []

    async def late(question: ConfirmJobs) -> Reply:
        come.set()
        await go.wait()
        return JobsConfirmed(running=question.jobs)

    async def first() -> None:
        found.append(await confirm("n1", {5: None}))

    assert await confirm("n1", {5: None}) is None
    async with answering(bus, "lab", ConfirmJobs, late), anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await come.wait()
        found.append(await confirm("n2", {6: None}))
        go.set()

    assert found == [None, {5}]
