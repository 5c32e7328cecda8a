"""Callers that mean no good: twisted paths, other people's tokens, endless calls."""

import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from typing import Final

import anyio
import httpx
import pytest
from anyio.abc import SocketStream

from sunk_events.requests import (
    AcquireLock,
    LockGranted,
    Noted,
    NudgeJob,
    PlacementReleased,
    PlacementSilent,
    ReleasePlacement,
)
from sunk_hook_gateway.testing.hooks import (
    Gateway,
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
from sunk_runtime.testing import WITHIN_S, until


@pytest.mark.anyio
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/v1/nodes/s1/../s2/prehook", id="up and down"),
        pytest.param("/v1/nodes/s1%2F..%2Fs2/prehook", id="encoded slashes"),
        pytest.param("/v1/nodes/s1%2f%2e%2e%2fs2/prehook", id="encoded dots too"),
        pytest.param("/v1/nodes/s1;/s2/prehook", id="a parameter"),
        pytest.param("/v1/nodes//s2/prehook", id="an empty part"),
        pytest.param("/v1/nodes/s2%00/prehook", id="a zero byte"),
        pytest.param("/v1/nodes/s2%0a/prehook", id="a line's end"),
        pytest.param("/v1/nodes/S2/prehook", id="another case"),
        pytest.param("/v1/nodes/*/prehook", id="a wildcard of the bus"),
        pytest.param("/v1/nodes/s1.>/prehook", id="a subject of the bus"),
        pytest.param("/%2e%2e/v1/nodes/s2/prehook", id="from above"),
    ],
)
async def test_no_path_leads_from_ones_own_node_to_another(
    bus: Bus, gateway: Gateway, issuer: Issuer, path: str
) -> None:
    await register(bus, "s2")
    answers, answering_locks = standing_in(bus, AcquireLock, LockGranted())
    host, port = gateway[1].removeprefix("http://").split(":")
    body = b'{"job":1}'
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        f"Authorization: Bearer {issuer.token('s1')}\r\n\r\n"
    )

    async with answering_locks, await anyio.connect_tcp(host, int(port)) as stream:
        await stream.send(head.encode() + body)  # As it is: clients of HTTP tidy paths up.
        with anyio.fail_after(WITHIN_S):
            answer = b"".join([part async for part in stream])

    assert int(answer.split()[1]) in {400, 403, 404}
    assert not answers.requests


@pytest.mark.anyio
async def test_a_placeholders_token_ends_with_its_placement(bus: Bus, http: httpx.AsyncClient) -> None:
    await place(bus, 81, token=token_of(81))
    _, answering_ends = standing_in(bus, ReleasePlacement, PlacementReleased(is_pod_gone=False, pod="p"))
    async with answering_ends:
        await call(http, "/v1/jobs/81/release", token_of(81), expect=202)
    await forget(bus, 81)

    async def is_refused() -> bool:
        path = "/v1/jobs/81/started"
        # A script that nobody answers is held for longer than a client waits by itself.
        answer = await http.post(path, json={"node": "s1"}, headers=bearer(token_of(81)), timeout=120)
        return answer.status_code == 404

    await until(is_refused)


@pytest.mark.anyio
async def test_a_body_that_does_not_come_is_not_waited_for(
    bus: Bus, gateway: Gateway, issuer: Issuer
) -> None:
    await register(bus, "s1")
    host, port = gateway[1].removeprefix("http://").split(":")
    head = (
        "POST /v1/nodes/s1/prehook HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
        f"Authorization: Bearer {issuer.token('s1')}\r\n\r\n"
    )
    async with await anyio.connect_tcp(host, int(port)) as stream:
        await stream.send(head.encode() + b"{")
        with anyio.fail_after(WITHIN_S):
            answer = await stream.receive()

    assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.anyio
