"""Leaves to drain a node are counted by all replicas together, and by each alone while the bus is away."""

from datetime import UTC, datetime, timedelta

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_events import subjects
from sunk_events.permissions import DRAIN_LEAVES
from sunk_hook_gateway.adapters.leave_count import LeaveCount
from sunk_hook_gateway.hooks.leaves import left, with_one_more
from sunk_hook_gateway.testing.hooks import CLUSTER, forget_leaves
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import WITHIN_S
from sunk_slurm.failed_locks import LEAVE_S, FailedLocks

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES = tuple(f"n{number}" for number in range(20))


def test_a_leave_counts_until_its_end_and_for_no_longer_than_one_may() -> None:
    data = with_one_more({"n1": 50.0}, "n2", NOW)

    assert left(data, NOW + timedelta(seconds=49)) == {"n1": 1.0, "n2": LEAVE_S - 49}
    assert left(data, NOW + timedelta(seconds=50)) == {"n2": LEAVE_S - 50}
    assert left(data, NOW - timedelta(hours=1)) == {"n1": LEAVE_S, "n2": LEAVE_S}  # A clock is off.
    assert left(b"", NOW) == {}


@pytest.mark.parametrize("data", [b"no JSON", b"[]", b'{"until": {"n1": "2026-01-01T00:00:00"}}'])
def test_leaves_that_cannot_be_read_are_unknown(data: bytes) -> None:
    with pytest.raises(TransientError):
        left(data, NOW)


@given(st.lists(st.sampled_from(NODES), max_size=30))
def test_who_is_given_leave_counts_once_however_often_it_is(nodes: list[str]) -> None:
    data = b""
    for node in nodes:
        data = with_one_more(left(data, NOW), node, NOW)

    assert left(data, NOW) == dict.fromkeys(nodes, LEAVE_S)


@pytest.mark.anyio
async def test_replicas_that_ask_at_once_give_no_more_leaves_than_one(bus: Bus) -> None:
    await forget_leaves(bus)
    replicas = [LeaveCount(bus, CLUSTER, FailedLocks(), within_s=WITHIN_S) for _ in range(3)]
    given_to: set[str] = set()

    async def ask(replica: LeaveCount, node: str) -> None:
        if await replica.take(node, len(NODES)):
            given_to.add(node)

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            for number, node in enumerate(NODES):
                tasks.start_soon(ask, replicas[number % 3], node)

    assert len(given_to) == 2
    late = LeaveCount(bus, CLUSTER, FailedLocks(), within_s=WITHIN_S)
    assert {node for node in NODES if await late.take(node, len(NODES))} == given_to


@pytest.mark.anyio
async def test_while_what_is_counted_cannot_be_read_a_replica_counts_for_itself(bus: Bus) -> None:
    subject = subjects.key_subject(subjects.lease_bucket(CLUSTER), DRAIN_LEAVES)
    await bus.publish(subject, b"what is this?")
    alone = LeaveCount(bus, CLUSTER, FailedLocks(), within_s=WITHIN_S)

    assert [await alone.take(node, len(NODES)) for node in NODES] == [True, True] + [False] * 18
    await forget_leaves(bus)
