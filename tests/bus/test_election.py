"""Three NATS, of which the one that leads is killed while we publish: another is elected, nothing is lost."""

from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from prometheus_client import REGISTRY

from sunk_events import subjects
from sunk_events.codec import encode
from sunk_events.nodes import NodeDrained, NodeSnapshot, SlurmNodeState
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import Bus, connect
from sunk_runtime.testing import WITHIN_S, until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import publish
from sunk_trials.stage import FACTS, STATES, Site, stored_facts
from sunk_trials.worker import CLUSTER, settings_of

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def drained(number: int) -> NodeDrained:
    return NodeDrained(
        id=f"drained:{number}",
        source="/c1/test",
        subject=f"n{number % 5}",
        time=NOW,
        data=NodeSnapshot(node=f"n{number % 5}", state="IDLE", reason=str(number)),
    )


def retries() -> float:
    return REGISTRY.get_sample_value("sunk_publish_retries_total") or 0


class Teller:
    """Publishes one fact after the other, each until it is acknowledged, as every writer of ours does."""

    def __init__(self, bus: Bus) -> None:
        self.told = 0
        self._bus = bus

    async def run(self) -> None:
        while True:
            try:
                await publish(self._bus, CLUSTER, drained(self.told + 1))
            except TransientError:  # The answer was lost with the connection.
                continue
            self.told += 1

    async def goes_on(self, more: int = 200) -> None:
        wanted = self.told + more
        await until(lambda: self.told >= wanted)


async def test_every_publish_ends_acknowledged_though_the_leader_of_its_stream_is_killed(
    tmp_path: Path,
) -> None:
    with Site(tmp_path, 3) as site:
        settings = settings_of(site.url, 3)
        async with connect(settings, "test") as bus:
            await bus.provision(CLUSTER, settings)
            teller, before = Teller(bus), retries()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(teller.run)
                await teller.goes_on()
                for _ in range(ELECTIONS):
                    leader = await site.leader(bus, FACTS)
                    leader.kill()
                    await teller.goes_on()
                    leader.start()
                    await teller.goes_on()
                    if retries() > before:  # Else our connection broke too, and was back after the election.
                        break
                tasks.cancel_scope.cancel()
            assert retries() > before

            stored = [fact.number for fact in await stored_facts(bus)]
            assert stored[: teller.told] == list(range(1, teller.told + 1))


async def test_a_view_is_complete_only_with_all_that_was_acknowledged_while_its_replica_was_away(
    tmp_path: Path,
) -> None:
    with Site(tmp_path, 3) as site:
        settings = settings_of(site.url, 3)
        async with connect(settings, "test") as bus:
            await bus.provision(CLUSTER, settings)
            leader = await site.leader(bus, STATES)
            away = next(server for server in site.servers if server is not leader)
            away.kill()
            await store(bus)
            away.start()  # It has yet to read what it missed when the views are given their replicas.
            views = [StateView(bus, CLUSTER, SlurmNodeState) for _ in range(6)]
            async with following(*views):
                for view in views:
                    with anyio.fail_after(WITHIN_S):
                        await view.complete()
                    assert len(view) == KEYS


KEYS = 300
ELECTIONS = 6
"""One is enough but where our own connection was to the leader."""


async def store(bus: Bus) -> None:
    """Store keys that no replica which is away can know."""
    bucket = subjects.bucket(CLUSTER, SlurmNodeState)
    for number in range(KEYS):
        state = SlurmNodeState(node=f"n{number}", state="IDLE", changed=NOW)
        await stored(bus, subjects.key_subject(bucket, state.node), encode(state))


async def stored(bus: Bus, subject: str, data: bytes) -> None:
    while True:
        try:
            await bus.publish(subject, data)
        except TransientError:
            continue
        return
