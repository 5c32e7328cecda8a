from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_kube import wellknown as wk
from sunk_kube.node_slices import NodeSlice, NodeSliceEntry
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Condition, Node, ObjectMeta, OwnerReference, Taint, condition
from sunk_kube.pods import (
    Affinity,
    ContainerState,
    ContainerStatus,
    ContainerWaiting,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodStatus,
)
from sunk_kube.testing import T0, node, nodeset, pod
from sunk_nodeset_controller.nodesets.feasibility import fits
from sunk_nodeset_controller.nodesets.model import CreatePod, Observed, Plan, ReplacePod
from sunk_nodeset_controller.nodesets.naming import short_hash
from sunk_nodeset_controller.nodesets.owners import cluster_holders, refusal
from sunk_nodeset_controller.nodesets.plan import LAST_WAIT_S, plan
from sunk_nodeset_controller.nodesets.slices import wanted_entries
from sunk_nodeset_controller.nodesets.status import is_written, status
from sunk_nodeset_controller.reasons import NodeSetReason
from sunk_nodeset_controller.slurm_health import StaleReason

OWNED = {wk.LABEL_NODESET: "gpu", wk.LABEL_CLUSTER: "lab", wk.LABEL_PROTECTED: "true"}


def seen(
    nodes: tuple[Node, ...] = (),
    pods: tuple[Pod, ...] = (),
    *,
    of: NodeSet | None = None,
    slices: tuple[NodeSlice, ...] = (),
    foreign: Mapping[str, str] | None = None,
    taken: frozenset[str] = frozenset(),
    failures: Mapping[str, int] | None = None,
    refused: str = "",
    now: datetime = T0,
) -> Observed:
    return Observed(
        nodeset=of or nodeset(),
        nodes={node.metadata.name: node for node in nodes},
        fits=fits(of or nodeset(), nodes, wk.TAINT_LOCK),
        pods=pods,
        slices=slices,
        foreign=foreign or {},
        taken=taken,
        failures=failures or {},
        refusal=refused,
        now=now,
    )


def remembered(*, released: bool = False, **names: str) -> tuple[NodeSlice, ...]:
    """Return a slice that says which name each Node has had."""
    nodes = [NodeSliceEntry(name=name, kube_node=node, released=released) for node, name in names.items()]
    return (NodeSlice(metadata=ObjectMeta(name="gpu-0"), node_set="gpu", nodes=tuple(nodes)),)


def own(name: str, kube_node: str, *, phase: str = "Running", conditions: tuple[Condition, ...] = ()) -> Pod:
    owner = OwnerReference(kind="NodeSet", name="gpu", uid="uid-gpu", controller=True)
    return pod(
        name,
        namespace="slurm",
        node=kube_node,
        phase=phase,
        labels=OWNED,
        owners=(owner,),
        conditions=conditions,
    )


def numbered(number: int, *, labels: dict[str, str] | None = None) -> Node:
    return node(f"node{number}", ip=f"10.0.0.{number}", labels=labels)


def test_every_feasible_node_gets_one_pod() -> None:
    found = plan(seen((numbered(2), numbered(1)), (own("gpu-000-001", "node1"),)))

    assert found.actions == (CreatePod("gpu-000-002", "node2"),)
    assert found.feasible == {"node1", "node2"}


def test_no_more_pods_are_made_than_are_wanted() -> None:
    found = plan(seen((numbered(1), numbered(2), numbered(3)), of=nodeset(replicas=2)))

    assert found.actions == (CreatePod("gpu-000-001", "node1"), CreatePod("gpu-000-002", "node2"))


def test_a_pod_too_many_is_left_alone() -> None:
    pods = own("gpu-000-001", "node1"), own("gpu-000-002", "node2")

    assert plan(seen((numbered(1), numbered(2)), pods, of=nodeset(replicas=1))).actions == ()


def test_a_terminating_pod_still_has_its_node() -> None:
    leaving = pod("gpu-000-001", namespace="slurm", deleted=T0, labels=OWNED)

    assert plan(seen((numbered(1),), (leaving,))).actions == ()


@pytest.mark.parametrize("released", [False, True], ids=["still the set's", "let go before"])
def test_a_node_keeps_its_name_though_its_address_has_changed(*, released: bool) -> None:
    before = remembered(node1="gpu-000-099", released=released)

    assert plan(seen((numbered(1),), slices=before)).actions == (CreatePod("gpu-000-099", "node1"),)


