"""One nats-server for each test that wants a bus, with the streams of the Slurm cluster c1."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import Bus, BusSettings, connect


@pytest.fixture
def server(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def bus(server: NatsServer) -> AsyncGenerator[Bus]:
    settings = BusSettings(url=server.url)
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        yield bus
