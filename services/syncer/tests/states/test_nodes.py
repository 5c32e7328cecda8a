"""What is told of a Slurm node: its state, and what has happened to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from sunk_events.base import Cause
from sunk_events.codec import decode_event, decode_state, encode
from sunk_events.nodes import SlurmNodeState
from sunk_slurm.testing import T0, node
from sunk_slurm.wire import Number
from sunk_syncer.actions import (
    DeleteNode,
    DescribeNode,
    DownNode,
    DrainNode,
    NodeAction,
    ResumeNode,
    UndrainNode,
)
from sunk_syncer.states.nodes import is_reported, node_facts, node_removed, node_state

IDLE, DRAINED = ("IDLE",), ("IDLE", "DRAIN")
DRAINING, DOWN = ("ALLOCATED", "DRAIN"), ("DOWN", "NOT_RESPONDING")


def state(*words: str) -> SlurmNodeState:
    return node_state(node("n1", *words), T0)


def told(before: SlurmNodeState | None, after: SlurmNodeState) -> list[str]:
    facts = node_facts(before, after, cluster="lab", revision=7, now=T0)
    return [type(fact).__name__ for fact in facts]


@pytest.mark.parametrize(
    ("before", "after", "published"),
    [
        pytest.param(IDLE, DRAINED, ["NodeDrained"], id="idle to drained"),
        pytest.param(("MIXED",), DRAINING, ["NodeDraining"], id="busy node drained"),
        pytest.param(DRAINING, DRAINED, ["NodeIdle", "NodeDrained"], id="its last job left"),
        pytest.param(DRAINED, IDLE, ["NodeUndrained"], id="undrained"),
        pytest.param(DRAINED, DRAINED, [], id="drained stays drained: no news"),
        pytest.param(IDLE, ("MIXED",), ["NodeAllocated"], id="a job came"),
        pytest.param(("MIXED",), ("ALLOCATED",), [], id="another job came: it was allocated before"),
        pytest.param(("IDLE", "COMPLETING"), IDLE, ["NodeIdle"], id="its last epilog ended"),
        pytest.param(IDLE, ("IDLE", "NOT_RESPONDING"), ["NodeNotResponding"], id="its slurmd is silent"),
        pytest.param(("IDLE", "NOT_RESPONDING"), IDLE, ["NodeResponding"], id="its slurmd answers again"),
        pytest.param(IDLE, DOWN, ["NodeNotResponding", "NodeDown"], id="down"),
        pytest.param(DOWN, DRAINED, ["NodeResponding", "NodeDrained", "NodeUp"], id="up and drained at once"),
        pytest.param(DRAINED, ("DOWN", "DRAIN"), ["NodeDown"], id="a drained node goes down"),
        pytest.param(IDLE, ("BRAND_NEW",), [], id="a word of a newer Slurm is no news"),
    ],
)
def test_each_change_is_published_once(
    before: tuple[str, ...], after: tuple[str, ...], published: list[str]
) -> None:
    assert told(state(*before), state(*after)) == published


def test_a_node_that_is_seen_for_the_first_time_is_registered_and_what_it_is() -> None:
    assert told(None, state(*IDLE)) == ["NodeRegistered"]
    assert told(None, state("DOWN", "DRAIN")) == ["NodeRegistered", "NodeDrained", "NodeDown"]


def test_the_same_fact_on_the_same_revision_has_the_same_id_and_the_next_has_another() -> None:
    first, again = (
        node_facts(state(*IDLE), state(*DRAINED), cluster="lab", revision=7, now=T0) for _ in range(2)
    )
    later = node_facts(state(*IDLE), state(*DRAINED), cluster="lab", revision=9, now=T0)

    assert first == again
    assert first[0].id != later[0].id


def test_a_removal_is_a_fact_with_the_last_that_was_known() -> None:
    (fact,) = node_removed(state(*DRAINED), cluster="lab", revision=7, now=T0)

    assert (type(fact).__name__, fact.subject, fact.source) == ("NodeRemoved", "n1", "/lab/syncer")


def test_the_state_carries_what_the_metrics_need() -> None:
    seen = replace(node("n1", "ALLOCATED"), alloc_cpus=1, alloc_memory=2000, gres_used="gpu:h100:3(IDX:0-2)")
    told = node_state(seen, T0)

    assert (told.state, told.is_busy, told.cpus, told.cpus_allocated, told.gpus, told.gpus_allocated) == (
        "MIXED",
        True,
        4,
        1,
        8,
        3,
    )
    assert (told.memory_mib, told.memory_allocated_mib, told.partitions) == (16000, 2000, ("main",))


@given(
    st.lists(st.sampled_from(["IDLE", "MIXED", "DRAIN", "DOWN", "COMPLETING", "ODD"]), max_size=4),
    st.text(max_size=2000),
    st.integers(-5, 5),
    st.floats(allow_nan=True, allow_infinity=True),
)
def test_whatever_slurm_says_of_a_node_can_be_told_and_read(
    words: list[str], text: str, count: int, number: float
) -> None:
    seen = replace(
        node("n1", *words),
        reason=text,
        extra=text * 20,
        alloc_cpus=count,
        cpus=count,
        alloc_memory=count,
        gres=text,
        reason_changed_at=Number(set=True, number=number),
        boot_time=Number(set=True, number=-number),
        slurmd_start_time=Number(set=True, number=count),
    )
    after = node_state(seen, T0)

    assert decode_state(SlurmNodeState, encode(after)) == after
    for fact in node_facts(None, after, cluster="lab", revision=0, now=T0):
        assert decode_event(encode(fact)) == fact


CAUSE = Cause("pod:n1:7")
OURS = "k8s: cordon"


def drained(*words: str, reason: str = OURS) -> SlurmNodeState:
    return replace(state(*words), reason=reason)


@pytest.mark.parametrize(
    ("action", "before", "after", "named"),
    [
        pytest.param(
            DrainNode("n1", OURS, CAUSE), state("MIXED"), drained(*DRAINING), {"NodeDraining"}, id="draining"
        ),
        pytest.param(
            DrainNode("n1", OURS, CAUSE),
            drained(*DRAINING),
            drained(*DRAINED),
            {"NodeDrained"},
            id="drained, when its last job ends",
        ),
        pytest.param(
            DrainNode("n1", OURS, CAUSE),
            state(*IDLE),
            drained(*DRAINED, reason="fan"),
            set[str](),
            id="by hand",
        ),
        pytest.param(
            UndrainNode("n1", CAUSE), drained(*DRAINED), state(*IDLE), {"NodeUndrained"}, id="undrained"
        ),
        pytest.param(DownNode("n1", None, CAUSE), state(*IDLE), state("DOWN"), {"NodeDown"}, id="down"),
        pytest.param(ResumeNode("n1", CAUSE), state("DOWN"), state(*IDLE), {"NodeUp"}, id="up"),
        pytest.param(UndrainNode("n1", CAUSE), state(*IDLE), state("MIXED"), set[str](), id="a job came"),
        pytest.param(None, state(*IDLE), drained(*DRAINED), set[str](), id="not by us"),
    ],
)
def test_what_follows_from_a_deed_names_its_cause_and_nothing_else_does(
    action: NodeAction | None, before: SlurmNodeState, after: SlurmNodeState, named: set[str]
) -> None:
    facts = node_facts(
        before, after, cluster="lab", revision=7, now=T0, actions=() if action is None else (action,)
    )

    assert {type(fact).__name__ for fact in facts if fact.cause == CAUSE.id} == named
    assert all(fact.cause in {CAUSE.id, UNSET} for fact in facts)


def test_a_record_that_we_delete_names_why_and_one_that_goes_by_itself_nothing() -> None:
    action = DeleteNode("n1", CAUSE)

    (ours,) = node_removed(state(*IDLE), cluster="lab", revision=7, now=T0, actions=[action])
    (theirs,) = node_removed(state(*IDLE), cluster="lab", revision=7, now=T0)

    assert (ours.cause, theirs.cause) == (CAUSE.id, UNSET)


def test_what_else_was_done_to_the_node_takes_nothing_from_what_led_to_its_drain() -> None:
    actions = (DrainNode("n1", OURS, CAUSE), DescribeNode("n1", "{}", cause=Cause("another")))

    (fact,) = node_facts(state(*IDLE), drained(*DRAINED), cluster="lab", revision=7, now=T0, actions=actions)

    assert fact.cause == CAUSE.id
    assert not is_reported(actions[0], facts=[fact], state=drained(*DRAINING))
    assert is_reported(actions[0], facts=[fact], state=state(*IDLE))
    assert not is_reported(actions[1], facts=[fact], state=state(*IDLE))
