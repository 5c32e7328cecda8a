"""Questions to services, shared among callers, and names that are near."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_events.base import Reply, Request
from sunk_events.requests import ExplainJob, ExplainKubeNode, ExplainSlurmNode, Explanation, Finding, Refused
from sunk_events.view import Part
from sunk_runtime.errors import BusUnavailableError
from sunk_runtime.near import COMPARED_CHARS, COMPARED_MAX, NAME_CHARS, compared, near
from sunk_view.questions import Ask, Questions

pytestmark = pytest.mark.anyio
FOUND = Finding(what="drained")


class Service:
    """Answers once it may, and notes how many questions were under way at once."""

    def __init__(self) -> None:
        self.may_answer = anyio.Event()
        self.asked: list[Request] = []
        self.under_way = 0
        self.most = 0

    async def ask(self, _cluster: str, question: Request, _deadline: float) -> Reply:
        self.asked.append(question)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await self.may_answer.wait()
        self.under_way -= 1
        return Explanation(findings=(FOUND,))


async def ask_together(questions: Questions, *wanted: Request) -> list[Part]:
    found: list[Part] = []

    async def one(question: Request) -> None:
        found.append(await questions.part("c1", "service", question))

    async with anyio.create_task_group() as tasks:
        for question in wanted:
            tasks.start_soon(one, question)
    return found


async def test_callers_who_ask_the_same_get_one_answer() -> None:
    service = Service()
    service.may_answer.set()
    questions = Questions(service.ask, answer_s=60)

    found = await ask_together(questions, *[ExplainKubeNode(node="d1")] * 20)
    found.append(await questions.part("c1", "service", ExplainKubeNode(node="d1")))
    await questions.part("c2", "service", ExplainKubeNode(node="d1"))

    assert found == [Part(cluster="c1", service="service", findings=(FOUND,))] * 21
    assert len(service.asked) == 2


async def test_an_answer_is_not_kept_for_long() -> None:
    service = Service()
    service.may_answer.set()
    questions = Questions(service.ask, answer_s=60, keep_s=0.0)

    for _ in range(2):
        await questions.part("c1", "service", ExplainSlurmNode(node="d1"))

    assert len(service.asked) == 2


async def test_costly_questions_wait_for_each_other_and_say_so_in_the_end() -> None:
    service = Service()
    questions = Questions(service.ask, answer_s=0.2)
    found = Part(cluster="", service="")
    async with anyio.create_task_group() as tasks:
        for name in ("d1", "d2"):
            tasks.start_soon(questions.part, "c1", "nodeset-controller", ExplainKubeNode(node=name))
        await anyio.sleep(0.05)
        found = await questions.part("c1", "nodeset-controller", ExplainKubeNode(node="d3"))
        assert service.most == 2
        tasks.start_soon(questions.part, "c1", "syncer", ExplainJob(job=1))
        tasks.start_soon(questions.part, "c2", "nodeset-controller", ExplainKubeNode(node="d1"))
        await anyio.sleep(0.05)
        assert service.most == 4
        service.may_answer.set()

    assert (found.findings, len(service.asked)) == ((), 4)
    assert found.problem == "nodeset-controller answers other questions now: ask again in some seconds"
    assert (await questions.part("c1", "nodeset-controller", ExplainKubeNode(node="d3"))).findings == (FOUND,)


async def test_a_caller_that_goes_away_does_not_take_the_answer_of_the_others() -> None:
    service = Service()
    questions = Questions(service.ask, answer_s=60)
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as first:

            async def leave() -> None:
                await anyio.sleep(0.05)
                tasks.start_soon(wait)
                await anyio.sleep(0.05)
                first.cancel()
                service.may_answer.set()

            async def wait() -> None:
                assert (await questions.part("c1", "s", ExplainJob(job=1))).findings == (FOUND,)

            tasks.start_soon(leave)
            await questions.part("c1", "s", ExplainJob(job=1))


async def test_a_bus_that_is_away_is_the_problem_of_the_part() -> None:
    async def away(_cluster: str, _question: Request, _deadline: float) -> Reply:
        raise BusUnavailableError("the connection is down")

    async def unknown(_cluster: str, _question: Request, _deadline: float) -> Reply:
        return Refused(code="unknown_job", reason="no")

    async def problem(ask: Ask) -> str:
        return (await Questions(ask, answer_s=1).part("c1", "syncer", ExplainJob(job=1))).problem

    assert await problem(away) == "syncer cannot be asked now: the connection is down"
    assert await problem(unknown) == "unknown_job"


@given(st.text(alphabet="ab-", max_size=80), st.lists(st.text(alphabet="ab-", max_size=80), max_size=300))
def test_a_name_is_compared_with_few_that_are_not_long(name: str, known: list[str]) -> None:
    found = compared(name, known)

    assert len(found) <= COMPARED_MAX
    assert all(len(one) <= NAME_CHARS for one in found)
    assert not found or len(name) <= NAME_CHARS
    assert set(near(name, known)) <= set(found)


def test_near_names_are_found_among_many() -> None:
    many = [f"gpu-{number:04}" for number in range(5000)]

    assert near("trian", ["train", "web"]) == ("train",)
    assert near("gpu-00117", many)[0] in {"gpu-0011", "gpu-0017", "gpu-0117"}
    assert near("x" * 200, ["x" * 200]) == ()
    assert near("y" * COMPARED_CHARS + "1", ["y" * COMPARED_CHARS + "2"]) == ("y" * COMPARED_CHARS + "2",)
