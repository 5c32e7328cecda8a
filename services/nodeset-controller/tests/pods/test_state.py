from datetime import datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import Condition as BusCondition
from sunk_events.nodesets import KubePodState, NodeVerified, PodCondemned, PodNotReady
from sunk_kube import wellknown as wk
from sunk_kube.nodesets import Features
from sunk_kube.objects import Condition, Node, condition
from sunk_kube.pods import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
)
from sunk_kube.testing import T0, node, nodeset, pod
from sunk_nodeset_controller.metadata import MetadataPatch, patch
from sunk_nodeset_controller.nodes.conditions import marks as node_marks
from sunk_nodeset_controller.nodesets.template import template_hash
from sunk_nodeset_controller.pods.conditions import marks as pod_marks
from sunk_nodeset_controller.pods.events import FactContext, facts
from sunk_nodeset_controller.pods.projection import copies
from sunk_nodeset_controller.pods.state import PodObserved, condemned_for, state

LATER = T0 + timedelta(hours=1)
NAME = "gpu-000-011"
CONTEXT = FactContext(cluster="lab", service="nodeset-controller", revision=7, now=LATER)


def own(*, phase: str = "Running", is_ready: bool = True, deleted: datetime | None = None) -> Pod:
    labels = {wk.LABEL_NODESET: "gpu", wk.LABEL_CLUSTER: "lab"}
    return pod(NAME, namespace="slurm", labels=labels, phase=phase, is_ready=is_ready, deleted=deleted)


def cordoned(reason: str | None = "bad fan") -> Node:
    return node(is_cordoned=True, annotations={wk.ANNOTATION_CORDON_REASON: reason} if reason else None)


def leaving_node() -> Node:
    found = node()
    return replace(found, metadata=replace(found.metadata, deletion_timestamp=T0))


def nowhere() -> Pod:
    return replace(own(), spec=replace(own().spec, node_name=""))


def unbound() -> Pod:
    by_name = NodeSelectorRequirement(key="metadata.name", operator="In", values=("node1",))
    terms = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(by_name,)),))
    affinity = Affinity(node_affinity=NodeAffinity(required=terms))
    return replace(nowhere(), spec=replace(nowhere().spec, affinity=affinity))


def observed(found: Pod | None, on: Node | None, before: KubePodState | None = None) -> PodObserved:
    return PodObserved(
        pod=found,
        node=on,
        nodeset=nodeset(features=Features(static_features=("x",))),
        before=before,
        lock_key=wk.TAINT_LOCK,
        now=LATER,
    )


def told(
    found: Pod | None,
    on: Node | None = None,
    before: KubePodState | None = None,
    *,
    is_set: bool = True,
    may_run: bool = False,
) -> KubePodState | None:
    seen = observed(found, on or node(), before)
    return state(replace(seen, nodeset=seen.nodeset if is_set else None, may_run=may_run))


def told_condition(kind: str, status: str, message: str = "") -> BusCondition:
    return BusCondition(type=kind, status=status, message=message, changed=T0)


KNOWN = KubePodState(
    changed=T0,
    pod=NAME,
    namespace="slurm",
    nodeset="gpu",
    kube_node="node1",
    uid=f"uid-{NAME}",
    phase="running",
    is_ready=True,
    features=("x",),
    ready_changed=T0,
    conditions=(told_condition("Ready", "True"),),
)


def known(**more: object) -> KubePodState:
    return replace(KNOWN, **more)


def test_a_ready_pod_is_running_and_ready() -> None:
    assert told(own()) == known(changed=LATER)


def test_looking_again_at_the_same_state_does_not_move_its_time() -> None:
    assert told(own(), before=known()) == known()


