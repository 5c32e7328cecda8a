"""A server and a connection of its own for each test."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import NatsServer


@pytest.fixture
def server(tmp_path: Path) -> Generator[NatsServer]:
    server = NatsServer(tmp_path)
    server.start()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def settings(server: NatsServer) -> BusSettings:
    return BusSettings(url=server.url)


@pytest.fixture
async def bus(settings: BusSettings) -> AsyncGenerator[Bus]:
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        yield bus
