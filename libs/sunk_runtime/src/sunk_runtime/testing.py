"""Waiting in tests: for what must come, never for time to pass."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Final

import anyio

WITHIN_S: Final = 10.0
"""How long a test waits for what must come; far more than it takes."""


async def until(condition: Callable[[], bool | Awaitable[bool]], *, within_s: float = WITHIN_S) -> None:
    """Return when *condition* holds; fail when it does not within *within_s* seconds."""
    with anyio.fail_after(within_s):
        while True:
            holds = condition()
            if await holds if isawaitable(holds) else holds:
                return
            await anyio.sleep(0.01)