@pytest.mark.parametrize(
    ("found", "phase", "is_ready"),
    [
        pytest.param(own(phase="Pending", is_ready=False), "waiting", False, id="not started"),
        pytest.param(own(is_ready=False), "running", False, id="not ready"),
        pytest.param(own(deleted=T0), "terminating", False, id="terminating, though still ready"),
        pytest.param(own(phase="Failed"), "terminating", False, id="ended: slurmd never comes back"),
    ],
)
def test_the_phase_says_whether_slurmd_may_be_there(found: Pod, phase: str, *, is_ready: bool) -> None:
    state = told(found)

    assert state is not None
    assert (state.phase, state.is_ready) == (phase, is_ready)


@pytest.mark.parametrize(
    ("on", "found", "is_condemned"),
    [
        pytest.param(node(), own(), False, id="there"),
        pytest.param(cordoned(), own(), False, id="cordoned"),
        pytest.param(leaving_node(), own(), True, id="being deleted"),
        pytest.param(None, own(), True, id="deleted"),
        pytest.param(None, own(is_ready=False), True, id="deleted, its kubelet silent"),
        pytest.param(None, unbound(), True, id="deleted before the Pod was bound"),
        pytest.param(None, nowhere(), False, id="a Pod of no Node"),
    ],
)
def test_a_pod_whose_node_was_deleted_is_to_go(on: Node | None, found: Pod, *, is_condemned: bool) -> None:
    seen = state(observed(found, on))

    assert seen is not None
    assert seen.is_condemned is is_condemned


def test_what_was_known_of_a_deleted_node_stays_until_it_is_back() -> None:
    before = told(own(), cordoned(), before=known())
    lost = state(observed(own(), None, before))

    assert before is not None
    assert lost == replace(before, is_condemned=True, features=())  # As the Pod's annotation has them.
    assert state(observed(own(), cordoned(), lost)) == before
    assert state(observed(None, None, lost)) is None
    again = replace(own(), metadata=replace(own().metadata, uid="another"))
    assert state(observed(again, None, before)) == known(
        changed=LATER, uid="another", is_condemned=True, features=()
    )


def test_a_pod_that_is_gone_stays_known_while_its_nodeset_wants_the_node() -> None:
    assert told(None, before=known()) == known(
        changed=LATER, phase="gone", is_ready=False, ready_changed=LATER, conditions=()
    )


def test_a_pod_that_went_between_two_looks_is_named_until_the_next_one_starts() -> None:
    def next_one(phase: str, uid: str = "uid-2") -> Pod:
        found = own(phase=phase, is_ready=False)
        return replace(found, metadata=replace(found.metadata, uid=uid))

    first = told(own())
    waiting = told(next_one("Pending"), before=first)
    again = told(next_one("Pending"), before=waiting)
    third = told(next_one("Pending", "uid-3"), before=waiting)
    running = told(next_one("Running"), before=again)
    gone = told(None, before=again)

    assert first is not None
    assert [one and (one.uid, one.gone_uid) for one in (first, waiting, again, third, running, gone)] == [
        (first.uid, ""),
        ("uid-2", first.uid),
        ("uid-2", first.uid),
        ("uid-3", "uid-2"),
        ("uid-2", ""),
        ("uid-2", ""),
    ]


def test_a_pod_of_that_name_in_another_namespace_does_not_say_that_the_one_before_is_gone() -> None:
    """The cluster's name may pass to NodeSets elsewhere while the Pods of the former ones still run jobs."""
    before = told(replace(own(), metadata=replace(own().metadata, namespace="former", uid="uid-0")))
    after = told(own(phase="Pending", is_ready=False), before=before)

    assert after is not None
    assert (after.phase, after.gone_uid) == ("waiting", "")


def test_a_pod_that_is_gone_for_good_is_forgotten() -> None:
    assert told(None, before=known(), is_set=False) is None
    assert told(None) is None


