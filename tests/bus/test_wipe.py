"""JetStream's data is gone while everybody runs: what the writers know is written anew."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from sunk_events.nodes import SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.keys import KeyLoop
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES = 50


class Slurm:
    """What a writer observes: the truth outside the bus, and the loop that tells it as our services do."""

    def __init__(self, bus: Bus, view: StateView[SlurmNodeState]) -> None:
        self.nodes = {f"n{number}": "IDLE" for number in range(NODES)}
        self._view = view
        self._writer = StateWriter(bus, view, fence=None)
        self.loop = KeyLoop("wiped", self._settle)

    async def _settle(self, name: str) -> None:
        state = SlurmNodeState(node=name, state=self.nodes[name], changed=NOW)
        await self._writer.record(name, state, revision=self._view.revision(name))

    async def run(self) -> None:
        await self._view.complete()
        for name in self.nodes:
            self.loop.enqueue(name)
        await self.loop.run(self._view.changes(), keys=lambda: self.nodes)

    def is_shown_by(self, view: StateView[SlurmNodeState]) -> bool:
        return view.is_complete and {node.node: node.state for node in view.values()} == self.nodes


@pytest.fixture
async def wiped(tmp_path: Path) -> AsyncGenerator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


def wipe(server: NatsServer) -> None:
    server.kill()
    server.wipe()
    server.start()


async def test_when_the_data_of_nats_is_wiped_writers_write_all_again_and_views_are_current(
    wiped: NatsServer,
) -> None:
    settings = BusSettings(url=wiped.url)
    async with connect(settings, "writer") as bus, connect(settings, "reader") as other:
        await bus.provision("c1", settings)
        await other.provision("c1", settings)
        own, seen = StateView(bus, "c1", SlurmNodeState), StateView(other, "c1", SlurmNodeState)
        slurm = Slurm(bus, own)
        async with following(own, seen), anyio.create_task_group() as tasks:
            tasks.start_soon(slurm.run)
            await until(lambda: slurm.is_shown_by(seen))

            for turn in ("DOWN", "MIXED"):
                wipe(wiped)
                slurm.nodes["n7"] = turn
                slurm.loop.enqueue("n7")
                await until(lambda: slurm.is_shown_by(seen) and slurm.is_shown_by(own))
            tasks.cancel_scope.cancel()


async def test_a_bucket_that_was_removed_alone_is_made_and_filled_again(wiped: NatsServer) -> None:
    settings = BusSettings(url=wiped.url)
    async with connect(settings, "writer") as bus:
        await bus.provision("c1", settings)
        own = StateView(bus, "c1", SlurmNodeState)
        slurm = Slurm(bus, own)
        async with following(own), anyio.create_task_group() as tasks:
            tasks.start_soon(slurm.run)
            await until(lambda: slurm.is_shown_by(own))
            await bus.js.delete_stream(f"KV_{own.bucket}")

            fresh = StateView(bus, "c1", SlurmNodeState)
            async with following(fresh):
                await until(lambda: slurm.is_shown_by(fresh))
            tasks.cancel_scope.cancel()
