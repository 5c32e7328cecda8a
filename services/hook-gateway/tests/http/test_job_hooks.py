"""Calls of placeholder scripts; who would answer on the bus is stood in for."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
import httpx
import pytest

from sunk_events.requests import (
    Later,
    Noted,
    NudgeJob,
    NudgeNode,
    PlacementAnnounced,
    PlacementReleased,
    PlacementSilent,
    ReleasePlacement,
)
from sunk_hook_gateway.http.places import MAX_CALLS_PER_JOB
from sunk_hook_gateway.testing.hooks import (
    NOW,
    Gateway,
    HttpAnswer,
    bearer,
    call,
    forget,
    is_held,
    place,
    poll,
    register,
    standing_in,
    token_of,
)
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def gateway(start_gateway: Callable[..., Gateway]) -> Gateway:
    """One whose calls end by what happens, and not by themselves."""
    return start_gateway(POLL_S="600", RELEASE_WAIT_S="600")


@pytest.fixture
async def brief(start_gateway: Callable[..., Gateway]) -> AsyncGenerator[httpx.AsyncClient]:
    """One that holds no poll for long."""
    _, url = start_gateway(POLL_S="1")
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as client:
        yield client


async def test_a_placeholder_announces_itself_with_its_own_token(bus: Bus, http: httpx.AsyncClient) -> None:
    await place(bus, 41, "released", token=token_of(41))
    answers, answering_starts = standing_in(
        bus, PlacementAnnounced, Later(reason="", retry_after_s=0.01), Noted()
    )

    async with answering_starts:
        await call(http, "/v1/jobs/41/started", token_of(42), {"node": "d1"}, expect=403)
        assert not answers.requests
        assert await call(http, "/v1/jobs/41/started", token_of(41), {"node": "d1"}) == {}

    assert answers.requests[-1] == PlacementAnnounced(job=41, node="d1", token=token_of(41))


async def test_a_job_that_is_no_placeholder_cannot_announce_itself(http: httpx.AsyncClient) -> None:
    await call(http, "/v1/jobs/999/started", "t", {"node": "d1"}, expect=404)


async def test_a_placeholders_release_is_answered_when_its_pod_is_gone(
    bus: Bus, http: httpx.AsyncClient
) -> None:
    await place(bus, 42, token=token_of(42))
    replies = (PlacementReleased(is_pod_gone=False, pod="ns/p42"), PlacementReleased(is_pod_gone=True))
    answers, answering_releases = standing_in(bus, ReleasePlacement, *replies)
    told: list[object] = []

    async def script() -> None:
        while True:  # As the script does.
            answer = await http.post("/v1/jobs/42/release", headers=bearer(token_of(42)))
            if answer.status_code != 202:
                told.append(answer.json())
                return

    async with answering_releases, anyio.create_task_group() as tasks:
        tasks.start_soon(script)
        await until(lambda: bool(answers.requests))
        await place(bus, 42, "ending", token=token_of(42), is_pod_present=False)  # Wakes the call at once.

    assert told == [{"gone": True}]
    assert answers.requests == [ReleasePlacement(job=42, token=token_of(42))] * 2


async def test_a_release_without_the_token_deletes_no_pod(bus: Bus, http: httpx.AsyncClient) -> None:
    await place(bus, 43, token=token_of(43))
    answers, answering_releases = standing_in(bus, ReleasePlacement, PlacementReleased(is_pod_gone=True))

    async with answering_releases:
        await call(http, "/v1/jobs/43/release", token_of(44), expect=403)
        assert (await http.post("/v1/jobs/43/release")).status_code == 401

    assert not answers.requests


async def test_a_placeholders_token_holds_few_calls(bus: Bus, http: httpx.AsyncClient) -> None:
    """Its user has it. Calls that are held keep their connections: an address has 1,024, its prologs' too."""
    await place(bus, 59, token=token_of(59))
    told: list[int] = []

    async def one() -> None:
        told.append((await poll(http, 59, token_of(59))).status_code)

    async with anyio.create_task_group() as polls:
        for _ in range(MAX_CALLS_PER_JOB + 3):
            polls.start_soon(one)
        await until(lambda: len(told) >= 3)
        await place(bus, 59, "ended", token=token_of(59), is_pod_present=False, exit_code=0)

    assert sorted(told) == [200] * MAX_CALLS_PER_JOB + [503] * 3


