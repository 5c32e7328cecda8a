"""A gateway from start to end: settings, keys, logs, SIGTERM."""

import signal
from collections.abc import Callable
from pathlib import Path

import anyio
import httpx
import pytest

from sunk_events.requests import AcquireLock, LockGranted, LockWaiting
from sunk_hook_gateway.testing.hooks import (
    Gateway,
    bearer,
    call,
    place,
    poll,
    register,
    standing_in,
    token_of,
)
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_hook_gateway.testing.process import Process
from sunk_lab.ports import free_port
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio


async def test_a_rotated_signing_key_is_found_by_the_first_token_that_needs_it(
    bus: Bus, http: httpx.AsyncClient, issuer: Issuer, keys_file: Path
) -> None:
    await register(bus, "g1")
    new = Issuer("k2")
    await anyio.Path(keys_file).write_bytes(b'{"keys":[' + encode_keys(issuer, new) + b"]}")
    _, answering_locks = standing_in(bus, AcquireLock, LockGranted())

    async with answering_locks:
        assert await call(http, "/v1/nodes/g1/prehook", new.token("g1"), {"job": 1}) == {"locked": True}
        assert await call(http, "/v1/nodes/g1/prehook", issuer.token("g1"), {"job": 1}) == {"locked": True}


def encode_keys(*issuers: Issuer) -> bytes:
    return b",".join(issuer.jwks()[len(b'{"keys": [') : -2] for issuer in issuers)


async def test_a_replica_that_is_told_to_stop_sends_its_held_callers_elsewhere(
    bus: Bus, start_gateway: Callable[[], Gateway], issuer: Issuer
) -> None:
    process, url = start_gateway()
    await register(bus, "g2")
    answers, answering_locks = standing_in(bus, AcquireLock, LockWaiting(in_the_way=("a/b",)))
    told: list[httpx.Response] = []

    async def prolog() -> None:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as http:
            body = {"job": 1, "deadline_s": 60}
            headers = bearer(issuer.token("g2"))
            told.append(await http.post("/v1/nodes/g2/prehook", json=body, headers=headers))

    async with answering_locks, anyio.create_task_group() as tasks:
        tasks.start_soon(prolog)
        await until(lambda: bool(answers.requests))
        process.signal(signal.SIGTERM)

    assert (told[0].status_code, told[0].json()) == (503, {"retry": True})
    assert told[0].headers["Retry-After"] == "1"
    assert process.wait() == 0


async def test_no_token_is_ever_logged(
    bus: Bus, gateway: Gateway, http: httpx.AsyncClient, issuer: Issuer
) -> None:
    await place(bus, 61, token=token_of(61))
    tokens = [issuer.token("h1"), Issuer("other").token("h1"), token_of(61), token_of(62)]
    for token in tokens:
        await http.post("/v1/nodes/h1/prehook", json={"job": 1}, headers=bearer(token))
        await poll(http, 61, token)

    log = gateway[0].log.read_text()
    assert "call refused" in log
    assert not [token for token in tokens if token[:60] in log or token[-40:] in log]


async def test_every_route_is_in_the_openapi_document(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()

    assert {(path, *methods) for path, methods in document["paths"].items()} == {
        ("/v1/nodes/{node}/prehook", "post"),
        ("/v1/nodes/{node}/release", "post"),
        ("/v1/nodes/{node}/reboot", "post"),
        ("/v1/jobs/{job}/started", "post"),
        ("/v1/jobs/{job}/release", "post"),
        ("/v1/jobs/{job}/outcome", "get"),
        ("/v1/jobs/{job}/explanation", "get"),
        ("/v1/nudges", "post"),
    }


async def test_a_wrong_setting_ends_the_process_with_2_and_its_log_names_it(tmp_path: Path) -> None:
    process = Process(tmp_path, {"CLUSTER": "c1", "HTTP_PRT": "1"})
    try:
        assert process.wait() == 2
    finally:
        process.close()
    assert "SUNK_HOOK_GATEWAY_HTTP_PRT" in process.log.read_text()


async def test_hooks_with_a_port_of_their_own_are_answered_there_alone_and_metrics_elsewhere(
    bus: Bus, start_gateway: Callable[..., Gateway], issuer: Issuer
) -> None:
    hooks = f"http://127.0.0.1:{(port := free_port())}"
    _, rest = start_gateway(HOOKS_PORT=str(port))
    await register(bus, "g3")
    path, headers = "/v1/nodes/g3/prehook", bearer(issuer.token("g3"))
    _, answering_locks = standing_in(bus, AcquireLock, LockGranted())

    async with httpx.AsyncClient(trust_env=False, timeout=120) as http, answering_locks:
        told = [await http.post(f"{url}{path}", json={"job": 1}, headers=headers) for url in (hooks, rest)]
        metrics = [await http.get(f"{url}/metrics") for url in (hooks, rest)]

    assert [one.status_code for one in told] == [200, 404]
    assert [one.status_code for one in metrics] == [404, 200]
