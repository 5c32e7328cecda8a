"""How much of a plan one turn carries out."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import pytest

from sunk_nodeset_controller.nodeset_controller.executor import gently
from sunk_runtime.errors import PermanentError
from sunk_runtime.together import AT_ONCE

pytestmark = pytest.mark.anyio


def work(done: list[int], count: int, *, pause_s: float = 0.0) -> list[Callable[[], Awaitable[None]]]:
    async def one(number: int) -> None:
        await anyio.sleep(pause_s)
        done.append(number)

    return [partial(one, number) for number in range(count)]


async def test_all_is_done_where_there_is_time() -> None:
    done: list[int] = []

    assert await gently(work(done, 40)) == 40
    assert sorted(done) == list(range(40))


async def test_a_turn_ends_in_time_and_what_it_has_not_begun_is_the_end() -> None:
    done: list[int] = []
    count = await gently(work(done, 10_000, pause_s=0.05), within_s=0.3)

    assert 0 < count < 10_000
    assert sorted(done) == list(range(count))


async def test_a_refusal_is_met_once_and_not_by_all() -> None:
    met: list[int] = []

    async def refused() -> None:
        met.append(1)
        raise PermanentError("quota")

    with pytest.raises(PermanentError):
        await gently([refused] * 1000)

    assert len(met) <= AT_ONCE