def test_a_pod_that_is_gone_for_good_is_known_while_jobs_may_be_on_its_node() -> None:
    lost = told(None, before=known(), is_set=False, may_run=True)

    assert lost is not None
    assert lost.phase == "gone"
    assert told(None, before=lost, is_set=False) is None
    assert told(None, may_run=True) is None


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("bad fan", "bad fan"), (None, "no reason given"), (" two\nlines ", "two lines")],
    ids=["as given", "none given", "on one line"],
)
def test_a_cordon_carries_its_reason(reason: str | None, expected: str) -> None:
    assert told(own(), cordoned(reason)) == known(changed=LATER, is_cordoned=True, cordon_reason=expected)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(None, known(is_ready=False), ["PodNotReady"], id="new"),
        pytest.param(known(is_ready=False), known(), ["PodReady"], id="becomes ready"),
        pytest.param(known(), known(is_ready=False), ["PodNotReady"], id="loses it"),
        pytest.param(known(), known(pod_address="10.0.0.1"), [], id="a new address is no news"),
        pytest.param(
            known(),
            known(phase="terminating", is_ready=False),
            ["PodTerminating", "PodNotReady"],
            id="deleted",
        ),
        pytest.param(known(), known(phase="gone", is_ready=False), ["PodGone"], id="gone"),
        pytest.param(known(), None, ["PodGone"], id="gone for good"),
        pytest.param(known(phase="gone"), None, [], id="gone before"),
        pytest.param(known(), known(uid="new"), ["PodGone", "PodReady"], id="another of its name"),
        pytest.param(
            known(phase="gone", is_ready=False),
            known(uid="new", is_ready=False),
            ["PodNotReady"],
            id="comes back",
        ),
        pytest.param(known(), known(is_cordoned=True), ["NodeCordoned"], id="cordoned"),
        pytest.param(known(is_cordoned=True), known(), ["NodeUncordoned"], id="uncordoned"),
        pytest.param(None, known(is_cordoned=True), ["PodReady", "NodeCordoned"], id="new, cordoned"),
        pytest.param(known(), known(is_condemned=True), ["PodCondemned"], id="is to go"),
        pytest.param(known(is_condemned=True), known(), ["PodSpared"], id="may stay"),
        pytest.param(
            known(is_condemned=True), known(phase="gone", is_ready=False), ["PodGone"], id="is to go, gone"
        ),
        pytest.param(known(is_condemned=True), known(uid="new"), ["PodGone", "PodReady"], id="replaced"),
        pytest.param(known(), known(hpc_verified=T0), ["NodeVerified"], id="first pass"),
        pytest.param(known(hpc_verified=T0), known(hpc_verified=LATER), ["NodeVerified"], id="newer pass"),
        pytest.param(known(hpc_verified=LATER), known(hpc_verified=T0), [], id="an older pass is no news"),
        pytest.param(known(hpc_verified=T0), known(), [], id="failed since"),
        pytest.param(None, known(hpc_verified=T0), ["PodReady"], id="passed before the Pod was there"),
    ],
)
def test_each_change_is_told_once(
    before: KubePodState | None, after: KubePodState | None, expected: list[str]
) -> None:
    assert [type(event).__name__ for event in facts(before, after, CONTEXT)] == expected


def test_the_same_change_has_the_same_id_and_the_next_one_another() -> None:
    first = facts(known(), known(is_ready=False), CONTEXT)
    again = facts(known(), known(is_ready=False), replace(CONTEXT, now=LATER + timedelta(seconds=9)))
    second = facts(known(), known(is_ready=False), replace(CONTEXT, revision=9))

    assert first[0].id == again[0].id == f"pod_not_ready:{NAME}:uid-{NAME}:7"
    assert second[0].id != first[0].id


def test_facts_say_why() -> None:
    because = replace(CONTEXT, condemned_for="update to revision 7d9c5b")
    unready = known(is_ready=False, conditions=(told_condition("Ready", "False", "unready: [slurmd]"),))
    (condemned,) = facts(known(), known(is_condemned=True), because)
    (not_ready,) = facts(known(), unready, CONTEXT)
    (passed,) = facts(known(), known(hpc_verified=T0), CONTEXT)

    assert isinstance(condemned, PodCondemned)
    assert condemned.data.reason == "update to revision 7d9c5b"
    assert isinstance(not_ready, PodNotReady)
    assert not_ready.data.reason == "unready: [slurmd]"
    assert isinstance(passed, NodeVerified)
    assert passed.data.verified == T0


