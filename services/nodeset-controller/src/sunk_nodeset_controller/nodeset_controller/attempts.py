"""Many writes of one turn: the first ones carefully, and one that is refused keeps no other from being tried.

What must stay true: an API server that does not answer, or a view that is stale, ends the turn; one that
refuses all of a kind is asked for a few of that kind, one after the other, and not for 5,000.
"""

import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from sunk_kube.errors import KubeRejectedError
from sunk_runtime.together import each

REFUSED_MAX: Final = 8
"""Where so many of one kind are refused in a row, the rest of that kind is left to the next turn."""
A = TypeVar("A", bound=Hashable)


class Tried(NamedTuple, Generic[A]):
    """What has become of actions; one that is in neither was not begun."""

    done: tuple[A, ...]
    refused: Mapping[A, str]
    """In the API server's words."""


async def in_growing_batches(
    actions: Iterable[A], do: Callable[[A], Awaitable[None]], *, within_s: float = math.inf
) -> Tried[A]:
    """Do *actions* in their order, in batches that double while nothing is refused, for *within_s* seconds.

    Raises:
        SunkError: one that is no refusal, which a batch met; no batch follows it.
    """
    left, size, ends = list(actions), 1, time.monotonic() + within_s
    done: list[A] = []
    refused: dict[A, str] = {}
    in_a_row = Counter[type[A]]()

    async def one(action: A) -> None:
        kind = type(action)
        if time.monotonic() >= ends or in_a_row[kind] >= REFUSED_MAX:
            return
        try:
            await do(action)
        except KubeRejectedError as error:
            refused[action] = str(error)
            in_a_row[kind] += 1
        else:
            done.append(action)
            in_a_row[kind] = 0

    while left and time.monotonic() < ends:
        batch, left, before = left[:size], left[size:], len(refused)
        await each(batch, one)
        size = 1 if len(refused) > before else size * 2
    return Tried(tuple(done), refused)
