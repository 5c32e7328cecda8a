"""The rule that says which drain a Slurm node should have."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.base import Cause
from sunk_events.locks import LockState
from sunk_events.nodesets import KubePodState
from sunk_slurm.down_reasons import REQUEUE, down_reason, keeps_down_reason
from sunk_slurm.states import NodeState
from sunk_syncer.actions import Action, DownNode, DrainNode, KubeInputs, ResumeNode, SlurmInputs, UndrainNode
from sunk_syncer.policy.drains import cause, decide, urgency
from sunk_syncer.testing.stage import ready_pod

T0 = datetime(2026, 1, 5, 12, tzinfo=UTC)
READY = ready_pod("n1", changed=T0)
CORDONED = replace(READY, is_cordoned=True, cordon_reason="disk")
NOT_READY = replace(READY, is_ready=False)
CONDEMNED = replace(READY, is_condemned=True)
GONE = replace(READY, phase="gone", is_ready=False)
IDLE = NodeState.of(["IDLE"])
DRAINED = NodeState.of(["IDLE", "DRAIN"])
DRAINING = NodeState.of(["MIXED", "DRAIN"])
DOWN = NodeState.of(["DOWN", "NOT_RESPONDING"])
DOWN_DRAINED = NodeState.of(["DOWN", "DRAIN"])
FREE = LockState(changed=T0, node="n1", kube_node="k1", lock="false")
PREHOOK = "k8s: prolog pre-hook failed: team/web (sunk:verify-undrain)"


def decided(
    state: NodeState = IDLE,
    reason: str = "",
    pod: KubePodState | None = READY,
    *,
    age_s: float = 3600,
    is_overdue: bool = False,
    is_pod_leaving: bool = False,
    is_downed: bool = False,
    in_the_way: tuple[str, ...] = (),
    verified_age_s: float = float("inf"),
    is_lost: bool = False,
) -> tuple[Action, ...]:
    lock = replace(FREE, in_the_way=in_the_way)
    slurm = SlurmInputs(node="n1", state=state, reason=reason, reason_age_s=age_s)
    kube = KubeInputs(
        pod=pod,
        is_overdue=is_overdue,
        is_pod_leaving=is_pod_leaving,
        is_downed=is_downed,
        lock=lock,
        verified_age_s=verified_age_s,
        are_placements_known=not is_lost,
    )
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


@pytest.mark.parametrize(
    ("before", "pod", "reason"),
    [
        pytest.param("bad dimm", CONDEMNED, "k8s: pod pending deletion; was down: bad dimm", id="by hand"),
        pytest.param("", CONDEMNED, "k8s: pod pending deletion", id="without a reason"),
        pytest.param(
            "Not responding", CORDONED, "k8s: cordon: disk; was down: Not responding", id="to be emptied"
        ),
        pytest.param(
            "bad dimm",
            replace(CORDONED, is_ready=False),
            "k8s: pod not ready; was down: bad dimm",
            id="to be emptied, and not ready",
        ),
        pytest.param(
            "k8s: cordon; was down: bad dimm",
            CONDEMNED,
            "k8s: pod pending deletion; was down: bad dimm",
            id="drained before, and undrained",
        ),
        pytest.param("k8s: cordon", CONDEMNED, "k8s: pod pending deletion", id="a reason of ours"),
    ],
)
def test_a_node_that_is_down_is_drained_where_no_job_shall_come_to_it_and_its_reason_is_kept(
    before: str, pod: KubePodState, reason: str
) -> None:
    assert decided(DOWN, before, pod) == (DrainNode("n1", reason),)
    assert decided(DOWN_DRAINED, reason, pod) == ()
    assert decided(DOWN_DRAINED, before, pod) == (
        (DrainNode("n1", reason),) if before.startswith("k8s:") else ()
    )
    is_kept = "was down" in reason
    assert decided(DOWN_DRAINED, reason, READY) == (() if is_kept else (UndrainNode("n1"),))
    assert decided(DRAINED, reason, READY) == (UndrainNode("n1"),)
    assert decided(DOWN, reason, READY) == ()


def test_a_long_reason_of_a_node_that_is_down_is_cut_and_then_stays_as_it_is() -> None:
    (action,) = decided(DOWN, "x" * 1024, CONDEMNED)

    assert isinstance(action, DrainNode)
    assert len(action.reason) == 1024
    assert decided(DOWN_DRAINED, action.reason, CONDEMNED) == ()


def test_a_node_that_was_set_down_to_requeue_a_job_and_drained_since_is_resumed_in_the_end() -> None:
    reason = "k8s: pod pending deletion; was down: k8s: requeue of job 7"

    assert decided(DOWN, "k8s: requeue of job 7", CONDEMNED) == (DrainNode("n1", reason),)
    assert decided(DOWN_DRAINED, reason) == (ResumeNode("n1"),)
    assert decided(DOWN, reason) == (ResumeNode("n1"),)


def test_a_node_that_was_set_down_to_requeue_a_job_is_resumed_when_nothing_wants_a_drain() -> None:
    assert decided(DOWN, "k8s: requeue of job 7") == (ResumeNode("n1"),)
    assert decided(DOWN, "k8s: requeue of job 7", None) == (ResumeNode("n1"),)
    assert decided(DOWN, "k8s: requeue of job 7", NOT_READY) == ()
    assert decided(IDLE, "k8s: requeue of job 7") == ()


def test_a_pod_that_is_gone_drains_its_node_and_sets_it_down() -> None:
    assert decided(pod=GONE) == (
        DrainNode("n1", "k8s: pod terminated"),
        DownNode("n1", None),
    )


def test_a_reason_that_somebody_writes_between_our_drain_and_our_down_stays() -> None:
    drain, down = decided(pod=GONE)
    theirs = SlurmInputs(node="n1", state=DRAINED, reason="bad dimm")

    assert isinstance(drain, DrainNode)
    assert carried_out(theirs, (down,)).reason == "bad dimm"


def test_a_pod_that_is_only_terminating_does_not_set_its_node_down() -> None:
    terminating = replace(READY, phase="terminating", is_ready=False)

    assert decided(pod=terminating) == (DrainNode("n1", "k8s: pod terminated"),)


def test_a_node_is_set_down_for_a_pod_once() -> None:
    assert decided(DRAINED, "k8s: pod terminated", GONE, is_downed=True) == ()
    assert decided(DOWN_DRAINED, "k8s: pod terminated", GONE) == ()


def test_a_node_whose_pod_went_unseen_is_set_down_while_the_next_one_has_not_started() -> None:
    waiting = replace(READY, uid="uid-2", gone_uid="uid-1", phase="waiting", is_ready=False)

    assert decided(pod=waiting) == (DrainNode("n1", "k8s: pod not ready"), DownNode("n1", None))
    assert decided(DRAINED, "k8s: pod terminated", waiting) == (DownNode("n1", None),)
    assert decided(DRAINED, "k8s: pod terminated", waiting, is_downed=True) == ()


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


def test_the_drain_of_a_failed_prolog_stays_while_the_bus_does_not_have_the_lock() -> None:
    slurm = SlurmInputs(node="n1", state=DRAINED, reason=PREHOOK, reason_age_s=3600)

    assert decide(slurm, KubeInputs(pod=READY, lock=None), prehook_pause_s=30) == ()
    assert decide(slurm, KubeInputs(pod=READY, lock=FREE), prehook_pause_s=30) == (UndrainNode("n1"),)


@pytest.mark.parametrize("pod", [READY, None])
def test_nothing_is_lifted_by_what_a_bucket_lacks_that_may_have_been_lost(pod: KubePodState | None) -> None:
    assert decided(DRAINED, "k8s: pod deletion timeout", pod, is_lost=True) == ()


def test_why_a_node_is_down_stands_once_behind_a_drain_that_stays() -> None:
    reason = "k8s: pod deletion timeout; was down: Not responding"

    assert decided(DOWN_DRAINED, reason, is_pod_leaving=True) == ()


def test_a_cordon_takes_no_drain_over_that_may_have_to_stay_longer() -> None:
    assert decided(DRAINED, "k8s: pod deletion timeout", CORDONED, is_lost=True) == ()


def test_the_drain_of_a_failed_prolog_gives_way_to_a_cause_of_ours() -> None:
    assert decided(DRAINED, PREHOOK, CORDONED) == (DrainNode("n1", "k8s: cordon: disk"),)


def test_the_drain_of_an_overdue_pod_stays_while_that_pod_may_still_run() -> None:
    reason = "k8s: pod deletion timeout"

    assert decided(DRAINED, reason, is_pod_leaving=True) == ()
    assert decided(DRAINED, reason) == (UndrainNode("n1"),)
    assert decided(IDLE, is_pod_leaving=True) == ()


@pytest.mark.parametrize("reason", ["nhc: gpu 3 lost (verify-undrain)", "sunk:verify-undrain", PREHOOK])
@pytest.mark.parametrize("state", [DRAINED, DRAINING, DOWN_DRAINED])
def test_a_drain_that_asks_for_it_goes_when_its_node_was_verified_since(
    state: NodeState, reason: str
) -> None:
    assert decided(state, reason, age_s=60, verified_age_s=59, in_the_way=("team/web",)) == (
        UndrainNode("n1"),
    )


@pytest.mark.parametrize(
    ("pod", "reason", "age_s", "verified_age_s"),
    [
        pytest.param(READY, "nhc (verify-undrain)", 60, 61, id="the pass is older than the drain"),
        pytest.param(READY, "nhc (verify-undrain)", 60, float("inf"), id="no pass ever"),
        pytest.param(READY, "nhc (verify-undrain)", 60, -3600, id="the verifier's clock is an hour ahead"),
        pytest.param(READY, "nhc (verify-undrain)", float("inf"), 1, id="nobody knows the drain's age"),
        pytest.param(READY, "nhc (verify-undrain)", float("-inf"), 1, id="the clocks were not compared"),
        pytest.param(READY, PREHOOK, float("-inf"), float("inf"), id="nor does a pause end then"),
        pytest.param(READY, "nhc", 60, 1, id="it does not ask for it"),
        pytest.param(None, "nhc (verify-undrain)", 60, 1, id="no NodeSet knows the node"),
        pytest.param(CORDONED, "nhc (verify-undrain)", 60, 1, id="another cause stands"),
        pytest.param(READY, "nhc (verify-undrain)", -300, 1, id="Slurm's clock is ahead"),
    ],
)
def test_a_drain_that_waits_for_a_verification_stays_without_one(
    pod: KubePodState | None, reason: str, age_s: float, verified_age_s: float
) -> None:
    assert decided(DRAINED, reason, pod, age_s=age_s, verified_age_s=verified_age_s) == ()


@given(
    verified_s=st.floats(0, 7200),
    later_s=st.floats(1, 7200),
    wrong_s=st.sampled_from([-3600.0, -180.0, 0.0, 180.0, 3600.0]),
    who=st.sampled_from(["ours", "slurmctld's"]),
)
def test_a_clock_that_jumped_by_an_hour_makes_no_old_verification_new(
    verified_s: float, later_s: float, wrong_s: float, who: str
) -> None:
    drained_s, now_s = verified_s + later_s, 14_401.0  # Seconds of true time: the drain came later.
    ours_s, slurms_s = (wrong_s, 0.0) if who == "ours" else (0.0, wrong_s)
    ahead_s = slurms_s - ours_s
    slurm = SlurmInputs(
        node="n1",
        state=DRAINED,
        reason="nhc (verify-undrain)",
        reason_age_s=(now_s + ours_s) - (drained_s + slurms_s) + ahead_s,
        clock_ahead_s=ahead_s,
    )
    kube = KubeInputs(pod=READY, verified_age_s=now_s + ours_s - verified_s)

    assert decide(slurm, kube, prehook_pause_s=30) == ()


def test_causes_that_may_cost_a_job_come_before_a_cordon() -> None:
    overdue, gone, not_ready, cordoned, fine = (
        urgency(KubeInputs(is_overdue=True)),
        urgency(KubeInputs(pod=GONE)),
        urgency(KubeInputs(pod=NOT_READY)),
        urgency(KubeInputs(pod=CORDONED)),
        urgency(KubeInputs(pod=READY)),
    )

    assert overdue > gone > not_ready > cordoned > fine == 0


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
our_reasons = st.sampled_from(
    [
        "k8s:",
        "k8s: cordon: disk",
        "k8s: pod not ready",
        "k8s: pod terminated",
        "k8s: pod deletion timeout",
        "k8s: by hand",
        "k8s: cordon; was down: bad dimm",
        "k8s: cordon; was down: k8s: requeue",
        PREHOOK,
    ]
)
bases = st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN", "UNKNOWN"])
kubes = st.builds(
    KubeInputs,
    pod=st.none() | pods,
    is_overdue=st.booleans(),
    is_pod_leaving=st.booleans(),
    is_downed=st.booleans(),
    verified_age_s=st.sampled_from([1.0, 100.0, float("inf")]),
)


of_down = st.sampled_from(
    ["", "Not responding", REQUEUE, "k8s: cordon; was down: bad dimm", f"k8s: cordon; was down: {REQUEUE}"]
)


@st.composite
def slurm_sides(draw: st.DrawFn) -> SlurmInputs:
    is_drain = draw(st.booleans())
    return SlurmInputs(
        node="n1",
        state=NodeState(draw(bases), frozenset({"DRAIN"} if is_drain else ())),
        reason=draw(our_reasons | foreign if is_drain else of_down),
        reason_age_s=draw(st.sampled_from([-300.0, 0.0, 60.0, float("inf")])),
    )


def carried_out(slurm: SlurmInputs, actions: tuple[Action, ...]) -> SlurmInputs:
    """What Slurm would show after *actions*."""
    for action in actions:
        base, flags = slurm.state.base, slurm.state.flags
        match action:
            case DrainNode(_, reason):
                slurm = replace(slurm, state=NodeState(base, flags | {"DRAIN"}), reason=reason)
            case UndrainNode():
                slurm = replace(slurm, state=NodeState(base, flags - {"DRAIN"}), reason="")
            case ResumeNode():
                slurm = replace(slurm, state=NodeState("IDLE", flags - {"DRAIN"}))
            case DownNode(_, reason):
                slurm = replace(slurm, state=NodeState("DOWN", flags), reason=reason or slurm.reason)
    return slurm


@given(slurm=slurm_sides(), kube=kubes)
def test_no_drain_of_someone_else_is_ever_changed_or_removed(slurm: SlurmInputs, kube: KubeInputs) -> None:
    actions = decide(slurm, kube, prehook_pause_s=30)
    if not slurm.state.is_drain or slurm.reason.startswith("k8s:"):
        return

    assert not any(isinstance(action, DrainNode) for action in actions)
    assert all(action.reason is None for action in actions if isinstance(action, DownNode))
    assert "verify-undrain" in slurm.reason or UndrainNode("n1") not in actions


@given(slurm=slurm_sides(), kube=kubes)
def test_no_node_is_undrained_while_a_cause_stands(slurm: SlurmInputs, kube: KubeInputs) -> None:
    assert cause(kube) is None or UndrainNode("n1") not in decide(slurm, kube, prehook_pause_s=30)


@given(slurm=slurm_sides(), kube=kubes)
def test_what_was_decided_is_decided_once_from_whatever_start(slurm: SlurmInputs, kube: KubeInputs) -> None:
    after = carried_out(slurm, decide(slurm, kube, prehook_pause_s=30))

    assert decide(after, kube, prehook_pause_s=30) == ()


@given(slurm=slurm_sides(), kube=kubes)
def test_a_healthy_node_is_left_without_a_drain_of_ours(slurm: SlurmInputs, kube: KubeInputs) -> None:
    healthy = replace(kube, pod=READY, is_overdue=False, is_pod_leaving=False, lock=FREE)
    slurm = replace(slurm, reason_age_s=60)
    after = carried_out(slurm, decide(slurm, healthy, prehook_pause_s=30))

    is_kept = keeps_down_reason(after.reason, is_down=after.state.is_down)
    assert is_kept or not (after.state.is_drain and after.reason.startswith("k8s:"))


@given(slurm=slurm_sides(), kube=kubes)
def test_a_node_that_slurm_set_down_is_drained_only_to_be_emptied_and_none_is_resumed(
    slurm: SlurmInputs, kube: KubeInputs
) -> None:
    after = carried_out(slurm, decide(slurm, kube, prehook_pause_s=30))

    if slurm.state.is_down and not down_reason(slurm.reason).startswith(REQUEUE):
        assert after.state.is_down
        shall_be_empty = kube.pod is not None and (kube.pod.is_condemned or kube.pod.is_cordoned)
        assert slurm.state.is_drain or shall_be_empty or not after.state.is_drain


POD_EVENT, PLACEMENT_EVENT, LOCK_EVENT = Cause("pod:n1:7"), Cause("placement:u:8"), Cause("lock:n1:9")


@pytest.mark.parametrize(
    ("state", "reason", "kube", "cause"),
    [
        pytest.param(IDLE, "", KubeInputs(pod=CORDONED), POD_EVENT, id="a cordon"),
        pytest.param(IDLE, "", KubeInputs(pod=GONE), POD_EVENT, id="a Pod that is gone"),
        pytest.param(IDLE, "", KubeInputs(pod=READY, is_overdue=True), PLACEMENT_EVENT, id="an overdue Pod"),
        pytest.param(DRAINED, "k8s: cordon", KubeInputs(pod=READY), POD_EVENT, id="an uncordon"),
        pytest.param(
            DRAINED, PREHOOK, KubeInputs(pod=READY, lock=FREE), LOCK_EVENT, id="nobody is in the way"
        ),
        pytest.param(
            DRAINED,
            "k8s: pod deletion timeout",
            KubeInputs(pod=READY),
            PLACEMENT_EVENT,
            id="it is overdue no more",
        ),
    ],
)
def test_what_is_done_names_the_event_that_its_reason_is_about(
    state: NodeState, reason: str, kube: KubeInputs, cause: Cause
) -> None:
    slurm = SlurmInputs(node="n1", state=state, reason=reason)
    told = replace(kube, pod_event=POD_EVENT, placement_event=PLACEMENT_EVENT, lock_event=LOCK_EVENT)

    actions = decide(slurm, told, prehook_pause_s=0)

    assert {action.cause for action in actions} == {cause}
