"""What a prolog that is held for long costs: questions, which thousands of them ask of one answerer."""

from datetime import datetime

import anyio
import pytest
from msgspec.structs import replace

from sunk_events.base import Reply, Request
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.placements import PlacementState
from sunk_events.requests import LockGranted, LockWaiting
from sunk_hook_gateway.adapters.leave_count import LeaveCount
from sunk_hook_gateway.adapters.views import REMIND_S, Locks, Placements, reminder_s
from sunk_hook_gateway.config import Config
from sunk_hook_gateway.controller.prologs import Prologs
from sunk_hook_gateway.hooks import answers
from sunk_hook_gateway.hooks.answers import Answer
from sunk_hook_gateway.hooks.bodies import Prehook
from sunk_hook_gateway.testing.hooks import CLUSTER, NOW, lock_of, store
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_slurm.failed_locks import FailedLocks

pytestmark = pytest.mark.anyio

NODE = "h11"
JOB = 16


async def test_a_lock_that_is_noted_as_asked_for_is_asked_for_again_only_when_that_is_no_longer_so(
    bus: Bus,
) -> None:
    assert reminder_s(NODE, 0.0) > 50  # So none comes in between.
    view = StateView(bus, CLUSTER, LockState)
    locks, asked, told = Locks(view), [0], list[Answer]()

    async def says(granted: datetime | None, *in_the_way: str) -> None:
        await store(bus, NODE, replace(lock_of(NODE, JOB, granted), in_the_way=in_the_way))

    async def ask(request: Request, *, timeout_s: float) -> Reply:  # noqa: ARG001 - as a gateway's
        asked[0] += 1
        if (lock := locks.get(NODE)) is not None and lock.lock == "locked":
            return LockGranted()
        await says(None)
        await until(lambda: locks.is_waited_for(NODE, JOB))
        return LockWaiting(in_the_way=("ns/web",))

    async def prolog() -> None:
        prologs = Prologs(
            ask,
            Config(cluster=CLUSTER),
            nodes=StateView(bus, CLUSTER, SlurmNodeState),
            locks=locks,
            placements=Placements(StateView(bus, CLUSTER, PlacementState)),
            leaves=LeaveCount(bus, CLUSTER, FailedLocks()),
        )
        told.append(await prologs.prehook(NODE, Prehook(job=JOB, deadline_s=3000)))

    async with following(view), anyio.create_task_group() as tasks:
        tasks.start_soon(locks.run)
        await view.complete()
        tasks.start_soon(prolog)
        await until(lambda: locks.is_waited_for(NODE, JOB))
        for pods in (("ns/web",), ("ns/web", "ns/db"), ("ns/db",)):
            await says(None, *pods)
            await until(lambda pods=pods: (lock := locks.get(NODE)) is not None and lock.in_the_way == pods)
        await says(NOW)
        await until(lambda: bool(told))
        tasks.cancel_scope.cancel()

    assert told == [answers.LOCKED]
    assert asked == [2]


def test_reminders_come_by_the_prologs_own_time_and_not_of_all_nodes_at_once() -> None:
    fleet = [f"n{number:03d}" for number in range(600)]
    due = [reminder_s(node, 0.0) for node in fleet]

    assert all(0 < due_s <= REMIND_S for due_s in due)
    assert all(sum(begin < due_s <= begin + 10 for due_s in due) < 150 for begin in range(0, 60, 10))
    assert reminder_s("n1", 75.0) == pytest.approx((reminder_s("n1", 0.0) - 75.0) % REMIND_S)
