"""Servers that fail: what hangs costs little, the next one is asked, and whoever waits is woken."""

import math
import time
from contextlib import aclosing, suppress
from typing import Any

import anyio
import httpx
import pytest

from sunk_runtime.errors import ConfigError
from sunk_runtime.testing import WITHIN_S, until
from sunk_slurm.circuit import FAILURES, PROBE_LAST_S, Circuit
from sunk_slurm.client import SlurmClient
from sunk_slurm.errors import SlurmUnavailableError, TooLateError
from sunk_slurm.server import MAX_CONNECTIONS, MAX_WAITING
from sunk_slurm.submission import JobDescription

pytestmark = pytest.mark.anyio

TRIVIAL = JobDescription(script="#!/bin/sh", environment=("A=1",), current_working_directory="/")
VERSIONS: dict[str, Any] = {"paths": {"/slurm/v0.0.44/nodes/": {}}}  # Any: JSON.
WELL: dict[str, Any] = {"job_id": 7, "nodes": [{"name": "n1"}]}


class OneToken:
    def current(self) -> str:
        return "token"

    def renew(self) -> None:
        """It is the only one."""


class Servers(httpx.AsyncBaseTransport):
    """Several slurmrestd by host name, each well, hanging, refusing connections or cutting them."""

    def __init__(self, **moods: str) -> None:
        self.moods = moods
        self.asked: list[str] = []
        self.under_way = 0
        self.most_under_way = 0
        self.let = anyio.Event()
        """Set to let lists go on."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host, path = request.url.host, request.url.path
        self.asked.append(f"{request.method} {host}{path}")
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        try:
            match self.moods[host]:
                case "hangs":
                    await anyio.sleep_forever()
                case "refuses":
                    raise httpx.ConnectError("refused", request=request)
                case "cuts":
                    raise httpx.ReadError("cut off", request=request)
                case "hangs over its versions" if path == "/openapi/v3":
                    await anyio.sleep_forever()
                case "is slow to say its versions" if path == "/openapi/v3":
                    await anyio.sleep(0.3)
                    return httpx.Response(200, json=VERSIONS)
                case "hangs over lists" if path.endswith("/nodes/"):
                    await self.let.wait()
                    return httpx.Response(200, json=WELL)
                case "is cut off from slurmctld" if path != "/openapi/v3":
                    return httpx.Response(500, json={"errors": [{"error_number": 1800}]})
                case _:
                    answer = VERSIONS if path == "/openapi/v3" else WELL
                    return httpx.Response(200, json=answer)
        finally:
            self.under_way -= 1
        raise AssertionError("unreachable")

    def count(self, text: str) -> int:
        return sum(text in asked for asked in self.asked)


def client(servers: Servers, *, timeout_s: float = 60.0) -> SlurmClient:
    url = ", ".join(f"http://{host}" for host in servers.moods)
    return SlurmClient(url, OneToken(), timeout_s=timeout_s, transport=servers)


def test_a_circuit_opens_after_failures_in_a_row_and_probes_ever_later() -> None:
    circuit = Circuit()
    opened = [(circuit := circuit.failed()).is_open for _ in range(FAILURES + 2)]
    rests = [circuit.rest_s, *((circuit := circuit.probed()).rest_s for _ in range(20))]

    assert opened == [False] * (FAILURES - 1) + [True] * 3
    assert rests == sorted(rests)
    assert rests[-1] == PROBE_LAST_S


async def test_one_that_hangs_is_asked_a_few_times_and_then_nobody_waits_for_it() -> None:
    servers = Servers(a="hangs")
    failed: list[SlurmUnavailableError] = []
    before: list[int] = []
    async with client(servers, timeout_s=0.05) as slurm, anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(SlurmUnavailableError) as raised:
                await slurm.node("n1")
            failed.append(raised.value)

        for _ in range(MAX_WAITING * 3):
            tasks.start_soon(ask)
        await until(lambda: len(failed) == MAX_WAITING * 3)
        before.append(len(servers.asked))
        with pytest.raises(
            SlurmUnavailableError, match="a:80 gets no calls now: look at node n1: no answer within"
        ):
            await slurm.node("n1")

    assert servers.most_under_way <= MAX_CONNECTIONS + 1
    assert before[0] < MAX_CONNECTIONS * 3
    assert any("calls wait for" in str(error) for error in failed)


async def test_a_write_whose_turn_comes_too_late_is_not_sent() -> None:
    servers = Servers(a="hangs over lists")
    async with client(servers) as slurm, anyio.create_task_group() as tasks:
        await slurm.node("n1")
        for _ in range(MAX_CONNECTIONS):
            tasks.start_soon(slurm.nodes)
        await until(lambda: servers.under_way == MAX_CONNECTIONS)

        async def undrain() -> None:
            with pytest.raises(TooLateError):
                await slurm.sending_until(time.monotonic() + 0.05).undrain("n1")
            late.set()

        late = anyio.Event()
        tasks.start_soon(undrain)
        await anyio.sleep(0.2)
        assert not late.is_set()
        servers.let.set()
        await late.wait()
        assert servers.count("POST") == 0
        await slurm.sending_until(math.inf).undrain("n1")

    assert servers.count("POST") == 1


async def test_an_outage_is_told_by_what_began_it_however_many_calls_it_meets() -> None:
    servers = Servers(a="hangs")
    texts: list[str] = []
    async with client(servers, timeout_s=0.05) as slurm:
        for _ in range(FAILURES + 200):
            with pytest.raises(SlurmUnavailableError) as caught:
                await slurm.node("n1")
            texts.append(str(caught.value))

    assert "no answer within" in texts[-1]
    assert max(map(len, texts)) < 200


async def test_a_circuit_is_closed_by_a_probe_and_whoever_waits_is_woken() -> None:
    servers = Servers(a="refuses")
    woken = anyio.Event()
    async with client(servers) as slurm, anyio.create_task_group() as tasks:

        async def wait() -> None:
            async for _ in slurm.recoveries():
                woken.set()
                return

        tasks.start_soon(wait)
        for _ in range(FAILURES):
            with pytest.raises(SlurmUnavailableError):
                await slurm.node("n1")
        servers.moods["a"] = "well"
        with anyio.fail_after(WITHIN_S):
            await woken.wait()

        assert await slurm.node("n1") is not None
    assert servers.count("diag") == 1


async def test_a_probe_asks_in_the_version_that_was_in_use_and_does_not_wait_for_the_list_of_all() -> None:
    servers = Servers(a="well")
    async with client(servers) as slurm:
        await slurm.node("n1")
        await outage(servers, slurm, then="hangs over its versions")

        assert await slurm.node("n1") is not None


async def outage(servers: Servers, slurm: SlurmClient, then: str = "well") -> None:
    """Have the only server fail, and answer again."""
    async with aclosing(slurm.recoveries()) as recoveries:
        servers.moods["a"] = "cuts"
        for _ in range(FAILURES):
            with pytest.raises(SlurmUnavailableError):
                await slurm.node("n1")
        servers.moods["a"] = then
        with anyio.fail_after(WITHIN_S):
            await anext(recoveries)


async def test_one_that_answers_again_is_not_asked_for_its_versions_at_once() -> None:
    servers = Servers(a="well")
    async with client(servers) as slurm:
        await slurm.node("n1")
        for _ in range(3):
            await outage(servers, slurm)
        await slurm.node("n1")
    assert servers.count("openapi") == 1


async def test_however_many_outages_there_are_the_versions_are_asked_for_once_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sunk_slurm.rest.SETTLED_S", 0.01)
    servers = Servers(a="well")
    async with client(servers) as slurm:
        await slurm.node("n1")
        await outage(servers, slurm)
        await until(lambda: servers.count("openapi") == 2)
        for _ in range(3):
            await outage(servers, slurm)
            await anyio.sleep(0.05)
    assert servers.count("openapi") == 2


async def test_a_server_is_asked_for_its_versions_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("NEWER_S", "SETTLED_S"):
        monkeypatch.setattr(f"sunk_slurm.rest.{pause}", 0.01)
    servers = Servers(a="well")
    async with client(servers) as slurm:
        await until(lambda: servers.count("openapi") >= 3)
        assert await slurm.node("n1") is not None


async def test_callers_without_patience_have_the_versions_written_once_and_end_up_with_one() -> None:
    servers = Servers(a="is slow to say its versions")
    async with client(servers) as slurm:
        answered: list[object] = []

        async def ask() -> None:
            while not answered:
                with anyio.move_on_after(0.02), suppress(SlurmUnavailableError):
                    answered.append(await slurm.node("n1"))

        with anyio.fail_after(WITHIN_S):
            async with anyio.create_task_group() as tasks:
                for _ in range(MAX_CONNECTIONS * 2):
                    tasks.start_soon(ask)

    assert servers.count("openapi") == 1


async def test_versions_that_are_not_told_are_one_failure_however_many_calls_wait_for_them() -> None:
    servers = Servers(a="cuts")
    failed: list[SlurmUnavailableError] = []
    async with client(servers) as slurm, anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(SlurmUnavailableError, match="ask slurmrestd for its API versions") as raised:
                await slurm.node("n1")
            failed.append(raised.value)

        for _ in range(MAX_CONNECTIONS):
            tasks.start_soon(ask)
        await until(lambda: len(failed) == MAX_CONNECTIONS)
        servers.moods["a"] = "well"

        assert await slurm.node("n1") is not None  # Its circuit is closed.
    assert not any(error.is_sent for error in failed)
    assert servers.count("openapi") == 1 + 1


async def test_a_call_that_was_not_answered_does_not_have_the_versions_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sunk_slurm.reads.LIST_TIMEOUT_S", 0.05)
    servers = Servers(a="well")
    async with client(servers) as slurm:
        await slurm.node("n1")
        servers.moods["a"] = "hangs"
        with pytest.raises(SlurmUnavailableError, match="no answer within"):
            await slurm.nodes()
        servers.moods["a"] = "well"
        await slurm.node("n1")

    assert servers.count("openapi") == 1


async def test_calls_whose_turn_did_not_come_are_no_failures_of_the_server() -> None:
    servers = Servers(a="well")
    async with client(servers, timeout_s=0.05) as slurm, anyio.create_task_group() as tasks:
        await slurm.nodes()  # A list has more time.
        servers.moods["a"] = "hangs over lists"
        for _ in range(MAX_CONNECTIONS):
            tasks.start_soon(slurm.nodes)
        await until(lambda: servers.under_way == MAX_CONNECTIONS)
        for _ in range(FAILURES):
            with pytest.raises(SlurmUnavailableError, match="no turn within"):
                await slurm.node("n1")
        tasks.cancel_scope.cancel()


async def test_the_next_server_is_asked_where_one_fails_and_the_first_again_when_it_is_well() -> None:
    servers = Servers(a="hangs", b="well")
    async with client(servers, timeout_s=5) as slurm:
        found: list[object] = []

        async def ask() -> None:
            found.append(await slurm.node("n1"))

        async with anyio.create_task_group() as tasks:
            for _ in range(FAILURES):
                tasks.start_soon(ask)
        assert None not in found
        before = servers.count("a/")
        await slurm.node("n1")
        was_left_alone = servers.count("GET a/slurm") + servers.count("a/openapi") == before
        servers.moods["a"] = "well"
        await until(lambda: servers.count("a/slurm/v0.0.44/diag") > 0)
        await until(lambda: slurm.version == "v0.0.44")
        await slurm.node("n1")

    assert was_left_alone
    assert servers.asked[-1] == "GET a/slurm/v0.0.44/node/n1"


async def test_the_next_server_is_asked_where_one_cannot_reach_slurmctld() -> None:
    servers = Servers(a="is cut off from slurmctld", b="well")
    async with client(servers) as slurm:
        assert await slurm.node("n1") is not None
        with pytest.raises(SlurmUnavailableError) as raised:
            await slurm.submit_job(TRIVIAL)

    assert raised.value.number == 1800
    assert servers.count("b/slurm/v0.0.44/job/submit") == 0


@pytest.mark.parametrize(
    ("mood", "is_submitted"),
    [
        pytest.param("refuses", True, id="nothing was sent: another may be asked"),
        pytest.param("cuts", False, id="it may have been submitted: nobody else is asked"),
    ],
)
async def test_what_may_not_be_done_twice_is_sent_twice_only_if_the_first_never_left(
    mood: str, *, is_submitted: bool
) -> None:
    servers = Servers(a="well", b="well")
    async with client(servers) as slurm:
        await slurm.node("n1")  # The version is known: the submission itself fails.
        servers.moods["a"] = mood
        if is_submitted:
            assert await slurm.submit_job(TRIVIAL) == 7
        else:
            with pytest.raises(SlurmUnavailableError) as raised:
                await slurm.submit_job(TRIVIAL)
            assert raised.value.is_sent

    assert servers.count("b/slurm/v0.0.44/job/submit") == is_submitted


async def test_a_caller_that_loses_patience_with_one_that_hangs_is_counted_too() -> None:
    servers = Servers(a="well")
    async with client(servers, timeout_s=60) as slurm, anyio.create_task_group() as tasks:
        await slurm.node("n1")
        servers.moods["a"] = "hangs"

        async def ask() -> None:
            with suppress(SlurmUnavailableError):
                while True:  # A call that was sent late has hung for too short a time to count.
                    with anyio.move_on_after(1.1):
                        await slurm.node("n1")

        for _ in range(FAILURES):
            tasks.start_soon(ask)
        with anyio.fail_after(WITHIN_S):
            while True:
                try:
                    with anyio.move_on_after(0.05):
                        await slurm.node("n1")
                except SlurmUnavailableError as error:
                    assert "gets no calls now" in str(error)  # noqa: PT017 - it comes after others
                    break


async def test_callers_that_lose_patience_before_a_version_is_chosen_reach_the_next_server() -> None:
    servers = Servers(a="hangs", b="well")
    async with client(servers, timeout_s=60) as slurm, anyio.create_task_group() as tasks:
        answered = anyio.Event()

        async def ask() -> None:
            while not answered.is_set():
                with anyio.move_on_after(1.1):
                    if await slurm.node("n1") is not None:
                        answered.set()

        for _ in range(FAILURES):
            tasks.start_soon(ask)
        with anyio.fail_after(WITHIN_S):
            await answered.wait()

    assert servers.count("a/openapi") == 1


async def test_an_error_of_whoever_uses_it_stays_as_it_is() -> None:
    with pytest.raises(KeyError):
        async with client(Servers(a="well")):
            raise KeyError


@pytest.mark.parametrize(
    "url",
    [
        "",
        " , ",
        "slurmrestd:6820",
        "127.0.0.1:6820",
        "ftp://slurmrestd",
        "http://",
        "http://slurmrestd:port",
        "http://[::1",
        "http://xn--a",
        f"http://{'a' * 64}.b",
        "http://a, http://b:c",
    ],
)
def test_an_address_is_needed(url: str) -> None:
    with pytest.raises(ConfigError, match="slurmrestd's address"):
        SlurmClient(url, OneToken())