def test_a_name_that_another_node_has_had_is_not_given_away() -> None:
    nodes = (numbered(1), node("old", ip="10.0.0.77"))

    assert plan(seen(nodes, slices=remembered(old="gpu-000-001"))).actions == (
        CreatePod("gpu-000-001", "old"),
        CreatePod(f"gpu-{short_hash('node1')}", "node1"),
    )


def test_nodes_that_the_set_has_come_first_and_then_those_it_has_had() -> None:
    nodes = tuple(numbered(number) for number in (1, 2, 3))
    had = remembered(node2="gpu-000-002", released=True) + remembered(node3="gpu-000-003")

    assert plan(seen(nodes, of=nodeset(replicas=2), slices=had)).actions == (
        CreatePod("gpu-000-003", "node3"),
        CreatePod("gpu-000-002", "node2"),
    )


def test_two_nodes_of_the_same_octets_get_two_names() -> None:
    found = plan(seen((node("a", ip="10.1.0.5"), node("b", ip="10.2.0.5"))))

    assert found.actions == (CreatePod("gpu-000-005", "a"), CreatePod(f"gpu-{short_hash('b')}", "b"))


def test_a_node_belongs_to_one_nodeset() -> None:
    found = plan(seen((numbered(1),), foreign={"node1": "slurm/cpu"}))

    assert found.actions == ()
    assert found.obstacles == {"node1": "belongs to NodeSet slurm/cpu"}


def test_an_ended_pod_is_replaced_but_not_in_a_hot_loop() -> None:
    ended = own("gpu-000-001", "node1", phase="Failed")
    soon = plan(seen((numbered(1),), (ended,), now=T0 + timedelta(seconds=4)))
    due = plan(seen((numbered(1),), (ended,), now=T0 + timedelta(seconds=10)))

    assert (soon.actions, soon.again_s) == ((), 6.0)
    assert due.actions == (ReplacePod("gpu-000-001", "uid-gpu-000-001", "Failed"),)


def test_a_pod_that_waits_for_a_node_that_is_gone_goes_too() -> None:
    def pinned(to: str, *, bound: bool = False) -> Pod:
        made = own(f"gpu-{to}", "", phase="Pending")
        match = NodeSelectorRequirement(key="metadata.name", operator="In", values=(to,))
        selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(match,)),))
        affinity = Affinity(node_affinity=NodeAffinity(required=selector))
        return replace(made, spec=replace(made.spec, node_name=to if bound else "", affinity=affinity))

    pods = pinned("node1"), pinned("gone"), pinned("lost", bound=True)

    assert plan(seen((numbered(1),), pods)).actions == (ReplacePod("gpu-gone", "uid-gpu-gone", "Pending"),)


def test_a_pod_that_ends_again_and_again_waits_longer_each_time() -> None:
    ended = own("gpu-000-001", "node1", phase="Failed")
    waits = [
        plan(seen((numbered(1),), (ended,), failures={"gpu-000-001": often})).again_s for often in (0, 1, 9)
    ]

    assert waits == [10.0, 20.0, LAST_WAIT_S]


def test_a_refused_nodeset_does_nothing_and_says_why() -> None:
    assert plan(seen((numbered(1),), refused="no such cluster")) == Plan(invalid="no such cluster")


def test_a_template_that_is_no_pod_does_nothing_and_names_the_field() -> None:
    found = plan(seen((numbered(1),), of=nodeset(spec={"containers": 7})))

    assert found.actions == ()
    assert "$.containers" in found.invalid


def test_what_has_ended_is_cleared_also_under_a_template_that_is_no_pod() -> None:
    broken, ended = nodeset(spec={"containers": 7}), own("gpu-000-001", "node1", phase="Failed")
    nodes, slices = (numbered(1), numbered(2)), remembered(node1="gpu-000-001")
    looked = seen(nodes, (ended,), of=broken, slices=slices, now=T0 + timedelta(seconds=10))
    found = plan(looked)

    assert found.actions == (ReplacePod("gpu-000-001", "uid-gpu-000-001", "Failed"),)
    assert wanted_entries(looked, found) == {
        "node1": NodeSliceEntry(name="gpu-000-001", kube_node="node1", failures=1, failed="uid-gpu-000-001")
    }
    assert plan(replace(looked, now=T0)) == Plan(invalid=found.invalid, again_s=10.0)


