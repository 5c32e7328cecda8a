"""A question that is asked again while its answer is awaited.

While three NATS servers choose a leader they drop questions about its streams, without a word. A question
that was dropped waits for its whole time-out, although the next one would be answered. A server that is only
slow still has that time-out to answer the first.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

T = TypeVar("T")

AGAIN_S: Final = 1.0
TIMES: Final = 5
"""So many are under way at most: a server that is slow is not asked more."""


async def first_answer(question: Callable[[], Awaitable[T]]) -> T:
    """Return the first answer to *question*, asked up to `TIMES` times, or raise the first failure."""
    answers: list[T] = []
    failures: list[Exception] = []
    has_ended = anyio.Event()

    async def ask() -> None:
        try:
            answers.append(await question())
        except Exception as error:  # noqa: BLE001 - raised below, outside of the task group
            failures.append(error)
        has_ended.set()

    async with anyio.create_task_group() as tasks:
        for _ in range(TIMES):
            tasks.start_soon(ask)
            with anyio.move_on_after(AGAIN_S):
                await has_ended.wait()
                break
        await has_ended.wait()
        tasks.cancel_scope.cancel()
    if failures and not answers:
        raise failures[0]
    return answers[0]
