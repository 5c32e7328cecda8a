"""When a prolog is told what to say: once, by one node of its job, and in rounds where many jobs wait."""

import anyio
import pytest
from msgspec.structs import replace

from sunk_events.locks import LockState
from sunk_hook_gateway.adapters.views import Locks
from sunk_hook_gateway.controller.notices import AGAIN_S, AT_ONCE, FIRST_S, Notices, first_look_s
from sunk_hook_gateway.hooks.bodies import Prehook
from sunk_hook_gateway.testing.hooks import CLUSTER, NOW, lock_of, store
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following

pytestmark = pytest.mark.anyio

JOB = 4711
SAID = "3 Pods have to leave node m1"


def asks(job: int = JOB, *, said: str | None = "", waited_s: float = FIRST_S) -> Prehook:
    return Prehook(job=job, said=said, waited_s=waited_s)


async def test_the_first_node_that_is_in_the_way_speaks_for_the_job(bus: Bus) -> None:
    view = StateView(bus, CLUSTER, LockState)
    locks = Locks(view)
    notices = Notices(locks)
    async with following(view), anyio.create_task_group() as tasks:
        tasks.start_soon(locks.run)
        await view.complete()
        for node in ("m0", "m1", "m2"):
            pods = ("secret/web",) if node != "m0" else ()
            await store(bus, node, replace(lock_of(node, JOB, None), in_the_way=pods, leaving=3 * len(pods)))
        await until(lambda: all(view.get(node) is not None for node in ("m0", "m1", "m2")))
        await until(lambda: notices.of("m1", asks()).take() != "")

        said = {node: notices.of(node, asks()).take() for node in ("m0", "m1", "m2")}
        assert said == {
            "m0": "",
            "m1": "6 Pods have to leave 2 nodes of this job (the first is m1)",
            "m2": "",
        }
        await store(bus, "m2", lock_of("m2", JOB, NOW))
        await until(lambda: notices.of("m1", asks()).take() == SAID)
        assert notices.of("m1", asks(said=None)).take() == ""
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("said", "waited_s", "look_s"),
    [
        pytest.param("", 0, FIRST_S, id="it has just begun"),
        pytest.param("", FIRST_S - 1, 1, id="it waits for a while"),
        pytest.param("", FIRST_S, 0, id="its first message is due"),
        pytest.param("", 60, AGAIN_S, id="there was nothing to say for long"),
        pytest.param(SAID, 60, AGAIN_S, id="it was told"),
    ],
)
def test_a_call_is_looked_at_early_only_before_the_first_message(
    said: str, waited_s: float, look_s: float
) -> None:
    assert first_look_s(asks(said=said, waited_s=waited_s)) == look_s


async def test_a_burst_is_told_in_rounds(bus: Bus) -> None:
    view = StateView(bus, CLUSTER, LockState)
    locks = Locks(view)
    nodes = [f"q{number}" for number in range(3 * AT_ONCE)]
    async with following(view), anyio.create_task_group() as tasks:
        tasks.start_soon(locks.run)
        await view.complete()
        for job, node in enumerate(nodes, JOB + 1):
            await store(bus, node, replace(lock_of(node, job, None), leaving=1))
        await until(lambda: all(locks.waited_for(node, job) for job, node in enumerate(nodes, JOB + 1)))
        notices = Notices(locks)

        calls = [notices.of(node, asks(job)) for job, node in enumerate(nodes, JOB + 1)]
        said = [call.take() for call in calls]

        assert sum(map(bool, said)) == AT_ONCE
        assert all(call.due_in_s > 0 for call, text in zip(calls, said, strict=True) if not text)
        tasks.cancel_scope.cancel()
