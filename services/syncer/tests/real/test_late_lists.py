"""A list that slurmrestd takes long over, and a look that overtakes it: neither hides a change."""

import time

import anyio
import pytest

from sunk_events.nodes import SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_lab.slurm.host import HostSlurm
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.client import SlurmClient
from sunk_slurm.reads import NodeList, NotModified
from sunk_slurm.tokens import KeyTokens
from sunk_syncer.config import Config
from sunk_syncer.pollers.activity import ActivityPoller
from sunk_syncer.pollers.nodes import NodePoller
from sunk_syncer.pollers.poll_loop import PollSchedule
from sunk_syncer.testing.stage import CLUSTER

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

N1 = "node01"
CONFIG = Config(cluster=CLUSTER, poll_s=600)
"""After its first list it asks for one when the test does."""


class LateSlurm(SlurmClient):
    """Takes no snapshot of all nodes while it is not let."""

    is_let = True
    lists = 0

    async def nodes(self, update_time: int = 0) -> NodeList | NotModified:
        self.lists += 1
        await until(lambda: self.is_let)
        return await super().nodes(update_time)


async def test_a_change_that_came_between_a_look_and_the_list_it_overtook_is_not_missed(
    slurm: HostSlurm, nats: NatsServer
) -> None:
    settings = BusSettings(url=nats.url)
    async with (
        connect(settings, "test") as bus,
        LateSlurm(slurm.url, KeyTokens(slurm.jwt_key)) as client,
    ):
        await bus.provision(CLUSTER, settings)
        view = StateView(bus, CLUSTER, SlurmNodeState)
        activity = ActivityPoller(client, PollSchedule.of(CONFIG, CONFIG.poll_s))
        watch = NodePoller(client, StateWriter(bus, view, fence=None), activity, CONFIG)

        async with following(view), anyio.create_task_group() as tasks:
            await view.complete()
            tasks.start_soon(watch.run)
            await until(lambda: view.get(N1) is not None)
            client.is_let = False
            async with anyio.create_task_group() as late:
                late.start_soon(watch.poll)
                await until(lambda: client.lists == 2)
                await watch.fresh(N1)
                await client.drain(N1, "by hand")
                drained = time.time()
                # slurmctld compares whole seconds: from then on nothing has changed since the list.
                await until(lambda: time.time() > drained + 2)
                client.is_let = True
            await watch.poll()
            await until(lambda: (told := view.get(N1)) is not None and told.is_drain)
            tasks.cancel_scope.cancel()
        await client.undrain(N1)
