"""The rule that says which drain a Slurm node should have."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.locks import LockState
from sunk_events.nodesets import KubePodState
from sunk_slurm.states import NodeState
from sunk_syncer.drains import decide
from sunk_syncer.model import Action, DownNode, DrainNode, KubeSide, SlurmSide, UndrainNode

T0 = datetime(2026, 1, 5, 12, tzinfo=UTC)
READY = KubePodState(
    changed=T0,
    pod="n1",
    namespace="slurm",
    nodeset="compute",
    kube_node="k1",
    uid="uid-1",
    phase="running",
    is_ready=True,
)
CORDONED = replace(READY, is_cordoned=True, cordon_reason="disk")
NOT_READY = replace(READY, is_ready=False)
GONE = replace(READY, phase="gone", is_ready=False)
IDLE = NodeState.of(["IDLE"])
DRAINED = NodeState.of(["IDLE", "DRAIN"])
DRAINING = NodeState.of(["MIXED", "DRAIN"])
DOWN = NodeState.of(["DOWN", "NOT_RESPONDING"])
DOWN_DRAINED = NodeState.of(["DOWN", "DRAIN"])
PREHOOK = "k8s: prolog pre-hook failed: team/web (sunk:verify-undrain)"


def decided(
    state: NodeState = IDLE,
    reason: str = "",
    pod: KubePodState | None = READY,
    *,
    age_s: float = 3600,
    is_overdue: bool = False,
    is_downed: bool = False,
    in_the_way: tuple[str, ...] = (),
) -> tuple[Action, ...]:
    lock = LockState(changed=T0, node="n1", kube_node="k1", lock="false", in_the_way=in_the_way)
    slurm = SlurmSide(node="n1", state=state, reason=reason, reason_age_s=age_s)
    kube = KubeSide(pod=pod, is_overdue=is_overdue, is_downed=is_downed, lock=lock)
    return decide(slurm, kube, prehook_pause_s=30)


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param(CORDONED, "k8s: cordon: disk", id="cordoned"),
        pytest.param(replace(READY, is_cordoned=True), "k8s: cordon", id="cordoned without a reason"),
        pytest.param(NOT_READY, "k8s: pod not ready", id="not ready"),
        pytest.param(replace(CORDONED, is_ready=False), "k8s: pod not ready", id="not ready before cordoned"),
        pytest.param(
            replace(NOT_READY, is_condemned=True), "k8s: pod pending deletion", id="condemned first"
        ),
        pytest.param(replace(READY, phase="terminating"), "k8s: pod terminated", id="terminating"),
        pytest.param(
            replace(CORDONED, phase="terminating", is_condemned=True),
            "k8s: pod terminated: cordon: disk",
            id="terminating on a cordoned Node",
        ),
        pytest.param(replace(READY, phase="waiting", is_ready=False), "k8s: pod not ready", id="waiting"),
    ],
)
def test_the_first_cause_that_holds_gives_the_reason(pod: KubePodState, reason: str) -> None:
    assert decided(pod=pod) == (DrainNode("n1", reason),)


def test_a_ready_pod_wants_no_drain() -> None:
    assert decided() == ()


def test_a_drain_that_is_as_wanted_is_left_alone() -> None:
    assert decided(DRAINING, "k8s: cordon: disk", CORDONED) == ()


def test_our_reason_changes_with_the_cause() -> None:
    assert decided(DRAINED, "k8s: pod not ready", CORDONED) == (DrainNode("n1", "k8s: cordon: disk"),)


@pytest.mark.parametrize("state", [DRAINED, DRAINING, DOWN_DRAINED])
def test_our_drain_goes_with_its_cause_and_takes_only_the_flag_away(state: NodeState) -> None:
    assert decided(state, "k8s: pod not ready") == (UndrainNode("n1"),)


def test_an_old_reason_on_a_node_that_is_not_drained_means_nothing() -> None:
    assert decided(IDLE, "k8s: pod not ready") == ()


@pytest.mark.parametrize("reason", ["bad dimm", "", "see k8s: ticket", "K8S: shouted"])
@pytest.mark.parametrize("pod", [READY, CORDONED, NOT_READY])
def test_a_drain_of_someone_else_is_left_alone(pod: KubePodState, reason: str) -> None:
    assert decided(DRAINED, reason, pod) == ()


def test_a_node_that_slurm_set_down_is_left_to_slurm() -> None:
    assert decided(DOWN, "Not responding", NOT_READY) == ()
    assert decided(DOWN, "Not responding", READY) == ()


def test_a_pod_that_is_gone_drains_its_node_and_sets_it_down() -> None:
    assert decided(pod=GONE) == (
        DrainNode("n1", "k8s: pod terminated"),
        DownNode("n1", "k8s: pod terminated"),
    )


def test_a_pod_that_is_only_terminating_does_not_set_its_node_down() -> None:
    terminating = replace(READY, phase="terminating", is_ready=False)

    assert decided(pod=terminating) == (DrainNode("n1", "k8s: pod terminated"),)


def test_a_node_is_set_down_for_a_pod_once() -> None:
    assert decided(DRAINED, "k8s: pod terminated", GONE, is_downed=True) == ()
    assert decided(DOWN_DRAINED, "k8s: pod terminated", GONE) == ()


def test_a_foreign_drain_keeps_its_reason_when_the_node_is_set_down() -> None:
    assert decided(DRAINED, "bad dimm", GONE) == (DownNode("n1", None),)


def test_a_drain_for_a_pod_that_went_stays_until_the_new_one_is_ready() -> None:
    assert decided(DRAINED, "k8s: pod terminated: cordon: disk", NOT_READY) == ()
    assert decided(DRAINED, "k8s: pod terminated: cordon: disk", READY) == (UndrainNode("n1"),)


def test_an_overdue_pod_comes_before_everything_else() -> None:
    wanted = (DrainNode("n1", "k8s: pod deletion timeout"),)

    assert decided(is_overdue=True) == wanted
    assert decided(pod=CORDONED, is_overdue=True) == wanted
    assert decided(pod=None, is_overdue=True) == wanted
    assert decided(DRAINED, "k8s: pod deletion timeout", None) == (UndrainNode("n1"),)


def test_a_node_that_no_nodeset_knows_is_not_touched() -> None:
    assert decided(pod=None) == ()
    assert decided(DRAINED, "k8s: pod not ready", None) == ()


@pytest.mark.parametrize(
    ("age_s", "in_the_way", "actions"),
    [
        pytest.param(31, (), (UndrainNode("n1"),), id="nothing in the way: lifted"),
        pytest.param(31, ("team/web",), (), id="a Pod in the way: stays"),
        pytest.param(29, (), (), id="too young: a broken gateway must be no endless loop"),
    ],
)
def test_the_drain_of_a_failed_prolog_is_lifted_when_its_cause_is_gone(
    age_s: float, in_the_way: tuple[str, ...], actions: tuple[Action, ...]
) -> None:
    assert decided(DRAINED, PREHOOK, age_s=age_s, in_the_way=in_the_way) == actions


def test_the_drain_of_a_failed_prolog_gives_way_to_a_cause_of_ours() -> None:
    assert decided(DRAINED, PREHOOK, CORDONED) == (DrainNode("n1", "k8s: cordon: disk"),)


def test_a_long_reason_is_cut_and_then_stays_as_it_is() -> None:
    long = replace(CORDONED, cordon_reason="x" * 1024)
    (action,) = decided(pod=long)

    assert isinstance(action, DrainNode)
    assert len(action.reason) == 1024
    assert decided(DRAINED, action.reason, long) == ()


pods = st.builds(
    KubePodState,
    changed=st.just(T0),
    pod=st.just("n1"),
    namespace=st.just("slurm"),
    nodeset=st.just("compute"),
    kube_node=st.just("k1"),
    uid=st.just("uid-1"),
    phase=st.sampled_from(["waiting", "running", "terminating", "gone"]),
    is_ready=st.booleans(),
    is_condemned=st.booleans(),
    is_cordoned=st.booleans(),
    cordon_reason=st.sampled_from(["", "disk"]),
)
foreign = st.text(max_size=20).filter(lambda reason: not reason.startswith("k8s:"))


@given(
    state=st.sampled_from([DRAINED, DRAINING, DOWN_DRAINED]),
    reason=foreign,
    pod=st.none() | pods,
    is_overdue=st.booleans(),
)
def test_no_drain_of_someone_else_is_ever_changed_or_removed(
    *, state: NodeState, reason: str, pod: KubePodState | None, is_overdue: bool
) -> None:
    actions = decided(state, reason, pod, is_overdue=is_overdue)

    assert not any(isinstance(action, DrainNode | UndrainNode) for action in actions)
    assert all(action.reason is None for action in actions if isinstance(action, DownNode))


@given(pods)
def test_what_was_decided_is_stable_once_it_is_done(pod: KubePodState) -> None:
    for action in decided(pod=pod):
        if isinstance(action, DrainNode):
            assert not any(isinstance(again, DrainNode) for again in decided(DRAINED, action.reason, pod))
