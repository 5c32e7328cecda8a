"""What is done for many at a time."""

import anyio
import anyio.lowlevel
import pytest

from sunk_runtime.errors import ConflictError, PermanentError, TransientError
from sunk_runtime.together import AT_ONCE, each

pytestmark = pytest.mark.anyio


async def test_many_are_done_in_their_order_and_only_some_at_a_time() -> None:
    begun: list[int] = []
    under_way: set[int] = set()
    most = 0

    async def do(item: int) -> None:
        nonlocal most
        begun.append(item)
        under_way.add(item)
        most = max(most, len(under_way))
        await anyio.lowlevel.checkpoint()
        under_way.remove(item)

    await each(range(100), do)

    assert (begun, most) == (list(range(100)), AT_ONCE)


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        pytest.param([TransientError("later"), ConflictError("old")], TransientError, id="not what is stale"),
        pytest.param(
            [ConflictError("old"), PermanentError("never")], PermanentError, id="even if it is first"
        ),
        pytest.param([ConflictError("old")], ConflictError, id="unless there is nothing else"),
    ],
)
async def test_who_fails_holds_up_nobody_and_what_matters_most_is_told(
    errors: list[Exception], told: type[Exception]
) -> None:
    done: list[int] = []

    async def do(item: int) -> None:
        if item < len(errors):
            raise errors[item]
        done.append(item)

    with pytest.raises(told):
        await each(range(40), do)

    assert done == list(range(len(errors), 40))
