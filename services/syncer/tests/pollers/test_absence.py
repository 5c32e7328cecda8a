"""A node is gone when a look and a later list agree on it, and not by a single answer."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

import anyio
import pytest
from prometheus_client import REGISTRY

from sunk_events import subjects
from sunk_events.nodes import SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_syncer.config import Config
from sunk_syncer.pollers.activity import ActivityPoller
from sunk_syncer.pollers.nodes import NodePoller
from sunk_syncer.pollers.poll_loop import PollSchedule
from sunk_syncer.testing.quiet_slurm import QuietSlurm
from sunk_syncer.testing.stage import CLUSTER

pytestmark = pytest.mark.anyio

CONFIG = Config(cluster=CLUSTER)
SELDOM = Config(cluster=CLUSTER, poll_s=3600)
"""After its first list a watch asks for one when the test does."""


class Told(NamedTuple):
    """A watch that has told both nodes."""

    watch: NodePoller
    activity: ActivityPoller
    """Counters that are asked for when the test does."""
    bus: Bus
    view: StateView[SlurmNodeState]


@asynccontextmanager
async def telling(nats: NatsServer, slurm: QuietSlurm, config: Config = CONFIG) -> AsyncGenerator[Told]:
    """Follow nodes until both are told."""
    settings = BusSettings(url=nats.url)
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        view = StateView(bus, CLUSTER, SlurmNodeState)
        activity = ActivityPoller(slurm, PollSchedule.of(config, config.poll_s))
        watch = NodePoller(slurm, StateWriter(bus, view, fence=None), activity, config)
        async with following(view), anyio.create_task_group() as tasks:
            await view.complete()
            tasks.start_soon(watch.run)
            await until(lambda: sorted(view.keys()) == ["n1", "n2"])
            yield Told(watch, activity, bus, view)
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def watching(nats: NatsServer, slurm: QuietSlurm) -> AsyncGenerator[NodePoller]:
    """Do the same."""
    async with telling(nats, slurm) as told:
        yield told.watch


async def test_a_look_that_finds_nothing_of_a_listed_node_tells_nothing(nats: NatsServer) -> None:
    slurm = QuietSlurm()
    async with watching(nats, slurm) as watch:
        slurm.found = {"n1"}
        for _ in range(3):
            with pytest.raises(TransientError, match="no list has confirmed"):
                await watch.fresh("n2")
            await watch.poll()
        slurm.found = {"n1", "n2"}
        node = await watch.fresh("n2")

        assert node is not None
        assert len(watch) == 2


async def test_a_node_that_looks_and_lists_lack_is_gone(nats: NatsServer) -> None:
    slurm = QuietSlurm()
    async with watching(nats, slurm) as watch:
        slurm.found = slurm.listed = {"n1"}
        with pytest.raises(TransientError):
            await watch.fresh("n2")

        await until(lambda: len(watch) == 1)
        assert await watch.fresh("n2") is None


async def test_a_node_that_was_never_there_needs_no_list(nats: NatsServer) -> None:
    async with watching(nats, QuietSlurm()) as watch:
        assert await watch.fresh("n3") is None


async def test_one_look_that_finds_nothing_forgets_no_node_whose_state_cannot_be_read(
    nats: NatsServer,
) -> None:
    slurm = QuietSlurm()
    async with telling(nats, slurm, SELDOM) as (watch, _, bus, view):
        subject = subjects.key_subject(view.bucket, "n3")
        await bus.publish(subject, b"of a later version")
        await until(lambda: "n3" in view.undecodable)
        with pytest.raises(TransientError, match="no list has confirmed"):
            await watch.fresh("n3")
        await anyio.wait_all_tasks_blocked()
        assert "n3" in view.undecodable

        await watch.poll()
        await until(lambda: "n3" not in view.undecodable)  # A list lacks it too.
        assert await watch.fresh("n3") is None


async def test_a_list_that_is_not_believed_makes_no_state_younger(nats: NatsServer) -> None:
    slurm = QuietSlurm()
    async with watching(nats, slurm) as watch:
        believed = answered()
        slurm.listed, slurm.changed = set(), 2
        await watch.poll()

        assert answered() == believed
        slurm.listed = {"n1", "n2"}
        await watch.poll()
        assert answered() > believed


@pytest.mark.parametrize("others", [1, 30])
async def test_lists_of_another_cluster_remove_no_node_before_the_doubt_has_lasted(
    nats: NatsServer, others: int
) -> None:
    slurm = QuietSlurm()
    foreign = {f"other{index}" for index in range(others)}
    async with telling(nats, slurm, SELDOM) as (watch, _, _, view):
        slurm.listed = slurm.found = foreign
        for _ in range(3):
            slurm.changed += 1
            await watch.fresh_list()
            await watch.poll()
            await until(lambda: foreign <= set(view.keys()))
            await anyio.sleep(0.2)  # Nodes that were looked at would be removed by now.

        assert {"n1", "n2"} <= set(view.keys())


async def test_lists_of_two_clusters_in_turn_remove_none_of_ours(nats: NatsServer) -> None:
    slurm = QuietSlurm()
    ours, foreign = {"n1", "n2"}, {f"other{index}" for index in range(30)}
    async with telling(nats, slurm, SELDOM) as (watch, _, _, view):
        for listed in (foreign, ours, foreign, foreign):
            slurm.listed, slurm.found = listed, foreign
            slurm.changed += 1
            await watch.poll()
            await anyio.sleep(0.2)  # Nodes that were looked at would be removed by now.

        assert ours <= set(view.keys())


async def test_a_clock_of_slurmctld_that_went_back_hides_no_change(nats: NatsServer) -> None:
    slurm = QuietSlurm()
    slurm.clock = slurm.changed = 100
    async with telling(nats, slurm) as (watch, activity, _, _):
        await activity.poll()
        slurm.clock = slurm.changed = 50
        slurm.listed = slurm.found = {"n1", "n2", "n3"}
        is_told_before = await watch.poll()
        await activity.poll()
        await until(lambda: len(watch) == 3)

    assert not is_told_before


def answered() -> float:
    """Return what the syncer's metrics say of when nodes were last answered."""
    return REGISTRY.get_sample_value("sunk_syncer_answered_timestamp_seconds", {"kind": "nodes"}) or 0.0