def test_a_condemned_pod_is_told_for_what() -> None:
    found = replace(own(), metadata=replace(own().metadata, annotations={wk.ANNOTATION_CONDEMNED: "update"}))

    assert condemned_for(found, nodeset(), node()) == f"update to revision {template_hash(nodeset())}"
    assert condemned_for(own(), nodeset(), None) == "its Node was deleted"
    assert condemned_for(own(), nodeset(), node()) == condemned_for(None, nodeset(), None) == ""


def test_readiness_is_dated_by_the_kubelet_or_by_us_where_it_says_otherwise() -> None:
    ready, ending = told(own()), told(own(deleted=T0), before=known())
    again = told(own(deleted=T0), before=ending)

    assert ready is not None
    assert ready.ready_changed == T0
    assert ending is not None
    assert ending.ready_changed == LATER
    assert again == ending


@pytest.mark.parametrize(
    ("finalizers", "expected"), [((), True), (("orphan",), False)], ids=["deleted", "its Pods are left alone"]
)
def test_a_pod_of_a_nodeset_that_is_being_deleted_says_so(
    finalizers: tuple[str, ...], *, expected: bool
) -> None:
    leaving = nodeset()
    meta = replace(leaving.metadata, deletion_timestamp=T0, finalizers=finalizers)
    seen = PodObserved(
        pod=own(),
        node=node(),
        nodeset=replace(leaving, metadata=meta),
        before=None,
        lock_key=wk.TAINT_LOCK,
        now=LATER,
    )
    found = state(seen)

    assert found is not None
    assert found.is_nodeset_deleted is expected
    gone = state(replace(seen, nodeset=None, before=found))
    assert gone is not None
    assert gone.is_nodeset_deleted is expected


def test_others_see_conditions_but_not_slurms_own_nor_heartbeats() -> None:
    check = Condition(
        type="HPCVerification", status="True", last_transition_time=T0, last_heartbeat_time=LATER
    )
    drain = Condition(type=wk.CONDITION_SLURM_DRAIN, status="True", last_transition_time=T0)
    found = told(own(), node(conditions=(Condition(type="Ready", status="True"), drain, check)))

    assert found is not None
    assert found.node_conditions == (
        told_condition("HPCVerification", "True"),
        BusCondition(type="Ready", status="True"),
    )
    many = tuple(Condition(type=f"Many{number:02}", message="x" * 5000) for number in range(40))
    bounded = told(own(), node(conditions=many))
    assert bounded is not None
    assert len(bounded.node_conditions) == 32
    assert len(bounded.node_conditions[0].message) == 1024


def test_a_pod_shows_cordon_lock_features_and_verification_of_its_node() -> None:
    check = Condition(type=wk.CONDITION_HPC_VERIFICATION, status="True", last_transition_time=T0)
    on = node(
        is_cordoned=True,
        annotations={wk.ANNOTATION_CORDON_REASON: "bad fan", wk.ANNOTATION_LOCK: "locked"},
        conditions=(check,),
    )

    assert copies(on, own(), nodeset(features=Features(static_features=("x",)))) == MetadataPatch(
        annotations={
            wk.ANNOTATION_CORDON: "bad fan",
            wk.ANNOTATION_LOCK: "locked",
            wk.ANNOTATION_FEATURES: "x",
        },
        conditions=(check,),
    )


def showing(conditions: tuple[Condition, ...]) -> Pod:
    return replace(own(), status=replace(own().status, conditions=conditions))


def check_at(
    moment: datetime | None,
    status: str = "True",
    *,
    beat: datetime | None = None,
    probed: datetime | None = None,
) -> Condition:
    return Condition(
        type=wk.CONDITION_HPC_VERIFICATION,
        status=status,
        last_transition_time=moment,
        last_heartbeat_time=beat,
        last_probe_time=probed,
    )


