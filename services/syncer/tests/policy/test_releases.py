"""Whose hold is a failed lock's, and how many of those jobs may go on."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.nodes import SlurmNodeState
from sunk_slurm.failed_locks import REASON_PREFIX, drains_at_most
from sunk_slurm.testing import job
from sunk_slurm.wire import Job, Number
from sunk_syncer.policy.releases import (
    HELD,
    REQUEUED_HELD,
    is_held_by_us,
    may_be_held_by_us,
    released_comment,
    room,
)
from sunk_syncer.states.jobs import job_state

T0 = datetime(2026, 1, 1, tzinfo=UTC)
WHY = "k8s: prolog pre-hook failed: ns/web (sunk:verify-undrain)"
OURS = replace(
    job(7, reason=HELD),
    hold=True,
    restart_cnt=1,
    state_description=REQUEUED_HELD,
    admin_comment=f"sunk: held: {WHY}",
)


def node(name: str, reason: str = "", *, is_drain: bool = True) -> SlurmNodeState:
    return SlurmNodeState(changed=T0, node=name, state="IDLE", is_drain=is_drain, reason=reason)


@pytest.mark.parametrize(
    ("changes", "is_ours"),
    [
        pytest.param({}, True, id="as the prolog left it"),
        pytest.param({"admin_comment": ""}, False, id="no mark"),
        pytest.param({"admin_comment": "see sunk: held: x"}, False, id="the mark is a beginning"),
        pytest.param({"admin_comment": f"sunk: released: {WHY}"}, False, id="released by us before"),
        pytest.param({"hold": False}, False, id="released"),
        pytest.param({"state_reason": "JobHeldAdmin"}, False, id="held by an administrator since"),
        pytest.param({"state_description": ""}, False, id="released by somebody, and held again"),
        pytest.param({"job_state": ("RUNNING",)}, False, id="runs"),
        pytest.param({"job_state": ("CANCELLED",)}, False, id="over"),
        pytest.param({"array_job_id": Number.of(7)}, False, id="several tasks of an array"),
        pytest.param({"array_job_id": Number.of(7), "array_task_id": Number.of(0)}, True, id="a task"),
        pytest.param({"het_job_id": Number.of(6)}, True, id="a component"),
        pytest.param({"array_job_id": Number.of(0), "het_job_id": Number.of(0)}, True, id="neither"),
    ],
)
def test_only_the_hold_of_a_failed_lock_is_ours(changes: dict[str, Any], *, is_ours: bool) -> None:
    assert is_held_by_us(replace(OURS, **changes)) is is_ours


@given(
    st.builds(
        replace,
        st.just(OURS),
        admin_comment=st.sampled_from([OURS.admin_comment, f"sunk: released: {WHY}", "", "ours"]),
        state_reason=st.sampled_from([HELD, "JobHeldAdmin", "Resources", "None"]),
        state_description=st.sampled_from([REQUEUED_HELD, ""]),
        hold=st.booleans(),
    )
)
def test_no_other_hold_is_released_and_none_twice(seen: Job) -> None:
    if is_held_by_us(seen):
        assert seen.hold
        assert (seen.state_reason, seen.admin_comment) == (HELD, OURS.admin_comment)
        released = replace(seen, admin_comment=released_comment(seen.admin_comment))
        assert not is_held_by_us(released)


def test_what_is_ours_is_looked_at_also_before_its_mark_is_known() -> None:
    told = job_state(replace(OURS, admin_comment=""), 1, T0)

    assert may_be_held_by_us(told)
    assert not may_be_held_by_us(replace(told, restarts=0))
    assert not may_be_held_by_us(replace(told, reason="JobHeldAdmin"))
    assert not may_be_held_by_us(replace(told, is_held=False))


def test_a_released_job_still_says_why_it_was_held() -> None:
    assert released_comment(OURS.admin_comment) == f"sunk: released: {WHY}"


@pytest.mark.parametrize(
    ("drained", "total", "on_trial", "expected"),
    [
        pytest.param(0, 10, 0, 2, id="none is drained"),
        pytest.param(1, 10, 0, 1, id="one more may be"),
        pytest.param(2, 10, 0, 0, id="as many as may be"),
        pytest.param(3, 10, 0, 0, id="and one too many"),
        pytest.param(0, 10, 2, 0, id="those released may drain theirs yet"),
        pytest.param(4, 1000, 3, 3, id="1 % of many"),
    ],
)
def test_no_more_go_on_than_failed_locks_may_drain_nodes(
    drained: int, total: int, on_trial: int, expected: int
) -> None:
    nodes = [node(f"n{n}", f"{REASON_PREFIX}: ns/a" if n < drained else "ticket 7") for n in range(total)]

    assert room(nodes, on_trial) == expected
    assert expected + drained + on_trial <= max(drains_at_most(total), drained + on_trial)


def test_a_reason_without_a_drain_drains_nothing() -> None:
    assert room([node("n1", REASON_PREFIX, is_drain=False)], 0) == 2
