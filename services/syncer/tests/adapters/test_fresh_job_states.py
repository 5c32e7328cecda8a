"""Who asks for the states of all jobs has a list that was asked for after he came, and few are asked for."""

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from sunk_runtime.errors import PermanentError, SunkError, TransientError
from sunk_runtime.testing import WITHIN_S, until
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.reads import KnownJob
from sunk_slurm.states import JobState
from sunk_syncer.adapters.fresh_job_states import REST, FreshStates
from sunk_syncer.testing.quiet_slurm import QuietSlurm

pytestmark = pytest.mark.anyio


class Slurm(QuietSlurm):
    """Answers a list with the jobs that ran when it was asked for, once it may."""

    def __init__(self) -> None:
        super().__init__("RUNNING")
        self.lists = 0
        self.begins, self.ends = list[float](), list[float]()
        """Of lists, in the event loop's time."""
        self.may_answer = anyio.Event()
        self.fails: SunkError | None = None

    async def job_states(self) -> dict[int, KnownJob]:
        self.lists += 1
        self.begins.append(anyio.current_time())
        running = dict.fromkeys(self.jobs, KnownJob(JobState.of(("RUNNING",))))
        await self.may_answer.wait()
        self.ends.append(anyio.current_time())
        if self.fails is not None:
            raise self.fails
        return running


def asking(states: FreshStates, found: list[set[int] | None]) -> Callable[[], Coroutine[Any, Any, None]]:
    async def ask() -> None:
        try:
            found.append(set(await states.listed()))
        except TransientError:
            found.append(None)

    return ask


async def test_who_comes_while_a_list_is_on_its_way_has_the_next_one_which_all_share() -> None:
    slurm, found = Slurm(), list[set[int] | None]()
    states = FreshStates(slurm, timeout_s=5)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking(states, found))
        await until(lambda: slurm.lists == 1)
        slurm.jobs = (7,)  # The other has ended since.
        for _ in range(20):
            tasks.start_soon(asking(states, found))
        await anyio.sleep(0.01)
        slurm.may_answer.set()

    assert found == [{7, 8}, *[{7}] * 20]
    assert slurm.lists == 2


@pytest.mark.parametrize("error", [SlurmUnavailableError("HTTP 500"), PermanentError("access denied")])
async def test_a_list_that_fails_fails_all_who_wait_for_it_and_nobody_waits_in_line_for_another(
    error: SunkError,
) -> None:
    slurm, found = Slurm(), list[set[int] | None]()
    slurm.fails = error
    states = FreshStates(slurm, timeout_s=5)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking(states, found))
        await until(lambda: slurm.lists == 1)
        for _ in range(20):
            tasks.start_soon(asking(states, found))
        await anyio.sleep(0.01)
        slurm.may_answer.set()

    assert found == [None] * 21
    assert slurm.lists == 2
    slurm.fails = None
    assert set(await states.listed()) == {7, 8}


async def test_after_a_list_follows_a_rest_that_is_longer_than_it() -> None:
    slurm, found = Slurm(), list[set[int] | None]()
    states = FreshStates(slurm, timeout_s=WITHIN_S)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking(states, found))
        await until(lambda: slurm.lists == 1)
        await anyio.sleep(0.1)
        slurm.may_answer.set()

    await states.listed()

    took_s = slurm.ends[0] - slurm.begins[0]
    assert slurm.begins[1] - slurm.ends[0] >= REST * took_s