@pytest.mark.parametrize(
    ("of_node", "of_pod", "passed"),
    [
        (check_at(T0), None, T0),
        (None, check_at(T0), T0),
        (check_at(T0), check_at(LATER), LATER),
        (check_at(LATER), check_at(T0), LATER),
        (check_at(LATER, "False"), check_at(T0), None),
        (check_at(T0), check_at(LATER, "False"), None),
        (check_at(LATER), check_at(LATER, "False"), LATER),
        (check_at(T0, beat=LATER), check_at(T0, "False"), LATER),
        (check_at(T0, "False"), check_at(T0, probed=LATER), LATER),
        (check_at(None), None, None),
        (check_at(None, "False"), check_at(T0), None),
        (None, None, None),
    ],
)
def test_the_newer_verification_counts_the_nodes_or_the_pods(
    of_node: Condition | None, of_pod: Condition | None, passed: datetime | None
) -> None:
    on, of = (tuple(filter(None, (one,))) for one in (of_node, of_pod))

    found = told(showing(of), node(conditions=on))

    assert found is not None
    assert found.hpc_verified == passed


@pytest.mark.parametrize(
    ("of_node", "of_pod", "copied"),
    [
        (check_at(T0), (), True),
        (check_at(LATER), (check_at(T0, "False"),), True),
        (check_at(T0), (check_at(LATER, "False"),), False),
        (check_at(None), (), False),
        (None, (check_at(T0),), False),
    ],
)
def test_a_verification_on_the_pod_is_never_taken_away_and_replaced_by_a_newer_one_alone(
    of_node: Condition | None,
    of_pod: tuple[Condition, ...],
    copied: bool,  # noqa: FBT001 - a table's column
) -> None:
    on = node(conditions=tuple(filter(None, (of_node,))))
    found = patch(own().metadata, of_pod, copies(on, showing(of_pod), nodeset()), LATER)

    written = found is not None and "status" in found
    assert written == copied


def test_a_pass_of_which_only_the_last_look_is_known_is_no_newer_on_the_pod_that_shows_it() -> None:
    """The Node's condition has no time of transition: with now in its place each new Pod would be a pass."""
    on = node(conditions=(check_at(None, beat=T0),))
    body = patch(own().metadata, (), copies(on, own(), nodeset()), LATER)

    assert body is not None
    (written,) = body["status"]["conditions"]
    shown = msgspec.convert(written, Condition)
    found = told(showing((shown,)), on)
    again = patch(own().metadata, (shown,), copies(on, showing((shown,)), nodeset()), LATER)
    assert found is not None
    assert found.hpc_verified == T0
    assert "status" not in (again or {})


def slurm(**more: object) -> SlurmNodeState:
    return replace(SlurmNodeState(changed=T0, node=NAME, state="IDLE"), **more)


def said(marks: MetadataPatch) -> dict[str, tuple[str, str, str]]:
    return {one.type: (one.status, one.reason, one.message) for one in marks.conditions}


@pytest.mark.parametrize(
    ("seen", "drain", "running", "not_responding"),
    [
        pytest.param(
            slurm(),
            ("False", "NotDrained", ""),
            ("False", "Idle", ""),
            ("False", "Responding", ""),
            id="idle",
        ),
        pytest.param(
            slurm(is_drain=True, reason="bad dimm"),
            ("True", "Drained", "bad dimm"),
            ("False", "Idle", ""),
            ("False", "Responding", ""),
            id="drained: the message is the reason",
        ),
        pytest.param(
            slurm(is_drain=True, is_busy=True, reason="bad dimm"),
            ("True", "Draining", "bad dimm"),
            ("True", "Busy", ""),
            ("False", "Responding", ""),
            id="draining",
        ),
        pytest.param(
            slurm(reason="left over"),
            ("False", "NotDrained", ""),
            ("False", "Idle", ""),
            ("False", "Responding", ""),
            id="a reason without a drain is no drain",
        ),
        pytest.param(
            slurm(state="DOWN", flags=("NOT_RESPONDING",), is_not_responding=True),
            ("False", "NotDrained", ""),
            ("False", "Idle", ""),
            ("True", "NotResponding", "DOWN+NOT_RESPONDING"),
            id="not responding",
        ),
    ],
)
def test_a_pods_conditions_mirror_slurm(
    seen: SlurmNodeState,
    drain: tuple[str, str, str],
    running: tuple[str, str, str],
    not_responding: tuple[str, str, str],
) -> None:
    found = pod_marks(seen)

    assert said(found) == {
        "SlurmDrain": drain,
        "SlurmRunning": running,
        "SlurmNotResponding": not_responding,
    }
    assert found.labels == {
        wk.LABEL_DRAIN: drain[0].lower(),
        wk.LABEL_RUNNING: running[0].lower(),
        wk.LABEL_NOT_RESPONDING: not_responding[0].lower(),
    }
    assert found.annotations == {wk.ANNOTATION_DRAIN: drain[2] or None}