async def test_a_poll_ends_with_no_answer_after_a_while_in_which_the_pod_lives(
    bus: Bus, brief: httpx.AsyncClient
) -> None:
    await place(bus, 50, token=token_of(50))

    assert (await poll(brief, 50, token_of(50))).status_code == 204


async def test_a_poll_is_held_while_the_pod_lives_and_answered_with_its_exit_code(
    bus: Bus, http: httpx.AsyncClient
) -> None:
    await place(bus, 51, token=token_of(51))
    answers: list[HttpAnswer] = []

    async def script() -> None:
        answers.append(await poll(http, 51, token_of(51)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(script)
        await until(lambda: is_held(http, "job_outcome"))
        await place(bus, 51, "ended", token=token_of(51), is_pod_present=False, exit_code=3)

    assert answers[0].json() == {"exit_code": 3}


async def test_a_placement_that_is_lost_ends_no_script_and_one_that_is_stored_anew_does(
    bus: Bus, brief: httpx.AsyncClient
) -> None:
    await place(bus, 52, token=token_of(52))
    answers: list[HttpAnswer] = []

    async def script() -> None:
        answers.append(await poll(brief, 52, token_of(52)))
        while answers[-1].status_code == 204:
            answers.append(await poll(brief, 52, token_of(52)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(script)
        await until(lambda: is_held(brief, "job_outcome"))
        await forget(bus, 52)
    *held, last = (answer.status_code for answer in answers)
    assert set(held) == {204}
    assert last == 404  # The script asks again.
    await place(bus, 52, token=token_of(52))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(script)
        await until(lambda: is_held(brief, "job_outcome"))
        await place(bus, 52, "ended", token=token_of(52), is_pod_present=False, exit_code=3)

    assert answers[-1].json() == {"exit_code": 3}


async def test_a_poll_that_is_cut_has_the_job_looked_at(bus: Bus, gateway: Gateway) -> None:
    await place(bus, 53, token=token_of(53))
    answers, answering_nudges = standing_in(bus, NudgeJob, Noted())

    async with (
        answering_nudges,
        httpx.AsyncClient(base_url=gateway[1], trust_env=False, timeout=120) as http,
    ):

        async def script() -> None:
            while True:
                await poll(http, 53, token_of(53))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(script)
            await until(lambda: is_held(http, "job_outcome"))
            tasks.cancel_scope.cancel()
        await until(lambda: NudgeJob(job=53) in answers.requests)


async def test_a_poll_that_is_cut_makes_its_script_silent_until_another_poll_speaks_for_it(
    bus: Bus, gateway: Gateway
) -> None:
    await place(bus, 54, token=token_of(54))
    cuts, answering_cuts = standing_in(bus, PlacementSilent, Noted())
    voices, answering_voices = standing_in(bus, PlacementAnnounced, Later(reason=""), Noted())

    async with (
        answering_cuts,
        answering_voices,
        httpx.AsyncClient(base_url=gateway[1], trust_env=False, timeout=120) as http,
        anyio.create_task_group() as tasks,
    ):

        async def script() -> None:
            while True:
                await poll(http, 54, token_of(54))

        with anyio.CancelScope() as first:
            tasks.start_soon(cut_when, first, lambda: is_held(http, "job_outcome"))
            await script()
        await until(lambda: PlacementSilent(job=54) in cuts.requests)
        await place(bus, 54, token=token_of(54), node="d1", silent=NOW)
        tasks.start_soon(script)
        await until(lambda: len(voices.requests) >= 2)
        tasks.cancel_scope.cancel()

    assert voices.requests[-1] == PlacementAnnounced(job=54, node="d1", token=token_of(54))


async def cut_when(scope: anyio.CancelScope, is_time: Callable[[], Awaitable[bool]]) -> None:
    await until(is_time)
    scope.cancel()


async def test_a_nudge_is_passed_on_for_the_callers_own_node_only(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    answers, answering_nudges = standing_in(bus, NudgeNode, Noted())
    await register(bus, "e1")

    async with answering_nudges:
        assert await call(http, "/v1/nudges", issuer.token("e1"), {"node": "e1"}) == {}
        await call(http, "/v1/nudges", issuer.token("e1"), {"node": "e2"}, expect=403)

    assert answers.requests == [NudgeNode(node="e1")]
