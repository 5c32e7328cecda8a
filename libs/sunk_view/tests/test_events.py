"""What a question about events has looked at, and how many there are at once."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

import anyio
import pytest
from starlette.requests import Request

from sunk_events.placements import PlacementState
from sunk_events.view import ROOT, Events
from sunk_runtime.clock import now
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import Bus
from sunk_view.access import Access, Right
from sunk_view.answers import Answer
from sunk_view.callers import Caller
from sunk_view.event_rows import Position, Wanted
from sunk_view.events import KEYS_MAX, EventAnswers
from sunk_view.facts import Facts, Page, TooManyError
from sunk_view.states import ClusterStates

pytestmark = pytest.mark.anyio
POD = f"{ROOT}/namespaces/{{namespace}}/pods/{{name}}/events"
ALICE, BOB = Caller(user="alice"), Caller(user="bob")


def uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


class Granted:
    """Grants each right."""

    async def require(self, _caller: Caller, _right: Right) -> None:
        return None

    async def may(self, _caller: Caller, _right: Right) -> bool:
        return True


class Placements:
    """A cluster with these placements of one Pod."""

    cluster = "c1"

    def __init__(self, *uids: str) -> None:
        self.placements = self
        self.uids: Iterable[str] = uids

    def require(self, *_views: object) -> None:
        return None

    def values(self) -> list[PlacementState]:
        return [
            PlacementState(changed=now(), uid=one, namespace="team-a", pod="train", phase="bound")
            for one in self.uids
        ]


class Noted(Facts):
    """Notes what it is asked for, and answers once it may."""

    def __init__(self, *, at_once: int = 4) -> None:
        super().__init__(cast("Bus", None), at_once=at_once)
        self.asked: list[Wanted] = []
        self.may_answer = anyio.Event()
        self.may_answer.set()

    async def newest(self, cluster: str, wanted: Wanted, count: int, since: datetime | None) -> Page:
        assert (cluster, count > 0, since) == ("c1", True, None)
        self.asked.append(wanted)
        await self.may_answer.wait()
        return Page(at=Position(created=1, sequence=5))


async def ask(facts: Facts, states: Placements, key: str = "", caller: Caller = ALICE) -> Answer:
    access, clusters = cast("Access", Granted()), [cast("ClusterStates", states)]
    scope: dict[str, Any] = {
        "type": "http",
        "query_string": f"key={key}".encode(),
        "path_params": {"namespace": "team-a", "name": "train"},
    }
    return await EventAnswers(access, facts, clusters).routes()[POD](Request(scope), caller)


@pytest.mark.parametrize("key", ["gpu-000-001", "123", f"{uid(1)},node-1", f"A{uid(1)[1:]}", f"x{uid(1)}"])
async def test_a_question_about_a_pod_has_nothing_looked_at_that_is_no_uid_of_a_pod(key: str) -> None:
    facts = Noted()
    found = await ask(facts, Placements(uid(2)), key)

    assert (found.status, found.body["message"]) == (400, "key: is not from an earlier answer about a Pod")
    assert facts.asked == []


async def test_a_question_about_a_pod_reads_facts_about_pods_only() -> None:
    facts = Noted()
    await ask(facts, Placements(uid(2)), uid(1))

    assert facts.asked[0].filters("c1") == (
        f"sunk.ev.c1.placement.pod.{uid(2)}.*",
        f"sunk.ev.c1.placement.pod.{uid(1)}.*",
    )


async def test_a_name_that_is_used_again_and_again_is_followed_to_its_newest_pod() -> None:
    facts, states, key = Noted(), Placements(), ""
    for number in range(2 * KEYS_MAX):
        states.uids = (uid(number),)
        body = (await ask(facts, states, key)).body
        assert isinstance(body, Events)
        key = body.key

    assert facts.asked[-1].entities == tuple(
        uid(number) for number in range(2 * KEYS_MAX - 1, KEYS_MAX - 1, -1)
    )


async def test_a_user_has_one_question_about_events_at_a_time_and_keeps_no_other_from_asking() -> None:
    facts, states = Noted(), Placements(uid(1))
    facts.may_answer = anyio.Event()
    answers: list[Answer] = []

    async def question(caller: Caller) -> None:
        answers.append(await ask(facts, states, caller=caller))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(question, ALICE)
        await anyio.wait_all_tasks_blocked()
        await question(ALICE)
        tasks.start_soon(question, BOB)
        await anyio.wait_all_tasks_blocked()
        facts.may_answer.set()

    second, *others = answers
    assert (second.status, second.headers) == (429, {"Retry-After": "1"})
    assert (
        second.body["message"] == "user alice has another question about events under way: ask one at a time"
    )
    assert [answer.status for answer in others] == [200, 200]
    assert (await ask(facts, states)).status == 200


async def test_service_accounts_of_one_namespace_have_one_question_about_events_at_a_time() -> None:
    facts = Noted()
    first, second, other = (
        Caller(user=f"system:serviceaccount:{name}") for name in ("team-a:x1", "team-a:x2", "team-b:x1")
    )
    with facts.question(first.share):
        refused = await ask(facts, Placements(uid(1)), caller=second)
        answered = await ask(facts, Placements(uid(1)), caller=other)

    assert (refused.status, answered.status) == (429, 200)
    assert (
        refused.body["message"]
        == "namespace team-a has another question about events under way: ask one at a time"
    )


async def test_a_question_that_finds_no_place_is_refused_at_once() -> None:
    facts = Noted(at_once=1)
    with facts.question(ALICE.share):
        with pytest.raises(TransientError, match="too many questions about events") as refused:
            await ask(facts, Placements(uid(1)), caller=BOB)
        with pytest.raises(TooManyError), facts.question(ALICE.share):
            pass

    assert refused.value.retry_after_s == 1
    assert (await ask(facts, Placements(uid(1)), caller=BOB)).status == 200
