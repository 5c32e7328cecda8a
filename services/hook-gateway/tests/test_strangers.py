"""Callers that mean no good: twisted paths, other people's tokens, endless calls."""

from contextlib import suppress
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from typing import Final

import anyio
import httpx
import pytest
from anyio.abc import SocketStream

from sunk_events.requests import AcquireLock, LockGranted, PlacementReleased, ReleasePlacement
from sunk_hook_gateway.testing.hooks import (
    CLUSTER,
    Gateway,
    bearing,
    call,
    forget,
    free_port,
    place,
    register,
    standing_in,
    token_of,
)
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_hook_gateway.testing.process import Process, settings_of
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
    assert not answers.asked


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
        answer = await http.post(path, json={"node": "s1"}, headers=bearing(token_of(81)), timeout=120)
        return answer.status_code == 404

    await until(is_refused)


@pytest.mark.anyio
async def test_a_body_that_does_not_come_is_not_waited_for(gateway: Gateway, issuer: Issuer) -> None:
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
async def test_strangers_who_call_for_jobs_take_no_prologs_place(
    bus: Bus, nats_url: str, keys_file: Path, issuer: Issuer, tmp_path: Path
) -> None:
    port = free_port()
    few = settings_of(CLUSTER, nats_url, port, keys_file) | {"MAX_CALLS": "4"}
    gateway = Process(tmp_path, few)
    await register(bus, "s4")
    _, answering_locks = standing_in(bus, AcquireLock, LockGranted())
    url = f"http://127.0.0.1:{port}"
    try:
        async with (
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as http,
            anyio.create_task_group() as tasks,
            answering_locks,
        ):

            async def stranger(job: int) -> None:
                async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                    head = f"POST /v1/jobs/{job}/started HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
                    await stream.send(f"{head}Authorization: Bearer nobodys\r\n\r\n".encode() + b"{")
                    await stream.receive()

            async def are_held() -> bool:
                return 'calls_held{call="job_started"} 4.0' in (await http.get("/metrics")).text

            async def is_ready() -> bool:
                try:
                    return (await http.get("/readyz")).is_success
                except httpx.TransportError:
                    return False

            await until(is_ready)
            for job in range(1, 9):
                tasks.start_soon(stranger, job)
            await until(are_held)
            told = await call(http, "/v1/nodes/s4/prehook", issuer.token("s4"), {"job": 1})
            tasks.cancel_scope.cancel()

            assert told == {"locked": True}
    finally:
        gateway.close()


HAS_FEW_FILES: Final = getrlimit(RLIMIT_NOFILE)[0] < 11_000


@pytest.mark.anyio
@pytest.mark.parametrize(
    "count",
    [
        500,
        pytest.param(
            10_000,
            marks=[pytest.mark.nightly, pytest.mark.skipif(HAS_FEW_FILES, reason="11,000 files: ulimit -n")],
        ),
    ],
)
async def test_who_only_connects_keeps_nobody_out(
    bus: Bus, gateway: Gateway, http: httpx.AsyncClient, issuer: Issuer, count: int
) -> None:
    host, port = gateway[1].removeprefix("http://").split(":")
    await register(bus, "s3")
    _, answering_locks = standing_in(bus, AcquireLock, LockGranted())

    async with anyio.create_task_group() as tasks, answering_locks:
        idle: list[SocketStream] = []
        at_once = anyio.CapacityLimiter(250)

        async def connect() -> None:
            async with at_once:
                idle.append(stream := await anyio.connect_tcp(host, int(port)))
                with suppress(anyio.BrokenResourceError):  # So late that it was given up.
                    await stream.send(b"POST /v1/nodes/s3/prehook HTTP/1.1\r\nX:")

        for _ in range(count):
            tasks.start_soon(connect)
        await until(lambda: len(idle) == count)
        told = await call(http, "/v1/nodes/s3/prehook", issuer.token("s3"), {"job": 1})
        for stream in idle:
            await stream.aclose()

        assert told == {"locked": True}
