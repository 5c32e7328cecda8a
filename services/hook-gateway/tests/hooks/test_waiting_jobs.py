"""Which nodes a job waits for, and how often such jobs are told of it."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from sunk_events.locks import LockHolder, LockState
from sunk_hook_gateway.hooks.waiting_jobs import Rounds, WaitingJobs

NOW = datetime(2026, 1, 1, 14, 4, 40, tzinfo=UTC)


def lock(node: str, jobs: frozenset[int]) -> LockState:
    holders = tuple(LockHolder(job=job, level="normal") for job in sorted(jobs))
    return LockState(changed=NOW, node=node, kube_node="k1", lock="pending", holders=holders, leaving=1)


@given(
    st.lists(
        st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.none() | st.frozensets(st.integers(1, 4))),
        max_size=20,
    )
)
def test_the_index_has_for_each_job_the_nodes_of_the_last_states(
    states: list[tuple[str, frozenset[int] | None]],
) -> None:
    index, last = WaitingJobs(), dict[str, frozenset[int]]()
    for node, jobs in states:
        index.take(node, None if jobs is None else lock(node, jobs))
        last[node] = jobs or frozenset[int]()

    for job in range(1, 5):
        assert set(index.nodes(job)) == {node for node, jobs in last.items() if job in jobs}


def test_rounds_let_so_many_through_and_the_others_know_how_long_to_wait() -> None:
    rounds = Rounds(2, 1.0)

    assert [rounds.wait_s(10.0), rounds.wait_s(10.1), rounds.wait_s(10.25)] == [0.0, 0.0, 0.75]
    assert rounds.wait_s(11.0) == 0.0
