"""Trials of the network between NATS and its clients, which all go through one cable."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio

from sunk_lab.cut import Cable, cable
from sunk_runtime.testing import until
from sunk_trials.stage import Site
from sunk_trials.trial import Outcome, Trial, concluded, staged, writer_and_consumer

RESETS: Final = 5


async def cut_trial(folder: Path, *, cut_s: float) -> Outcome:
    """Cut the network for *cut_s* seconds, and until the reader has noticed, while a writer writes."""

    async def suffer(trial: Trial, laid: Cable) -> None:
        await handled(trial, 100)
        laid.cut()
        consumer = await trial.actor("consumer")

        async def has_noticed() -> bool:
            return not (await consumer.report()).is_complete

        with anyio.fail_after(cut_s + 30):
            await until(has_noticed, within_s=30)
            await anyio.sleep(cut_s)
        laid.mend()
        await handled(trial, 100)

    return await _through_a_cable(folder, suffer)


async def reset_trial(folder: Path) -> Outcome:
    """Reset every connection again and again while a writer writes."""

    async def suffer(trial: Trial, laid: Cable) -> None:
        for _ in range(RESETS):
            await handled(trial, 50)
            await laid.reset()
        await handled(trial, 50)

    return await _through_a_cable(folder, suffer)


async def handled(trial: Trial, more: int) -> None:
    """Return when the consumer has handled *more* facts than now."""
    consumer = await trial.actor("consumer")
    wanted = (await consumer.report()).seen + more

    async def has_handled() -> bool:
        return (await consumer.report()).seen >= wanted

    await until(has_handled, within_s=90)


async def _through_a_cable(folder: Path, suffer: Callable[[Trial, Cable], Awaitable[None]]) -> Outcome:
    with Site(folder) as site:
        async with cable(site.url) as laid, staged(site, writer_and_consumer(folder, laid.url)) as trial:

            async def through(trial: Trial) -> None:
                await suffer(trial, laid)

            return await concluded(trial, through)
