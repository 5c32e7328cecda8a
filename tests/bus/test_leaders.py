"""Two real processes that want to lead, and one that is frozen for longer than its lease."""

from collections.abc import AsyncGenerator
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from sunk_runtime.jetstream import Bus, connect
from sunk_runtime.testing import until
from sunk_trials import stage
from sunk_trials.stage import Actor, Site, acting
from sunk_trials.verdict import fencing
from sunk_trials.words import WorkerSettings
from sunk_trials.worker import CLUSTER, settings_of

pytestmark = [pytest.mark.faults, pytest.mark.anyio]


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncGenerator[Bus]:
    with Site(tmp_path) as site:
        settings = settings_of(site.url, 1)
        async with connect(settings, "director") as bus:
            await bus.provision(CLUSTER, settings)
            await stage.witness(bus, 1)
            yield bus


def contender(bus_url: str, folder: Path, name: str) -> WorkerSettings:
    return WorkerSettings(
        role="contender", name=name, url=bus_url, journal=str(folder / f"{name}.journal"), lease_ttl_s=6
    )


async def goes_on(actor: Actor, more: int = 20) -> None:
    """Return when *actor* has written *more* than now."""
    wanted = (await actor.report()).writes + more

    async def has_written() -> bool:
        return (await actor.report()).writes >= wanted

    await until(has_written)


async def test_a_leader_that_was_frozen_for_longer_than_its_lease_writes_nothing_when_it_wakes(
    bus: Bus, tmp_path: Path
) -> None:
    url = Site(tmp_path).url
    async with acting(contender(url, tmp_path, "a")) as a:
        await goes_on(a)
        async with acting(contender(url, tmp_path, "b")) as b:
            for leader, other in ((a, b), (b, a)):
                leader.signal(SIGSTOP)
                await goes_on(other)
                leader.signal(SIGCONT)
                await leader.report()  # It is awake, and has had every chance to write.
                await goes_on(other, more=100)

    facts, states = await stage.stored_facts(bus), await stage.stored_states(bus)
    assert fencing(facts, states) == []
    assert len({int(fact.token) for fact in facts}) >= 3
    assert [fact.number for fact in facts] == list(range(1, len(facts) + 1))