async def test_who_shows_no_placeholders_token_is_refused_before_its_body_comes(
    bus: Bus, gateway: Gateway
) -> None:
    host, port = gateway[1].removeprefix("http://").split(":")
    await place(bus, 82, token=token_of(82))
    statuses: list[bytes] = []
    for job, token in ((82, "nobodys"), (82, "x" * 200), (83, token_of(82))):
        head = f"POST /v1/jobs/{job}/started HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(f"{head}Authorization: Bearer {token}\r\n\r\n".encode() + b"{")
            with anyio.fail_after(WITHIN_S):
                statuses.append((await stream.receive())[9:12])

    assert statuses == [b"403", b"401", b"404"]


@pytest.mark.anyio
async def test_a_poll_of_a_stranger_asks_nobody_whether_it_is_answered_or_cut(
    bus: Bus, gateway: Gateway, http: httpx.AsyncClient
) -> None:
    host, port = gateway[1].removeprefix("http://").split(":")
    await place(bus, 84, token=token_of(84))
    nudges, answering_nudges = standing_in(bus, NudgeJob, Noted())
    silences, answering_silences = standing_in(bus, PlacementSilent, Noted())

    async def cut(job: int, token: str) -> None:
        async with await anyio.connect_tcp(host, int(port)) as stream:
            head = f"GET /v1/jobs/{job}/outcome HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
            await stream.send(head.encode())
            await until(lambda: is_held(http, "job_outcome"))

    async with answering_nudges, answering_silences:
        await until_known(http, 84)
        assert (await poll(http, 84, "nobodys")).status_code == 403
        assert (await poll(http, 85, token_of(84))).status_code == 404
        await cut(86, "nobodys")  # As one whose placement may still come.
        await cut(84, token_of(84))
        await until(lambda: bool(nudges.requests and silences.requests))

    assert (nudges.requests, silences.requests) == ([NudgeJob(job=84)], [PlacementSilent(job=84)])


async def until_known(http: httpx.AsyncClient, job: int) -> None:
    """Return when the gateway has the placement of *job*."""

    async def is_known() -> bool:
        return (await poll(http, job, "nobodys")).status_code == 403

    await until(is_known)


HAS_FEW_FILES: Final = getrlimit(RLIMIT_NOFILE)[1] < 18_000


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("slow", "idle"),
    [
        pytest.param(1_200, 500, id="few"),
        pytest.param(
            12_000,
            5_000,
            marks=[pytest.mark.nightly, pytest.mark.skipif(HAS_FEW_FILES, reason="18,000 files: ulimit -n")],
            id="many",
        ),
    ],
)
async def test_one_pod_keeps_no_prolog_of_another_node_waiting_whatever_it_begins_and_does_not_end(
    bus: Bus, gateway: Gateway, http: httpx.AsyncClient, issuer: Issuer, *, slow: int, idle: int
) -> None:
    host, port = gateway[1].removeprefix("http://").split(":")
    nodes = [f"t{number}" for number in range(20)]
    for node in (*nodes, "s9"):
        await register(bus, node)
    await place(bus, 87, token=token_of(87))
    own, forged = issuer.token("s9"), Issuer("unknown").token("s9")
    answers, answering_locks = standing_in(bus, AcquireLock, LockGranted())
    releases, answering_releases = standing_in(bus, ReleasePlacement, PlacementReleased(is_pod_gone=True))
    begun = [
        _head("/v1/nodes/s9/prehook", own) + b"{",
        _head("/v1/nodes/s9/prehook", forged) + b"{",
        _head("/v1/nodes/s9/prehook", "garbage") + b"{",
        _head("/v1/jobs/87/started", token_of(87)) + b"{",
        _head("/v1/jobs/87/started", "nobodys") + b"{",
        _head("/v1/jobs/88/started", "nobodys") + b"{",
    ]
    begun = [begun[number % len(begun)] for number in range(slow)]
    begun += [b"", b"POST /v1/nodes/s9/prehook HTTP/1.1\r\nX:"] * (idle // 2)

    with raised(RLIMIT_NOFILE, slow + idle + 1_000):
        async with anyio.create_task_group() as tasks, answering_locks, answering_releases:
            streams: list[SocketStream] = []
            at_once = anyio.CapacityLimiter(250)

            async def begin(data: bytes) -> None:
                async with at_once:
                    stream = await anyio.connect_tcp(host, int(port), local_host="127.0.0.2")
                    streams.append(stream)
                    if data:
                        with suppress(anyio.BrokenResourceError):  # Given up already.
                            await stream.send(data)

            for data in begun:
                tasks.start_soon(begin, data)
            await until(lambda: len(streams) > (slow + idle) / 2)
            with anyio.fail_after(WITHIN_S):  # The rest goes on meanwhile.
                async with anyio.create_task_group() as prologs:
                    for node in nodes:
                        path = f"/v1/nodes/{node}/prehook"
                        body = {"job": 1, "deadline_s": PREHOOK_DEADLINE_S}
                        prologs.start_soon(call, http, path, issuer.token(node), body)
            await until(lambda: len(streams) == len(begun))
            body = {"job": 2, "deadline_s": PREHOOK_DEADLINE_S}
            await call(http, "/v1/nodes/t0/prehook", issuer.token("t0"), body)
            metrics = (await http.get("/metrics")).text
            assert not re.search(
                r'^sunk_http_connections_cut_total\{bound="address"} 0\.0$', metrics, re.MULTILINE
            )
            for stream in streams:
                await stream.aclose()

    assert gateway[0].log.read_text().count("call refused") < slow / 4
    assert {request.node for request in answers.requests if isinstance(request, AcquireLock)} == {*nodes}
    assert not releases.requests


PREHOOK_DEADLINE_S: Final = 100
"""For so long a prolog waits for its lock."""


def _head(path: str, token: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nAuthorization: Bearer {token}\r\n\r\n"
    ).encode()


@contextmanager
def raised(limit: int, least: int) -> Generator[None]:
    """Let this process have at least so much while the context lasts."""
    before, most = getrlimit(limit)
    setrlimit(limit, (max(before, min(least, most)), most))
    try:
        yield
    finally:
        setrlimit(limit, (before, most))
