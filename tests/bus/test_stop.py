"""SIGTERM while a publish is under way, on a NATS that answers and on one that hangs."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from signal import SIGTERM

import anyio
import pytest

from sunk_runtime.testing import until
from sunk_trials.network import handled
from sunk_trials.stage import Actor, Site
from sunk_trials.trial import Trial, concluded, staged, writer_and_consumer

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

STOP_S = 60
"""Kubernetes is asked for 10 s, which a machine that does much else may need to end any process of Python."""
ROUNDS = 2


async def stop(actor: Actor) -> None:
    """Tell *actor* to stop and return when it has; it says that it stopped in order."""
    actor.signal(SIGTERM)
    with anyio.fail_after(STOP_S):
        assert await actor.ended() == 0


async def has_stopped_writing(actor: Actor) -> bool:
    """Whether a publish of *actor* waits: nothing was written between two looks."""
    before = (await actor.report()).writes
    await anyio.sleep(0.1)
    return (await actor.report()).writes == before


@pytest.mark.parametrize("role", ["writer", "consumer"])
async def test_a_process_that_is_told_to_stop_midway_ends_in_time_and_the_next_goes_on_from_there(
    tmp_path: Path, role: str
) -> None:
    async def suffer(trial: Trial) -> None:
        for _ in range(ROUNDS):
            await handled(trial, 30)
            await stop(await trial.actor(role))
            await trial.complete()
        await handled(trial, 30)

    await breaks_nothing(tmp_path, suffer)


async def test_a_writer_whose_publish_nobody_acknowledges_ends_in_time_and_the_next_repeats_it(
    tmp_path: Path,
) -> None:
    async def suffer(trial: Trial) -> None:
        await handled(trial, 30)
        (server,) = trial.site.servers
        writer = await trial.actor("writer")
        server.hang()
        try:
            await until(lambda: has_stopped_writing(writer))
            await stop(writer)
        finally:
            server.resume()
        await trial.complete()
        await handled(trial, 30)

    await breaks_nothing(tmp_path, suffer)


async def breaks_nothing(folder: Path, suffer: Callable[[Trial], Awaitable[None]]) -> None:
    with Site(folder) as site:
        async with staged(site, writer_and_consumer(folder, site.url)) as trial:
            assert (await concluded(trial, suffer)).breaches == []