@given(
    st.lists(st.integers(1, 254), max_size=6, unique=True),
    st.sets(st.integers(0, 5)),
    st.none() | st.integers(0, 6),
)
def test_planning_again_after_any_part_of_a_plan_ends_with_one_pod_a_node(
    numbers: list[int], done: set[int], replicas: int | None
) -> None:
    nodes = tuple(numbered(number) for number in numbers)
    wanted = nodeset(replicas=replicas)
    first = plan(seen(nodes, of=wanted)).actions
    half = tuple(
        own(one.name, one.kube_node) for one in first if isinstance(one, CreatePod) and len(done) % 2
    )
    rest = plan(seen(nodes, half, of=wanted)).actions
    placed = [pod.spec.node_name for pod in half]
    placed += [one.kube_node for one in rest if isinstance(one, CreatePod)]

    assert len(placed) == len(set(placed)) == min(len(nodes), len(nodes) if replicas is None else replicas)


def test_a_clusters_name_is_the_namespaces_that_had_it_first() -> None:
    first, second = nodeset("a", namespace="one"), nodeset("b", namespace="two")

    assert cluster_holders((second, first)) == {"lab": "one"}
    assert refusal(first, (first, second), ("lab",)) == ""
    assert refusal(second, (first, second), ("lab",)) == "Slurm cluster 'lab' belongs to namespace one"


def test_a_cluster_that_nobody_set_up_is_refused_by_name() -> None:
    assert (
        refusal(nodeset(), (), ("prod", "dev"))
        == "Slurm cluster 'lab' is not in `clusters` of helm/sunk: dev, prod"
    )


def test_the_status_counts_what_the_documents_count() -> None:
    drain = Condition(type=wk.CONDITION_SLURM_DRAIN, status="True")
    running = Condition(type=wk.CONDITION_SLURM_RUNNING, status="True")
    pods = (
        own("gpu-000-001", "node1", conditions=(drain, running)),
        own("gpu-000-002", "gone"),
        own("gpu-000-003", "node3", phase="Failed"),
    )
    looked = seen((numbered(1), numbered(3), numbered(4)), pods)
    told = status(looked, plan(looked))

    assert told.desired_number_scheduled == told.number_feasible == 3
    assert told.current_number_scheduled == told.replicas == told.number_ready == 2
    assert told.number_drain == told.number_running == told.number_misscheduled == 1
    assert told.number_unavailable == 2


def test_too_few_feasible_nodes_are_explained() -> None:
    wanted = nodeset(replicas=2, spec={"nodeSelector": {"role": "compute"}})
    looked = seen((numbered(1, labels={"role": "compute"}), numbered(2), numbered(3)), of=wanted)
    found = condition(status(looked, plan(looked)).conditions, "Scheduled")

    assert found is not None
    assert found.message == "1 of 2 wanted Nodes are feasible; 2 Nodes: node selector does not match"


def test_reasons_are_named_in_groups_the_most_frequent_first() -> None:
    gpu = Taint(key="nvidia.com/gpu", effect="NoSchedule")
    tainted = [node(f"t{number}", taints=(gpu,)) for number in range(3)]
    nodes = (*tainted, numbered(1), numbered(2))
    looked = seen(nodes, (own("gpu-000-001", "node1"),), foreign={"node2": "slurm/cpu"})
    found = condition(status(looked, plan(looked)).conditions, "Scheduled")

    assert found is not None
    assert found.status == "True"
    assert found.message.split("; ") == [
        "feasible Nodes: 1",
        "3 Nodes: taint nvidia.com/gpu:NoSchedule is not tolerated",
        "1 Node: belongs to NodeSet slurm/cpu",
    ]


def test_a_pod_that_the_scheduler_cannot_place_is_said_in_its_words() -> None:
    words = "0/3 nodes are available: 1 node(s) didn't have free ports for the requested pod ports"
    unplaced = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=words)
    pods = tuple(
        waiting(own(f"gpu-000-00{number}", f"node{number}"), unplaced if number > 1 else None)
        for number in (1, 2, 3)
    )
    looked = seen(tuple(numbered(number) for number in (1, 2, 3)), pods)
    told = status(looked, plan(looked)).conditions
    scheduled, ready = condition(told, "Scheduled"), condition(told, "Ready")

    assert scheduled is not None
    assert (scheduled.status, scheduled.reason) == ("False", "PodsUnschedulable")
    assert scheduled.message == f"Pods are not on their Nodes yet; 2 Pods: {words}"
    assert ready is not None
    assert ready.message == f"0 of 3 Pods are ready; 2 Pods: {words}; 1 Pod: slurmd ImagePullBackOff"