def marked(seen: SlurmNodeState) -> Pod:
    made = own()
    return replace(made, status=replace(made.status, conditions=pod_marks(seen).conditions))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(marked(slurm()), "False", id="not drained"),
        pytest.param(marked(slurm(is_drain=True, reason="bad dimm")), "True", id="drained in Slurm"),
        pytest.param(marked(slurm(is_drain=True, reason="k8s: cordon: x")), "False", id="drained by us"),
        pytest.param(marked(slurm(is_drain=True, reason="not k8s: x")), "True", id="the prefix is a prefix"),
        pytest.param(own(), "Unknown", id="no Pod state"),
    ],
)
def test_a_node_is_cordoned_by_slurm_only_for_drains_born_there(found: Pod, expected: str) -> None:
    marks = node_marks(node(), found, is_wanted=True)
    cordon = condition(marks.conditions, wk.CONDITION_SLURM_CORDON)

    assert cordon is not None
    assert cordon.status == expected


def test_a_node_bears_its_pods_conditions_and_whose_it_is() -> None:
    found = node_marks(node(), marked(slurm(is_drain=True, reason="bad dimm")), is_wanted=True)

    assert said(found)["SlurmDrain"] == ("True", "Drained", "bad dimm")
    assert found.annotations == {wk.ANNOTATION_DRAIN: "bad dimm"}
    assert found.labels == {
        wk.LABEL_NODESET: "gpu",
        wk.LABEL_NAMESPACE: "slurm",
        wk.LABEL_CLUSTER: "lab",
        wk.LABEL_POD: NAME,
    }


def test_a_node_whose_pod_is_gone_for_a_moment_is_unknown_and_keeps_its_labels() -> None:
    found = node_marks(node(labels={wk.LABEL_POD: NAME}), None, is_wanted=True)

    assert {status for status, *_ in said(found).values()} == {"Unknown"}
    assert found.labels == {}


def test_a_node_that_left_its_nodeset_loses_all_marks() -> None:
    found = node_marks(node(labels={wk.LABEL_POD: NAME}), None, is_wanted=False)

    assert set(found.labels.values()) == {None}
    assert set(found.removed) == {"SlurmDrain", "SlurmRunning", "SlurmNotResponding", "SlurmCordon"}


def test_a_node_that_never_was_in_a_nodeset_is_not_touched() -> None:
    assert node_marks(node(), None, is_wanted=False) == MetadataPatch()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("a,b", ("a", "b"), id="as we write them"),
        pytest.param("a," * 100_000, (), id="as somebody else does"),
    ],
)
def test_features_on_a_pod_are_read_only_as_long_as_they_may_be(text: str, told: tuple[str, ...]) -> None:
    annotated = replace(own(), metadata=replace(own().metadata, annotations={wk.ANNOTATION_FEATURES: text}))
    found = state(PodObserved(pod=annotated, node=node(), nodeset=None, before=None, lock_key="lock", now=T0))

    assert found is not None
    assert found.features == told
