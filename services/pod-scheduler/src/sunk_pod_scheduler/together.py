"""The same for many, some at a time."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import anyio

from sunk_runtime.errors import SunkError

T = TypeVar("T")

AT_ONCE: Final = 16
"""Calls for the Pods of one gang under way at a time."""


async def each(items: Iterable[T], do: Callable[[T], Awaitable[None]]) -> None:
    """Do it for every item, some at a time; one that fails holds up none, and its error is raised last."""
    failed: list[SunkError] = []
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def one(item: T) -> None:
        async with limit:
            try:
                await do(item)
            except SunkError as error:
                failed.append(error)

    async with anyio.create_task_group() as tasks:
        for item in items:
            tasks.start_soon(one, item)
    if failed:
        raise failed[0]