def waiting(pod: Pod, scheduled: Condition | None) -> Pod:
    """Return *pod* as it is before its container runs: without a Node, or without its image."""
    if scheduled is not None:
        return replace(pod, status=PodStatus(phase="Pending", conditions=(scheduled,)))
    state = ContainerState(waiting=ContainerWaiting(reason="ImagePullBackOff"))
    slurmd = ContainerStatus(name="slurmd", state=state)
    return replace(pod, status=PodStatus(phase="Pending", container_statuses=(slurmd,)))


def test_a_set_that_wants_no_pod_is_ready_and_one_that_finds_no_node_is_not() -> None:
    nothing, nowhere = seen((), of=nodeset(replicas=0)), seen(())
    words = [
        [condition(status(looked, plan(looked)).conditions, kind) for kind in ("Scheduled", "Ready")]
        for looked in (nothing, nowhere)
    ]

    assert [[one.status for one in found if one is not None] for found in words] == [
        ["True", "True"],
        ["False", "False"],
    ]


def test_a_refusal_is_a_condition() -> None:
    looked = seen(refused="no such cluster")
    told = status(looked, plan(looked)).conditions

    assert [(one.type, one.status, one.message) for one in told] == [
        ("Accepted", "False", "no such cluster"),
        ("Ready", "False", "no such cluster"),
    ]


def test_what_the_api_server_refuses_is_said_and_all_else_stays_known() -> None:
    looked = replace(seen((numbered(1),)), doubt=StaleReason(NodeSetReason.NO_NEWS_FROM_SLURM, "since noon"))
    told = status(looked, replace(plan(looked), refused="exceeded quota"))
    accepted, known = condition(told.conditions, "Accepted"), condition(told.conditions, "SlurmKnown")

    assert (told.number_feasible, told.desired_number_scheduled, told.number_unavailable) == (1, 1, 1)
    assert accepted is not None
    assert (accepted.status, accepted.message) == ("False", "exceeded quota")
    assert known is not None
    assert known.status == "False"


def test_a_refused_nodeset_whose_slurm_is_silent_says_so_too() -> None:
    looked = replace(
        seen(refused="not yours"), doubt=StaleReason(NodeSetReason.NO_NEWS_FROM_SLURM, "since noon")
    )
    found = condition(status(looked, plan(looked)).conditions, "SlurmKnown")

    assert found is not None
    assert found.status == "False"


def test_a_set_of_all_nodes_of_which_one_is_down_is_not_ready() -> None:
    taint = Taint(key=wk.TAINT_NOT_READY, effect="NoSchedule")
    down = node("node2", taints=(taint,), conditions=(Condition(type="Ready", status="Unknown"),))
    lost = own("gpu-000-002", "node2")
    lost = replace(lost, status=replace(lost.status, conditions=(Condition(type="Ready", status="False"),)))
    looked = seen((numbered(1), down), (own("gpu-000-001", "node1"), lost))
    told = status(looked, plan(looked))
    found = condition(told.conditions, "Ready")

    assert found is not None
    assert (found.status, told.number_unavailable) == ("False", 1)
    assert found.message == "1 of 2 Pods are ready; 1 Pod: its Node is not ready"


def test_what_was_planned_before_a_change_is_told_of_that_generation() -> None:
    looked = seen((numbered(1),), of=nodeset(generation=7))
    told = status(looked, plan(looked), 6)

    assert {told.observed_generation, *(one.observed_generation for one in told.conditions)} == {6}
    assert status(looked, plan(looked)).observed_generation == 7


def test_a_condition_of_somebody_else_is_no_reason_to_write() -> None:
    looked = seen((numbered(1),))
    told = status(looked, plan(looked))
    theirs = Condition(type="example.com/Verified", status="True")
    mixed = replace(told, conditions=(theirs, *reversed(told.conditions)))

    assert is_written(mixed, told)
    assert not is_written(replace(mixed, number_ready=9), told)
    assert not is_written(replace(mixed, conditions=mixed.conditions[:-1]), told)


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    looked = seen((numbered(1),))
    before = status(looked, plan(looked))
    later = seen((numbered(1),), now=T0 + timedelta(hours=1), of=_with(before.conditions))

    assert status(later, plan(later)).conditions == before.conditions


def _with(conditions: tuple[Condition, ...]) -> NodeSet:
    made = nodeset()
    return replace(made, status=replace(made.status, conditions=conditions))
