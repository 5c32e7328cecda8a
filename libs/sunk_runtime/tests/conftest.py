"""A server and a connection of its own for each test."""

import shutil
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
def settings(server: NatsServer) -> BusSettings:
    return BusSettings(url=server.url)


@pytest.fixture
async def bus(settings: BusSettings) -> AsyncGenerator[Bus]:
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        yield bus


@pytest.fixture
def store(server: NatsServer, tmp_path: Path) -> "Store":
    return Store(server, tmp_path)


class Store:
    """What NATS has on its disk, kept and put back, as from a snapshot of its volume."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        self._server = server
        self._now = folder / "nats" / "store"
        self._copy = folder / "copy"

    def keep(self) -> None:
        self._server.stop()
        shutil.copytree(self._now, self._copy)
        self._server.start()

    def put_back(self) -> None:
        self._server.kill()
        self._server.wipe()
        shutil.copytree(self._copy, self._now)
        self._server.start()
