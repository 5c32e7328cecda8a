"""What nothing waits for comes after the drains of many, and after these are told."""

from pathlib import Path

import anyio
import pytest

from sunk_events.nodes import SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.leases import Leadership
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.client import SlurmClient
from sunk_slurm.testing import node
from sunk_slurm.tokens import FileTokens
from sunk_slurm.wire import Node
from sunk_syncer.config import Config
from sunk_syncer.pollers.activity import ActivityPoller
from sunk_syncer.pollers.nodes import NodePoller
from sunk_syncer.pollers.poll_loop import LOOKS_AT_ONCE, PollSchedule
from sunk_syncer.testing.quiet_slurm import QuietSlurm
from sunk_syncer.testing.stage import CLUSTER
from sunk_syncer.writers.node_writer import CROWD, NodeWriter

pytestmark = pytest.mark.anyio

CONFIG = Config(cluster=CLUSTER)
MANY = [f"n{number}" for number in range(2 * (CROWD + LOOKS_AT_ONCE))]


class SlowSlurm(QuietSlurm):
    """Shows a node when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = anyio.Event()

    async def node(self, name: str) -> Node | None:
        await self.let.wait()
        return node(name)


async def test_many_nodes_that_are_looked_at_after_their_drains_are_a_crowd(nats: NatsServer) -> None:
    settings, slurm = BusSettings(url=nats.url), SlowSlurm()
    nobody = SlurmClient("http://127.0.0.1:1", FileTokens(Path("/none")))
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        view = StateView(bus, CLUSTER, SlurmNodeState)
        activity = ActivityPoller(slurm, PollSchedule.of(CONFIG, CONFIG.poll_s))
        watch = NodePoller(slurm, StateWriter(bus, view, fence=None), activity, CONFIG)
        node_writer = NodeWriter(nobody, watch, Leadership("syncer", 1, float("inf")), CONFIG)
        async with following(view), anyio.create_task_group() as tasks:
            await view.complete()
            tasks.start_soon(watch.run)
            await until(lambda: len(view) == len(slurm.listed))
            assert not node_writer.is_crowded

            for name in MANY:
                watch.look(name)
            await until(lambda: watch.waiting == len(MANY) - LOOKS_AT_ONCE)
            assert node_writer.is_crowded

            slurm.let.set()
            await until(lambda: not node_writer.is_crowded)
            tasks.cancel_scope.cancel()
