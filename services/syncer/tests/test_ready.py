"""A syncer is ready when it can do its own work, whether or not Slurm is up."""

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from sunk_lab.nats import NatsServer
from sunk_lab.ports import free_port
from sunk_runtime.errors import FullError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import until
from sunk_syncer.testing.process import SyncerProcess
from sunk_syncer.testing.stage import CLUSTER

pytestmark = pytest.mark.anyio


class Ready:
    """What a syncer without a Slurm says of itself."""

    def __init__(self, nats: NatsServer, bus: Bus, http: httpx.AsyncClient) -> None:
        self.nats = nats
        self.bus = bus
        self._http = http

    async def lacks(self, *names: str) -> bool:
        try:
            answer = await self._http.get("/readyz")
        except httpx.TransportError:
            return False
        return answer.json() == {"ready": not names, "missing": list(names)}


@pytest.fixture
async def ready(tmp_path: Path) -> AsyncGenerator[Ready]:
    key, port = tmp_path / "key", free_port()
    key.write_bytes(b"k" * 32)
    with NatsServer(tmp_path / "nats", max_store_mib=4) as nats:
        settings = BusSettings(url=nats.url, facts_max_bytes=256 * 1024)
        syncer = SyncerProcess(
            tmp_path,
            cluster=CLUSTER,
            nats_url=nats.url,
            slurm_url="http://127.0.0.1:9",
            slurm_key_file=str(key),
            http_port=str(port),
            lease_ttl_s="10",
        )
        async with (
            connect(settings, "test") as bus,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
        ):
            await bus.provision(CLUSTER, settings)
            syncer.start()
            try:
                yield Ready(nats, bus, http)
            finally:
                syncer.close()


async def fill(bus: Bus) -> None:
    """Let somebody else's stream take all that JetStream may store."""
    await bus.js.add_stream(name="other", subjects=["other"])
    for size in (64 * 1024, 1):
        while True:
            try:
                await bus.publish("other", b"x" * size)
            except FullError:
                break


async def test_a_syncer_is_ready_without_slurm_and_not_without_the_bus(ready: Ready) -> None:
    await until(ready.lacks)

    ready.nats.kill()
    await until(lambda: ready.lacks("bus", "views"))

    ready.nats.start()
    await until(ready.lacks)


async def test_a_syncer_that_cannot_write_as_nats_is_full_is_not_ready_until_there_is_space(
    ready: Ready,
) -> None:
    await until(ready.lacks)

    await fill(ready.bus)
    await until(lambda: ready.lacks("space on the bus"))

    await ready.bus.js.delete_stream("other")
    await until(ready.lacks)
