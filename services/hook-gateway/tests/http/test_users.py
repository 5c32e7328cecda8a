"""Users of Slurm ask why their own jobs wait; who would answer on the bus is stood in for."""

import contextlib
from collections.abc import Callable, Generator
from datetime import UTC, datetime

import anyio
import httpx
import pytest

from sunk_events.requests import ExplainJobToOwner, Explanation, Finding, Later, Noted, NudgeNode, Refused
from sunk_hook_gateway.testing.checker import Checker, running_checker
from sunk_hook_gateway.testing.hooks import bearer, call, register, standing_in
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until
from sunk_slurm.tokens import KeyTokens

pytestmark = pytest.mark.anyio
SINCE = datetime(2026, 1, 1, 14, tzinfo=UTC)
WHY = Finding(what="its prologs run", since=SINCE, because="3 Pods have to leave node gpu-1")


def token(checker: Checker, user: str) -> str:
    return KeyTokens(checker.key_file, user=user).current()


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Generator[Checker]:
    folder = tmp_path_factory.mktemp("checker")
    (folder / "jwt.key").write_bytes(b"k" * 32)
    with running_checker(folder, folder / "jwt.key") as checker:
        yield checker


@pytest.fixture(scope="module")
def url(start_gateway: Callable[..., tuple[object, str]], checker: Checker) -> str:
    return start_gateway(USER_TOKENS_SOCKET=str(checker.socket))[1]


async def ask(url: str, token: str, job: str = "7") -> httpx.Response:
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:
        return await http.get(f"/v1/jobs/{job}/explanation", headers=bearer(token))


async def test_a_user_learns_why_a_job_waits_by_slurms_own_token(
    bus: Bus, url: str, checker: Checker
) -> None:
    answers, answering = standing_in(bus, ExplainJobToOwner, Explanation(findings=(WHY,)))

    async with answering:
        answer = await ask(url, token(checker, "ada"))

    assert answer.status_code == 200
    assert answer.json() == {
        "findings": [
            {
                "what": "its prologs run",
                "since": "2026-01-01T14:00:00Z",
                "because": "3 Pods have to leave node gpu-1",
                "would_change": "",
            }
        ]
    }
    assert answers.requests == [ExplainJobToOwner(job=7, user="ada")]


async def test_a_job_of_another_user_is_no_job(bus: Bus, url: str, checker: Checker) -> None:
    refused = Refused(code="unknown_job", reason="Slurm has no job 7 of eve, or no longer")
    _, answering = standing_in(bus, ExplainJobToOwner, refused)

    async with answering:
        answer = await ask(url, token(checker, "eve"))

    assert (answer.status_code, answer.json()) == (404, {"error": "Slurm has no job 7 of eve, or no longer"})


async def test_no_other_token_and_no_other_number_gets_as_far_as_the_bus(
    bus: Bus, url: str, checker: Checker, issuer: Issuer
) -> None:
    await register(bus, "d1")
    answers, answering = standing_in(bus, ExplainJobToOwner, Explanation())
    tokens = ("?", "x", "x" * 5000, "a b", issuer.token("d1"), token(checker, "ada")[:-5] + "AAAAA")

    async with answering:
        statuses = [(await ask(url, token)).status_code for token in tokens]
        numbers = [(await ask(url, token(checker, "max"), job)).status_code for job in ("0", "-1", "1e3")]

    assert statuses == [401] * len(tokens)
    assert numbers == [400] * 3
    assert not answers.requests


async def test_a_user_who_asks_too_often_is_told_to_wait_and_others_are_answered(
    bus: Bus, url: str, checker: Checker
) -> None:
    _, answering = standing_in(bus, ExplainJobToOwner, Explanation())
    headers, found = bearer(token(checker, "bob")), list[httpx.Response]()

    async with answering, httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:

        async def is_refused() -> bool:  # However slowly this machine asks, the first ones are answered.
            found.append(await http.get("/v1/jobs/7/explanation", headers=headers))
            return found[-1].status_code != 200

        await until(is_refused)
        other = await ask(url, token(checker, "carol"))

    assert {one.status_code for one in found[:-1]} == {200}
    assert found[-1].status_code == 503
    assert found[-1].json()["error"].startswith("too many questions: ask again in ")
    assert other.status_code == 200


async def test_what_the_syncer_cannot_say_now_is_to_be_asked_again(
    bus: Bus, url: str, checker: Checker
) -> None:
    _, answering = standing_in(bus, ExplainJobToOwner, Later(reason="views are not read yet"))
    mine = token(checker, "dora")

    async with answering:
        later = await ask(url, mine)
    away = await ask(url, mine)

    assert (later.status_code, later.json()["error"]) == (503, "views are not read yet")
    assert (away.status_code, away.json()["error"]) == (
        503,
        "the syncer does not answer: no replica leads, or it is busy",
    )


async def test_a_rotated_key_counts_at_once_and_the_old_one_no_more(
    bus: Bus, url: str, checker: Checker
) -> None:
    _, answering = standing_in(bus, ExplainJobToOwner, Explanation())
    before = token(checker, "erin")
    checker.key_file.write_bytes(b"n" * 32)

    async with answering:
        old, new = await ask(url, before), await ask(url, token(checker, "erin"))

    assert (old.status_code, new.status_code) == (401, 200)


async def test_without_a_key_nothing_is_decided(url: str, checker: Checker) -> None:
    mine, key = token(checker, "gina"), checker.key_file.read_bytes()
    said: list[str] = []

    for content in (b"", None):
        if content is None:
            checker.key_file.unlink()
        else:
            checker.key_file.write_bytes(content)
        answer = await ask(url, mine)
        assert answer.status_code == 503
        said.append(answer.json()["error"])
    checker.key_file.write_bytes(key)

    assert said == ["Slurm's key is empty", "Slurm's key cannot be read: No such file or directory"]


async def test_one_that_hangs_up_or_says_too_much_does_not_end_the_checker(
    bus: Bus, url: str, checker: Checker
) -> None:
    for said in (b"", b"x" * 10_000, b"\xff\n", b"\n"):
        async with await anyio.connect_unix(checker.socket) as stream:
            with contextlib.suppress(anyio.BrokenResourceError):  # It reads no more than a token's length.
                await stream.send(said)
    _, answering = standing_in(bus, ExplainJobToOwner, Explanation())

    async with answering:
        assert (await ask(url, token(checker, "hugo"))).status_code == 200


async def test_while_the_checker_is_away_nothing_is_decided_and_nodes_are_answered(
    bus: Bus, url: str, checker: Checker, issuer: Issuer
) -> None:
    _, answering = standing_in(bus, ExplainJobToOwner, Explanation())
    _, nudged = standing_in(bus, NudgeNode, Noted())
    await register(bus, "d2")
    mine = token(checker, "finn")
    checker.kill()

    async with answering, nudged, httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:
        away = await ask(url, mine)
        assert await call(http, "/v1/nudges", issuer.token("d2"), {"node": "d2"}) == {}
        checker.start()  # On the socket that the killed one left.
        back = await ask(url, mine)

    assert (away.status_code, away.json()["error"]) == (
        503,
        "the process that checks users' tokens does not answer",
    )
    assert back.status_code == 200


async def test_a_gateway_without_a_checker_names_the_value_to_set(
    gateway: tuple[object, str], checker: Checker
) -> None:
    answer = await ask(gateway[1], token(checker, "ada"))

    assert answer.status_code == 403
    assert "login.explain.enabled" in answer.json()["error"]
