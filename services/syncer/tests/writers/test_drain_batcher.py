"""Drains of many nodes in few calls."""

from collections.abc import Collection
from typing import Self

import anyio
import pytest

from sunk_runtime.errors import ConflictError, SunkError, TransientError
from sunk_runtime.leases import Leadership
from sunk_runtime.testing import until
from sunk_slurm.errors import SlurmRejectedError, SlurmUnavailableError
from sunk_syncer.writers.drain_batcher import DrainBatcher

pytestmark = pytest.mark.anyio

FOREVER = Leadership("syncer", 1, float("inf"))


class Slurm:
    """Takes drains when it is let, and refuses some nodes."""

    def __init__(self, *refused: str, error: SunkError | None = None) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.until: list[float] = []
        """Until when each call was to be sent."""
        self.let = anyio.Event()
        self._refused = set(refused)
        self._error = error

    def sending_until(self, moment: float) -> Self:
        self.until.append(moment)
        return self

    async def drain(self, name: str, reason: str) -> None:
        await self.drain_several([name], reason)

    async def drain_several(self, names: Collection[str], reason: str) -> None:
        del reason
        self.calls.append(tuple(names))
        await self.let.wait()
        if self._error is not None:
            raise self._error
        if self._refused & set(names):
            raise SlurmRejectedError("no such node", number=2018)


class Fleet:
    """Nodes that are drained at once, and what became of each."""

    def __init__(self, slurm: Slurm, *, leadership: Leadership = FOREVER) -> None:
        self.errors: dict[str, SunkError | None] = {}
        slots = anyio.CapacityLimiter(1)
        self.clock_s = 0.0
        self.asked: dict[str, float] = {}
        """When the look at a node was asked for; now, if nothing is said."""
        self.batcher = DrainBatcher(
            slurm, leadership, slots, timeout_s=5, others=lambda: 0, clock=lambda: self.clock_s
        )

    async def drain(self, name: str, reason: str = "k8s: cordon") -> None:
        try:
            await self.batcher.drain(name, reason, good_until=self.asked.get(name, self.clock_s) + 5)
        except SunkError as error:
            self.errors[name] = error
        else:
            self.errors[name] = None


async def drained(slurm: Slurm, fleet: Fleet, *names: str) -> None:
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(fleet.drain, name)
        await until(lambda: bool(slurm.calls))
        slurm.let.set()


async def test_one_node_is_drained_at_once() -> None:
    slurm = Slurm()
    fleet = Fleet(slurm)
    await drained(slurm, fleet, "n1")

    assert slurm.calls == [("n1",)]
    assert fleet.errors == {"n1": None}


async def test_whoever_comes_while_a_call_is_under_way_goes_together_in_the_next() -> None:
    slurm = Slurm()
    fleet = Fleet(slurm)
    names = [f"n{number}" for number in range(150)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.drain, "first")
        await until(lambda: bool(slurm.calls))
        for name in names:
            tasks.start_soon(fleet.drain, name)
        tasks.start_soon(fleet.drain, "other", "k8s: pod not ready")
        await until(lambda: fleet.batcher.waiting == 151)
        slurm.let.set()

    assert sorted(map(len, slurm.calls)) == [1, 1, 150]
    assert not any(fleet.errors.values())


async def test_one_node_that_slurm_refuses_holds_up_nobody() -> None:
    slurm = Slurm("bad")
    fleet = Fleet(slurm)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.drain, "first")
        await until(lambda: bool(slurm.calls))
        for name in ("n1", "bad", "n2"):
            tasks.start_soon(fleet.drain, name)
        await until(lambda: fleet.batcher.waiting == 3)
        slurm.let.set()

    assert slurm.calls[1] == ("n1", "bad", "n2")
    assert sorted(slurm.calls[2:]) == [("bad",), ("n1",), ("n2",)]
    assert [name for name, error in fleet.errors.items() if error] == ["bad"]
    assert isinstance(fleet.errors["bad"], SlurmRejectedError)


async def test_slurm_away_is_a_passing_error_for_all() -> None:
    slurm = Slurm(error=SlurmUnavailableError("away"))
    fleet = Fleet(slurm)
    await drained(slurm, fleet, "n1", "n2")

    assert all(isinstance(error, TransientError) for error in fleet.errors.values())


async def test_nothing_is_written_when_the_lease_may_have_ended() -> None:
    slurm = Slurm()
    fleet = Fleet(slurm, leadership=Leadership("syncer", 1, 0.0))
    await fleet.drain("n1")

    assert slurm.calls == []
    assert fleet.errors["n1"] is not None


async def test_what_was_read_too_long_ago_is_not_written_upon() -> None:
    slurm = Slurm()
    fleet = Fleet(slurm)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.drain, "first")
        await until(lambda: bool(slurm.calls))
        tasks.start_soon(fleet.drain, "n1")
        await until(lambda: fleet.batcher.waiting == 1)
        fleet.clock_s = 60
        slurm.let.set()

    assert slurm.calls == [("first",)]
    assert isinstance(fleet.errors["n1"], ConflictError)


async def test_a_look_that_was_long_in_coming_is_as_old_as_its_question_and_holds_up_nobody() -> None:
    slurm = Slurm()
    fleet = Fleet(slurm)
    fleet.clock_s, fleet.asked["n1"] = 60, 54
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.drain, "first")
        await until(lambda: bool(slurm.calls))
        tasks.start_soon(fleet.drain, "n1")
        tasks.start_soon(fleet.drain, "n2")
        await until(lambda: fleet.batcher.waiting == 2)
        slurm.let.set()

    assert slurm.calls == [("first",), ("n2",)]
    assert isinstance(fleet.errors["n1"], ConflictError)
    assert fleet.errors["n2"] is None


async def test_who_gives_up_waiting_is_not_written() -> None:
    slurm = Slurm()
    fleet = Fleet(slurm)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.drain, "first")
        await until(lambda: bool(slurm.calls))
        with anyio.move_on_after(0.05):
            await fleet.drain("n1")
        slurm.let.set()

    assert slurm.calls == [("first",)]
