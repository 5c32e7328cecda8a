"""NATS is killed while prologs and epilogs call: none is let go, and all go on when it is back."""

from pathlib import Path

import anyio
import httpx
import pytest

from sunk_events.requests import AcquireLock, LockGranted
from sunk_hook_gateway.testing.hooks import CLUSTER, bearer, call, is_held, register, standing_in
from sunk_hook_gateway.testing.issuer import Issuer
from sunk_hook_gateway.testing.process import Process, settings_of
from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_port
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import until

pytestmark = pytest.mark.anyio
PREHOOK = "/v1/nodes/n1/prehook"


async def is_ready(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/readyz")).is_success
    except httpx.TransportError:
        return False


async def test_while_the_bus_is_away_no_prolog_is_let_go_and_those_that_wait_are_answered_when_it_is_back(
    tmp_path: Path, issuer: Issuer, keys_file: Path
) -> None:
    port, token = free_port(), issuer.token("n1")
    told: list[object] = []
    with NatsServer(tmp_path / "nats") as nats:
        settings = BusSettings(url=nats.url)
        process = Process(tmp_path, settings_of(CLUSTER, nats.url, port, keys_file))
        url = f"http://127.0.0.1:{port}"
        try:
            async with (
                connect(settings, "test") as bus,
                httpx.AsyncClient(base_url=url, trust_env=False, timeout=120) as http,
                anyio.create_task_group() as tasks,
            ):
                await bus.provision(CLUSTER, settings)
                await register(bus, "n1")
                await until(lambda: is_ready(http))

                async def prolog() -> None:
                    told.append(await call(http, PREHOOK, token, {"job": 1, "deadline_s": 100}))

                tasks.start_soon(prolog)
                await until(lambda: is_held(http, "prehook"))
                nats.kill()
                late = await http.post(PREHOOK, json={"job": 2, "deadline_s": 1}, headers=bearer(token))
                release = await http.post("/v1/nodes/n1/release", json={"job": 3}, headers=bearer(token))
                assert (late.status_code, release.status_code) == (409, 503)
                assert not told

                nats.start()
                _, answering_locks = standing_in(bus, AcquireLock, LockGranted())
                async with answering_locks:
                    await until(lambda: bool(told))
        finally:
            process.close()

    assert told == [{"locked": True}]
