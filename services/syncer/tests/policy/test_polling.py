"""What is believed of what Slurm answers, how often it is asked, and which of two looks is the newer."""

import pytest
from msgspec.structs import replace

from sunk_events.requests import NodeConfirmed
from sunk_slurm.testing import node
from sunk_syncer.policy.polling import LossGuard, PollBudget, pause
from sunk_syncer.rpc.handlers import confirmed
from sunk_syncer.states.node_cache import CacheUpdate, NodeCache

BUSY = replace(node("n1", "ALLOCATED"), alloc_cpus=2)
IDLE = node("n1", "IDLE")


def known(count: int) -> set[str]:
    return {f"n{index}" for index in range(count)}


def test_asking_costs_its_share_of_a_core_and_no_more() -> None:
    assert pause(0.003, poll_s=1, poll_max_s=15, share=0.1) == 1
    assert pause(0.5, poll_s=1, poll_max_s=15, share=0.1) == pytest.approx(5)
    assert pause(4.0, poll_s=1, poll_max_s=15, share=0.1) == 15


def test_what_was_not_asked_for_is_saved_up_for_a_few_answers_and_no_more() -> None:
    budget = PollBudget(counted=0.0).spent(0.5, 600.0, 0.1)
    saved = [budget.credit_s]
    for turn in range(1, 4):
        budget = budget.spent(0.5, 600.0 + turn, 0.1)
        saved.append(budget.credit_s)

    assert saved == pytest.approx([1.0, 0.6, 0.2, -0.2])
    assert budget.spent(0.5, 603.0, 0.1).credit_s == -0.5


@pytest.mark.parametrize(
    ("knew", "missing", "is_doubted"),
    [
        pytest.param(100, 0, False, id="nothing is missing"),
        pytest.param(4, 3, False, id="three of four"),
        pytest.param(100, 10, False, id="a tenth"),
        pytest.param(100, 11, True, id="more than a tenth"),
        pytest.param(2, 2, True, id="both of two"),
        pytest.param(1, 1, True, id="the only one: one big job has all nodes"),
        pytest.param(10_000, 10_000, True, id="everything"),
    ],
)
def test_an_answer_that_suddenly_knows_far_less_is_doubted(
    knew: int, missing: int, *, is_doubted: bool
) -> None:
    doubt = LossGuard().after(known(knew), known(knew) - known(missing), 100.0)

    assert (doubt.since is not None) is is_doubted
    assert doubt.is_over(100.0, 30) is not is_doubted


def test_a_doubt_ends_when_it_lasted_and_when_an_answer_is_whole_again() -> None:
    doubt = LossGuard().after(known(100), set(), 100.0).after(known(100), known(10), 120.0)

    assert not doubt.is_over(129.0, 30)
    assert doubt.is_over(130.0, 30)
    assert doubt.after(known(100), known(100), 125.0) == LossGuard()


def test_what_only_a_doubted_answer_names_is_not_counted_before_an_answer_without_doubt_names_it() -> None:
    foreign = {f"other{index}" for index in range(110)}
    doubt = LossGuard().after(known(10), foreign, 100.0)
    ended = doubt.after((known(10) | foreign) - doubt.unconfirmed, known(10), 105.0)
    again = ended.after((known(10) | foreign) - ended.unconfirmed, foreign, 110.0)
    ours_too = ended.after(known(10), known(10) | foreign, 110.0)

    assert doubt == LossGuard(100.0, frozenset(foreign))
    assert ended == LossGuard(unconfirmed=frozenset(foreign))
    assert again == LossGuard(110.0, frozenset(foreign))
    assert ours_too == LossGuard()


def test_a_list_asked_for_before_a_single_look_does_not_undo_it() -> None:
    cache = NodeCache()
    cache.take_list([IDLE], 1.0)
    cache.take_one("n1", node("n1", "IDLE", "DRAIN"), 3.0)
    taken = cache.take_list([IDLE, node("n2")], 2.0)
    again = cache.take_list([node("n1", "IDLE", "DRAIN"), node("n2")], 2.5)

    seen = cache.get("n1")
    assert seen is not None
    assert (taken, again) == (CacheUpdate(["n2"], is_disputed=True), CacheUpdate([], is_disputed=False))
    assert seen.state_now.is_drain


def test_counts_come_from_lists_and_are_zero_when_the_node_is_idle() -> None:
    cache = NodeCache()
    cache.take_list([BUSY], 1.0)
    cache.take_one("n1", replace(BUSY, alloc_cpus=4), 2.0)
    busy = cache.get("n1")
    cache.take_one("n1", replace(IDLE, alloc_cpus=2), 3.0)
    idle = cache.get("n1")

    assert busy is not None
    assert idle is not None
    assert (busy.alloc_cpus, idle.alloc_cpus) == (2, 0)


def test_a_list_names_what_changed_and_a_look_forgets_what_is_gone() -> None:
    cache = NodeCache()
    first = cache.take_list([IDLE, node("n2")], 1.0)
    second = cache.take_list([BUSY, node("n2")], 2.0)
    cache.take_one("n2", None, 3.0)

    assert (first.changed, second.changed, cache.names()) == (["n1", "n2"], ["n1"], {"n1"})


def test_nodes_are_restless_while_one_is_about_to_change_by_itself() -> None:
    cache = NodeCache()
    restless: list[bool] = []
    for words in (("IDLE",), ("IDLE", "COMPLETING"), ("DOWN", "NOT_RESPONDING"), ("IDLE", "NOT_RESPONDING")):
        cache.take_list([node("n1", *words), node("n2")], 1.0)
        restless.append(cache.is_changing)
    cache.take_one("n1", None, 2.0)

    assert restless == [False, True, False, True]
    assert not cache.is_changing


@pytest.mark.parametrize(
    ("words", "is_idle"),
    [
        pytest.param(("IDLE", "DRAIN"), True, id="drained"),
        pytest.param(("DOWN", "DRAIN"), True, id="drained and down"),
        pytest.param(("IDLE", "DRAIN", "COMPLETING"), False, id="an epilog runs"),
        pytest.param(("ALLOCATED", "DRAIN"), False, id="a job runs"),
        pytest.param(("IDLE",), False, id="not drained"),
        pytest.param(("UNKNOWN", "DRAIN"), False, id="slurmctld has just started"),
        pytest.param(("ODD", "DRAIN"), False, id="a word of a newer Slurm"),
    ],
)
def test_only_a_drained_and_idle_node_is_confirmed(words: tuple[str, ...], *, is_idle: bool) -> None:
    assert confirmed("n1", node("n1", *words), is_held=False).is_drained_and_idle is is_idle


def test_a_node_with_a_suspended_job_is_not_idle_whatever_slurm_calls_it() -> None:
    assert not confirmed("n1", node("n1", "IDLE", "DRAIN"), is_held=True).is_drained_and_idle


def test_an_unknown_node_is_confirmed_as_unknown() -> None:
    assert confirmed("n1", None, is_held=False) == NodeConfirmed(
        node="n1", is_known=False, is_drained_and_idle=False
    )


def test_a_node_that_was_never_looked_at_is_unknown_and_not_absent() -> None:
    cache = NodeCache()
    cache.take_one("gone", None, requested_at=1.0)

    assert (cache.is_absent("gone"), cache.is_absent("never seen")) == (True, False)
