"""A NATS server and a connection of its own for each test that asks for one."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import Bus, BusSettings, connect


@pytest.fixture
def server(tmp_path: Path) -> Generator[NatsServer]:
    """A server of the test's own."""
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def settings(server: NatsServer) -> BusSettings:
    """How it is reached."""
    return BusSettings(url=server.url)


@pytest.fixture
async def bus(settings: BusSettings) -> AsyncGenerator[Bus]:
    """A connection, with the streams of cluster ``c1``."""
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        yield bus
