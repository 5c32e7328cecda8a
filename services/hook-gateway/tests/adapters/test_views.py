"""Calls that wait for the same lock are woken in the order in which they began to wait."""

import anyio
import pytest

from sunk_hook_gateway.adapters.views import Notifications

pytestmark = pytest.mark.anyio
CALLS = 50


async def test_calls_that_wait_for_one_node_are_woken_in_their_order() -> None:
    notifications, woken = Notifications[str](), list[int]()

    async def wait(call: int) -> None:
        with notifications.of("gpu-1") as watch:
            await watch.wait()
            woken.append(call)

    async with anyio.create_task_group() as tasks:
        for call in range(CALLS):
            tasks.start_soon(wait, call)
        await anyio.wait_all_tasks_blocked()
        notifications.notify("gpu-1")

    assert woken == list(range(CALLS))
