"""How often Slurm is asked: seldom while its counters stand still, at once when they move."""

import anyio
import pytest
from msgspec.structs import replace

from sunk_runtime.errors import TransientError
from sunk_runtime.testing import until
from sunk_slurm.diag import Diag, RpcCount
from sunk_slurm.testing import node
from sunk_syncer.pollers.poll_loop import Poller, PollSchedule
from sunk_syncer.states.activity import activity
from sunk_syncer.states.node_cache import NodeCache

QUICK = PollSchedule(poll_s=0.01, max_s=0.02, share=0.1, quiet_max_s=600, quiet_share=0.0001, timeout_s=5)


def diag(**counts: int) -> Diag:
    return Diag(
        rpcs_by_message_type=tuple(RpcCount(message_type=kind, count=count) for kind, count in counts.items())
    )


@pytest.mark.parametrize(
    ("kind", "stirred"),
    [
        ("REQUEST_NODE_INFO", ""),
        ("REQUEST_NODE_INFO_SINGLE", ""),
        ("REQUEST_STATS_INFO", ""),
        ("REQUEST_JOB_STATE", ""),
        ("REQUEST_AUTH_TOKEN", ""),
        ("REQUEST_PING", ""),
        ("REQUEST_UPDATE_NODE", "nodes jobs"),
        ("MESSAGE_NODE_REGISTRATION_STATUS", ""),
        ("REQUEST_SUBMIT_BATCH_JOB", "jobs"),
        ("REQUEST_KILL_JOB", "nodes jobs"),
        ("REQUEST_OF_TOMORROW", "nodes jobs"),
    ],
)
def test_what_only_looks_stirs_nothing_and_what_is_unknown_everything(kind: str, stirred: str) -> None:
    before, after = activity(diag(**{kind: 1})), activity(diag(**{kind: 2}))

    moved = [name for name in ("nodes", "jobs") if getattr(before, name) != getattr(after, name)]
    assert " ".join(moved) == stirred


def test_a_job_that_starts_stirs_nodes_and_counters_that_were_reset_stir_everything() -> None:
    before = activity(replace(diag(REQUEST_SUBMIT_BATCH_JOB=3), jobs_started=3))

    assert activity(replace(diag(REQUEST_SUBMIT_BATCH_JOB=3), jobs_started=4)).nodes != before.nodes
    assert activity(diag()) != before


def test_a_node_that_is_about_to_change_by_itself_is_watched() -> None:
    cache = NodeCache()
    cache.take_list([node("n1"), node("n2", "DOWN", "NOT_RESPONDING")], 1.0)
    was_restless = cache.is_changing
    cache.take_one("n1", node("n1", "IDLE", "COMPLETING"), 2.0)

    assert not was_restless
    assert cache.is_changing


@pytest.mark.anyio
async def test_a_list_is_asked_for_again_only_when_something_stirs() -> None:
    looks: list[int] = []
    looks_while_quiet = 0
    stirred = anyio.Event()

    async def look() -> bool:
        looks.append(len(looks))
        return True

    poller = Poller("nodes", look, QUICK, mark=lambda: stirred.wait)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(poller.run)
        await until(lambda: len(looks) == 1)
        await anyio.sleep(0.1)
        looks_while_quiet = len(looks)
        stirred.set()
        await until(lambda: len(looks) > 3)
        tasks.cancel_scope.cancel()

    assert looks_while_quiet == 1


@pytest.mark.anyio
async def test_a_look_that_failed_is_tried_again_at_once_when_slurm_is_back() -> None:
    looks: list[int] = []

    async def look() -> bool:
        looks.append(len(looks))
        raise TransientError("away")

    poller = Poller("nodes", look, replace(QUICK, poll_s=600, max_s=600))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(poller.run)
        for count in range(1, 8):  # Without being woken the seventh comes after half a minute.
            await until(lambda count=count: len(looks) == count)
            await anyio.sleep(0.01)
            poller.wake()
        tasks.cancel_scope.cancel()
