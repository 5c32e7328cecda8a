import anyio
import pytest
from anyio.lowlevel import checkpoint

from sunk_nodeset_controller.nodeset_controller.reconciler import TimeSlicer

pytestmark = pytest.mark.anyio


async def test_everybody_else_has_a_turn_between_two_strides() -> None:
    turns: list[str] = []

    async def other() -> None:
        while True:
            turns.append("other")
            await checkpoint()

    def stride() -> int:
        turns.append("stride")
        return sum(range(100_000))

    time_slicer, found = TimeSlicer(), list[int]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        found += [await time_slicer.take(stride) for _ in range(2)]
        tasks.cancel_scope.cancel()

    first = turns.index("stride")
    assert "other" in turns[first : turns.index("stride", first + 1)]
    assert turns[-1] == "other"
    assert found == [sum(range(100_000))] * 2
    assert time_slicer.spent_s > 0
