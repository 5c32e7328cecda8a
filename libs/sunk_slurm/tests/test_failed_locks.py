"""The bound on drains of failed locks."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_events.nodes import SlurmNodeState
from sunk_slurm.failed_locks import LEAVE_S, REASON_PREFIX, FailedLocks, drained_for

OURS = f"{REASON_PREFIX}: ns/web (sunk:verify-undrain)"


def node(name: str, reason: str) -> SlurmNodeState:
    changed = datetime(2026, 1, 1, tzinfo=UTC)
    return SlurmNodeState(changed=changed, node=name, state="IDLE", is_drain=bool(reason), reason=reason)


def drained(count: int) -> FailedLocks:
    found = FailedLocks()
    for number in range(count):
        found.take(f"n{number}", node(f"n{number}", OURS))
    return found


@pytest.mark.parametrize(
    ("count", "total", "may"),
    [
        pytest.param(0, 4, True, id="the first"),
        pytest.param(1, 4, True, id="the second"),
        pytest.param(2, 4, False, id="a third of a small cluster"),
        pytest.param(2, 199, False, id="1 % of less than 200 is less than two"),
        pytest.param(9, 1000, True, id="the tenth of a thousand"),
        pytest.param(10, 1000, False, id="the eleventh of a thousand"),
    ],
)
def test_one_blocked_eviction_does_not_drain_a_fleet(count: int, total: int, may: bool) -> None:  # noqa: FBT001 - a table's column
    assert drained(count).may_drain("new", total, 0) is may


def test_a_node_that_is_drained_already_counts_once() -> None:
    assert drained(2).may_drain("n1", 4, 0)


def test_a_leave_counts_from_when_it_is_given_until_slurm_had_time_to_show_the_drain() -> None:
    found = drained(0)
    found.give_leave("a", 0)
    found.give_leave("b", 1)

    assert not found.may_drain("c", 4, 2)
    assert found.may_drain("a", 4, 2)
    assert found.may_drain("c", 4, LEAVE_S)


def test_a_leave_that_became_a_drain_counts_once() -> None:
    found = drained(1)
    found.give_leave("n0", 0)

    assert found.may_drain("c", 4, 1)


@pytest.mark.parametrize(
    "now", [None, node("n0", ""), node("n0", "k8s: cordon: x")], ids=["gone", "no drain", "another's drain"]
)
def test_a_drain_that_is_no_more_makes_room(now: SlurmNodeState | None) -> None:
    found = drained(2)
    found.take("n0", now)

    assert found.may_drain("c", 4, 0)


@pytest.mark.parametrize(
    ("said", "pods"),
    [
        pytest.param("default/web-1", ("default/web-1",), id="one"),
        pytest.param(
            "ns/a (grace period of 600 s, since 12:00:00 UTC), ns/b.c (finalizer a.example/never) and 3 more",
            ("ns/a", "ns/b.c"),
            id="several, with what keeps them",
        ),
        pytest.param("no answer from the hook gateway", (), id="none"),
    ],
)
def test_the_pods_that_a_drain_is_for_are_read_from_its_reason(said: str, pods: tuple[str, ...]) -> None:
    assert drained_for(node("n0", f"{REASON_PREFIX}: {said} (sunk:verify-undrain)")) == pods
    assert drained_for(node("n0", f"k8s: cordon: {said}")) == ()
    assert drained_for(None) == ()


@given(total=st.integers(0, 500), asked=st.lists(st.integers(0, 40), max_size=40), count=st.integers(0, 40))
def test_a_cascade_of_failed_locks_never_drains_more_than_two_nodes_or_one_percent(
    total: int, asked: list[int], count: int
) -> None:
    found, nodes = drained(count), {f"n{number}" for number in range(count)}
    for number in asked:
        name = f"n{number}"
        if found.may_drain(name, total, 0):
            found.give_leave(name, 0)
            nodes.add(name)

    assert len(nodes) <= max(2, total // 100, count)
