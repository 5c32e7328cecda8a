"""The bound on drains of failed locks."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_events.locks import FailedLock, LockState
from sunk_events.nodes import SlurmNodeState
from sunk_slurm.failed_locks import LEAVE_S, REASON_PREFIX, FailedLocks, drained_for, still_failed

T0 = datetime(2026, 1, 1, tzinfo=UTC)
OURS = f"{REASON_PREFIX}: ns/web (sunk:verify-undrain)"


def node(name: str, reason: str) -> SlurmNodeState:
    return SlurmNodeState(changed=T0, node=name, state="IDLE", is_drain=bool(reason), reason=reason)


def failed(name: str, *pods: str) -> LockState:
    kept = FailedLock(at=T0, in_the_way=pods)
    return LockState(changed=T0, node=name, kube_node=name, lock="pending", failed=kept)


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
    assert drained_for(node("n0", f"{REASON_PREFIX}: {said} (sunk:verify-undrain)"), None) == pods
    assert drained_for(node("n0", f"k8s: cordon: {said}"), None) == ()
    assert drained_for(None, None) == ()


def test_a_node_is_drained_for_all_that_its_lock_keeps_and_for_those_that_only_the_reason_names() -> None:
    lock = failed("n0", "ns/db", "ns/web")

    assert drained_for(node("n0", OURS), lock) == ("ns/db", "ns/web")
    assert drained_for(node("n0", f"{REASON_PREFIX}: ns/new"), lock) == ("ns/db", "ns/web", "ns/new")
    assert drained_for(node("n0", ""), lock) == ()


@pytest.mark.parametrize(
    ("after_s", "slurm", "is_kept"),
    [
        pytest.param(LEAVE_S - 1, node("n0", ""), True, id="Slurm may not show the drain yet"),
        pytest.param(LEAVE_S + 1, node("n0", ""), False, id="no drain, or one that was lifted"),
        pytest.param(LEAVE_S + 1, node("n0", "k8s: cordon: x"), False, id="another's drain"),
        pytest.param(LEAVE_S + 1, node("n0", OURS), True, id="drained for it"),
        pytest.param(LEAVE_S + 1, None, True, id="Slurm does not know the node"),
    ],
)
def test_a_failed_lock_is_kept_while_it_counts_and_while_its_node_may_be_drained_for_it(
    after_s: float,
    slurm: SlurmNodeState | None,
    is_kept: bool,  # noqa: FBT001 - a table's column
) -> None:
    lock = failed("n0", "ns/web")

    at = T0 + timedelta(seconds=after_s)
    assert still_failed(lock, slurm, at, is_member=True) == (lock.failed if is_kept else None)
    assert still_failed(None, slurm, T0, is_member=True) is None


def test_a_failed_lock_of_a_node_that_nobody_has_or_knows_any_more_is_not_kept_for_ever() -> None:
    lock = failed("n0", "ns/web")
    soon, late = (T0 + timedelta(seconds=LEAVE_S + after_s) for after_s in (-1, 1))

    assert still_failed(lock, None, soon, is_member=False) == lock.failed
    assert still_failed(lock, None, late, is_member=False) is None
    assert still_failed(lock, node("n0", OURS), late, is_member=False) == lock.failed


def test_whoever_begins_to_count_counts_the_leaves_that_locks_keep_for_as_long_as_they_did() -> None:
    found = FailedLocks()
    for name in ("a", "b"):
        found.recall(failed(name), T0 + timedelta(seconds=LEAVE_S - 20), 1000)

    assert not found.may_drain("c", 4, 1019)
    assert found.may_drain("a", 4, 1019)
    assert found.may_drain("c", 4, 1020)


def test_a_leave_of_a_clock_that_is_ahead_counts_no_longer_than_others_and_an_old_one_not_at_all() -> None:
    found = FailedLocks()
    found.recall(failed("a"), T0 - timedelta(hours=1), 0)
    found.recall(failed("b"), T0 - timedelta(hours=1), 0)
    assert not found.may_drain("c", 4, LEAVE_S - 1)
    assert found.may_drain("c", 4, LEAVE_S)

    found.recall(failed("d"), T0 + timedelta(hours=1), 0)
    assert found.may_drain("c", 4, 0)


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
