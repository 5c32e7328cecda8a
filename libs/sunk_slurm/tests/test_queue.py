"""Where a job stands in Slurm's queue."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.jobs import SlurmJobState
from sunk_slurm.queue import SHOWN_MAX, place, place_finding

T0 = datetime(2026, 1, 5, 12, tzinfo=UTC)


def waiting(job: int, priority: int | None = 100, partition: str = "gpu") -> SlurmJobState:
    return SlurmJobState(
        changed=T0,
        job=job,
        state="PENDING",
        partition=partition,
        priority=priority,
        user="ada",
        reason="Priority",
    )


MINE = waiting(7)


def test_the_higher_priority_is_ahead_and_of_equal_ones_the_lower_number() -> None:
    jobs = [waiting(9, 300), waiting(8), waiting(6), waiting(5, 50), MINE]

    found = place(MINE, jobs)

    assert (found.first, found.last, found.size) == (3, 3, 5)
    assert [job.job for job in found.ahead] == [9, 6]


@pytest.mark.parametrize(
    ("other", "is_in_queue"),
    [
        pytest.param(waiting(1), True, id="waits"),
        pytest.param(waiting(1, partition="cpu"), False, id="another partition"),
        pytest.param(waiting(1, partition="cpu,gpu"), True, id="either of two partitions"),
        pytest.param(replace(waiting(1, 0), is_held=True), False, id="held"),
        pytest.param(replace(waiting(1), is_dependency_pending=True), False, id="waits for another job"),
        pytest.param(replace(waiting(1), reason="BeginTime"), False, id="its time has not come"),
        pytest.param(replace(waiting(1), state="RUNNING", is_running=True), False, id="runs"),
        pytest.param(replace(waiting(1), state="CANCELLED", is_over=True), False, id="over"),
    ],
)
def test_who_waits_for_the_same_nodes_is_in_the_queue(other: SlurmJobState, *, is_in_queue: bool) -> None:
    assert place(MINE, [other]).size == 1 + is_in_queue


def test_each_task_of_an_array_takes_a_place() -> None:
    found = place(MINE, [replace(waiting(1), array_tasks=900), replace(waiting(9), array_tasks=20)])

    assert (found.first, found.size) == (901, 921)


def test_a_priority_that_is_not_known_makes_a_range() -> None:
    released = replace(waiting(2, 0), is_held=True)  # The bus has heard of its hold only.
    jobs = [waiting(1, 200), released, waiting(3, None)]

    found = place(MINE, jobs, {2})

    assert (found.first, found.last, found.size) == (2, 4, 4)
    assert place(waiting(7, None), jobs).last == 3


def test_it_is_said_in_an_operators_words() -> None:
    finding = place_finding(MINE, [waiting(3, 200), replace(waiting(4, 150), array_tasks=9), MINE])

    assert finding.what == "place 11 of 11 in the queue of gpu"
    assert finding.because == "ahead: job 3 of ada (Priority), job 4 of ada (Priority, 9 tasks)"
    assert "its priority (100)" in finding.would_change
    assert place_finding(MINE, []).because == "no job is known to be ahead"


def test_of_many_the_first_are_named() -> None:
    finding = place_finding(MINE, [waiting(number, number) for number in range(101, 141)])

    assert finding.because.startswith("ahead: job 140 of ada")
    assert finding.because.count("job ") == SHOWN_MAX
    assert finding.because.endswith(" and 35 more")


@given(
    st.lists(st.builds(waiting, st.integers(1, 30), st.none() | st.integers(0, 5)), max_size=12),
    st.none() | st.integers(0, 5),
    st.integers(1, 30),
)
def test_a_place_is_never_outside_the_queue(
    jobs: list[SlurmJobState], priority: int | None, number: int
) -> None:
    found = place(waiting(number, priority), jobs)

    assert 1 <= found.first <= found.last <= found.size


@given(st.text(max_size=2000), st.text(max_size=2000))
def test_what_users_write_fits(user: str, partition: str) -> None:
    other = replace(waiting(1, 200, partition[:500]), user=user)
    finding = place_finding(replace(MINE, partition=partition[:500]), [other] * 6)

    assert max(map(len, (finding.what, finding.because, finding.would_change))) <= REASON_MAX
