"""The same for many, some at a time."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from sunk_runtime.errors import ConflictError, SunkError

T = TypeVar("T")

AT_ONCE: Final = 16
"""Calls under way: more would only wait in the API server's queue."""
BEGUN: Final = 256
"""Items that are begun without a pause."""


async def each(items: Iterable[T], do: Callable[[T], Awaitable[None]]) -> None:
    """Do it for every item, in their order, some at a time.

    Raises:
        SunkError: one that an item met, after all are done: a conflict only where nothing else is.
    """
    places = anyio.CapacityLimiter(AT_ONCE)  # The one that waits longest is next.
    errors: list[SunkError] = []

    async def one(item: T) -> None:
        async with places:
            try:
                await do(item)
            except SunkError as error:
                errors.append(error)

    async with anyio.create_task_group() as tasks:
        for number, item in enumerate(items, 1):
            tasks.start_soon(one, item)
            if number % BEGUN == 0:
                await checkpoint()
    if errors:
        raise min(errors, key=lambda error: isinstance(error, ConflictError))  # A stale view is harmless.
