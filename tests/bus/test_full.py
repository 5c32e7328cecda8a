"""No space: what NATS refuses is said once and tried again; nothing hangs, and all goes on with space."""

import logging
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from prometheus_client import REGISTRY

from sunk_events import subjects
from sunk_events.base import event_id
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_lab.nats import NatsServer
from sunk_lab.small_disk import SmallDisk, small_disk
from sunk_runtime.errors import ConflictError, FullError, TransientError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FACTS_MAX_BYTES = 256 * 1024
FACTS = subjects.fact_stream("c1")


class Recorder:
    """Records a node's state with one fact, as a service does."""

    def __init__(self, bus: Bus) -> None:
        self.view = StateView(bus, "c1", SlurmNodeState)
        self._writer = StateWriter(bus, self.view, fence=None)

    async def record(self, state: str, *, reason: str = "") -> None:
        revision = self.view.revision("n1")
        fact = NodeDrained(
            id=event_id("node_drained", "n1", revision),
            source="/c1/test",
            subject="n1",
            time=NOW,
            data=NodeSnapshot(node="n1", state=state, reason=reason),
        )
        after = SlurmNodeState(node="n1", state=state, changed=NOW)
        await self._writer.record("n1", after, [fact], revision=revision)

    async def is_recorded(self, state: str) -> bool:
        try:
            await self.record(state)
        except (TransientError, ConflictError):  # The loops of services look again after either.
            return False
        return True


@asynccontextmanager
async def recording(server: NatsServer) -> AsyncGenerator[tuple[Bus, Recorder]]:
    settings = BusSettings(url=server.url, facts_max_bytes=FACTS_MAX_BYTES)
    async with connect(settings, "test") as bus:
        await bus.provision("c1", settings)
        recorder = Recorder(bus)
        async with following(recorder.view):
            await recorder.view.complete()
            yield bus, recorder


async def facts(bus: Bus) -> int:
    return (await bus.js.stream_info(FACTS)).state.messages


async def fill(bus: Bus) -> None:
    """Let somebody else's stream take all that JetStream may store."""
    await bus.js.add_stream(name="other", subjects=["other"])
    for size in (64 * 1024, 1):
        while await is_taken(bus, size):
            pass


async def is_taken(bus: Bus, size: int) -> bool:
    try:
        await bus.publish("other", b"x" * size)
    except FullError:
        return False
    return True


async def test_when_all_of_nats_is_full_both_are_refused_and_said_once_and_go_on_with_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with NatsServer(tmp_path / "nats", max_store_mib=4) as server:
        async with recording(server) as (bus, recorder):
            await recorder.record("IDLE")
            with caplog.at_level(logging.INFO, "sunk_runtime.space"):
                await fill(bus)
                for _ in "abc":
                    with pytest.raises(FullError):
                        await recorder.record("DOWN")
                assert not bus.has_space
                assert REGISTRY.get_sample_value("sunk_bus_full") == 1
                assert recorder.view.get("n1") == SlurmNodeState(node="n1", state="IDLE", changed=NOW)

                await bus.js.delete_stream("other")
                await until(lambda: recorder.is_recorded("DOWN"))

            assert (bus.has_space, await facts(bus)) == (True, 2)
            assert [line.message for line in caplog.records] == ["bus full", "bus has space again"]


async def test_a_stream_of_facts_that_reached_its_size_drops_its_oldest_and_stops_nothing(
    tmp_path: Path,
) -> None:
    with NatsServer(tmp_path / "nats") as server:
        async with recording(server) as (bus, recorder):
            for number in range(300):  # 1000 bytes and more each.
                await recorder.record(f"S{number}", reason="x" * 1000)

            state = (await bus.js.stream_info(FACTS)).state
            assert recorder.view.get("n1") == SlurmNodeState(node="n1", state="S299", changed=NOW)
            assert state.last_seq == 300
            assert state.first_seq > 1


async def test_a_stream_of_facts_that_refuses_does_not_stop_the_state_and_is_counted(tmp_path: Path) -> None:
    before = REGISTRY.get_sample_value("sunk_facts_refused_total", {"type": "NodeDrained"}) or 0
    with NatsServer(tmp_path / "nats") as server:
        async with recording(server) as (bus, recorder):
            config = (await bus.js.stream_info(FACTS)).config
            await bus.js.update_stream(config, discard="new", max_msgs=1)
            await recorder.record("IDLE")
            await recorder.record("DOWN")

            assert recorder.view.get("n1") == SlurmNodeState(node="n1", state="DOWN", changed=NOW)
            assert await facts(bus) == 1
    after = REGISTRY.get_sample_value("sunk_facts_refused_total", {"type": "NodeDrained"})
    assert after == before + 1


@pytest.fixture
def disk(tmp_path: Path) -> Generator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    with small_disk(tmp_path / "nats" / "store", mib=8) as disk:
        yield disk


async def test_on_a_full_disk_nothing_hangs_and_a_restart_with_space_loses_nothing(
    disk: SmallDisk, tmp_path: Path
) -> None:
    with NatsServer(tmp_path / "nats") as server:
        async with recording(server) as (bus, recorder):
            await recorder.record("IDLE")
            disk.fill()
            bus.publish_timeout_s = 3.0  # It answers nothing, and never again until it is restarted.
            with anyio.fail_after(WITHIN_S):
                number = 0
                while await recorder.is_recorded(f"S{number}"):
                    number += 1
            stored = recorder.view.get("n1")

            disk.clear()
            await anyio.to_thread.run_sync(server.restart)
            await until(lambda: bus.reconnects == 1)
            fresh = StateView(bus, "c1", SlurmNodeState)
            async with following(fresh):
                await fresh.complete()
                assert stored is not None
                # The one attempted last may be stored, though no acknowledgement came.
                assert fresh.get("n1") in (stored, SlurmNodeState(node="n1", state=f"S{number}", changed=NOW))
            await until(lambda: recorder.is_recorded("DOWN"))
