"""The model of NATS passes the very tests that nats-server passes, and does what only a model can.

The tests are the project's own, which run against nats-server wherever they stand; here they run once more
with the model in its place, in virtual time. Where the two differ the model is wrong.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import anyio
import pytest

from sunk_events import subjects
from sunk_events.codec import encode
from sunk_events.nodes import SlurmNodeState
from sunk_runtime.errors import BusUnavailableError, ConflictError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_simulation import contract
from sunk_simulation.bus.model import ModelNats
from sunk_simulation.simulation import Simulation

CONTRACT = (
    *(
        f"libs/sunk_runtime/tests/test_{name}.py"
        for name in (
            "bad_input",
            "bus",
            "fencing",
            "leases",
            "provision",
            "pull",
            "requests",
            "rights",
            "settle",
            "traps",
            "views",
            "writer",
        )
    ),
    "tests/bus/test_full.py",
    "tests/bus/test_wipe.py",
    *(
        f"services/syncer/tests/pollers/test_{name}.py"
        for name in ("absence", "lost_bucket", "missing_jobs", "rounds", "statistics")
    ),
    "services/syncer/tests/adapters/test_views.py",
    "services/syncer/tests/writers/test_crowds.py",
)
NOT_OF_THE_MODEL = (
    "replica_that_lags",  # By a mirror, which the model has not; `ModelNats.lag` is its own way, below.
    "full_disk",  # It has no disk; that JetStream's limits are reached is in the same file.
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUCKET = subjects.bucket("c1", SlurmNodeState)
STREAM = subjects.bucket_stream(BUCKET)
SETTINGS = BusSettings(url="nats://nats:4222")


@pytest.mark.parametrize("file", CONTRACT)
def test_the_model_passes_the_tests_of_nats_server(file: str) -> None:
    contract.run(file, "bus", but=NOT_OF_THE_MODEL)


def run(story: Callable[[ModelNats, Bus], Awaitable[None]]) -> None:
    """Run *story* with a bus of which it has the server."""
    with Simulation() as sim:
        nats = ModelNats(sim.loop, sim.trace, sim.random("nats"))
        nats.start()

        async def whole() -> None:
            async with connect(SETTINGS, "test") as bus:
                await bus.provision("c1", SETTINGS)
                await story(nats, bus)

        sim.run(whole())


async def put(bus: Bus, key: str, revision: int = 0) -> int:
    data = encode(SlurmNodeState(node=key, state="IDLE", changed=NOW))
    return await bus.publish(subjects.key_subject(BUCKET, key), data, expected_revision=revision)


def test_an_answer_that_is_lost_took_effect() -> None:
    async def story(nats: ModelNats, bus: Bus) -> None:
        bus.publish_timeout_s = 1.0
        nats.lose_answers()
        with pytest.raises(BusUnavailableError):
            await put(bus, "n1")
        with pytest.raises(ConflictError):
            await put(bus, "n1")

    run(story)


def test_what_was_not_synced_is_lost_with_the_power_and_only_that() -> None:
    async def story(nats: ModelNats, bus: Bus) -> None:
        view = StateView(bus, "c1", SlurmNodeState)
        async with following(view):
            await put(bus, "early")
            await anyio.sleep(150)
            await put(bus, "late")
            await until(lambda: len(view) == 2)
            nats.lose_power()
            nats.start()
            await until(lambda: view.keys() == ["early"])

    run(story)


def test_a_store_may_go_back_or_be_new() -> None:
    async def story(nats: ModelNats, bus: Bus) -> None:
        first = await put(bus, "n1")
        older = nats.store.copy()
        await put(bus, "n1", first)
        nats.go_back(older)
        nats.start()
        await until(lambda: bus.reconnects == 1)
        found = await bus.last(STREAM, subjects.key_subject(BUCKET, "n1"))
        assert found is not None
        assert found[0] == first

        nats.be_new()
        nats.start()
        await until(lambda: bus.reconnects == 2)
        await bus.provision("c1", SETTINGS)
        assert await bus.last(STREAM, subjects.key_subject(BUCKET, "n1")) is None

    run(story)


def test_a_replica_that_lags_hides_what_its_leader_has_for_a_while() -> None:
    async def story(nats: ModelNats, bus: Bus) -> None:
        for key in ("n1", "n2", "n3"):
            await put(bus, key)
        nats.lag(STREAM, 1, 30)
        view = StateView(bus, "c1", SlurmNodeState)
        async with following(view):
            await until(lambda: len(view) == 2)
            assert not view.is_complete
            await until(lambda: view.is_complete, within_s=60)
            assert len(view) == 3

    run(story)


def test_while_a_stream_has_no_leader_nobody_answers_what_is_published_to_it() -> None:
    async def story(nats: ModelNats, bus: Bus) -> None:
        nats.have_no_leader(STREAM, 5)
        with pytest.raises(BusUnavailableError):
            await put(bus, "n1")
        await anyio.sleep(6)
        await put(bus, "n1")

    run(story)
