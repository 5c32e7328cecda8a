"""Updates, smaller sizes and the end of a NodeSet: who goes, in which order, and when."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.nodes import SlurmNodeState
from sunk_kube import wellknown as wk
from sunk_kube.node_slices import NodeSlice, NodeSliceEntry
from sunk_kube.nodesets import NodeSet, UpdateStrategy
from sunk_kube.objects import Condition, Node, OwnerReference, condition
from sunk_kube.pods import Pod
from sunk_kube.testing import T0, node, nodeset, pod
from sunk_nodeset_controller.nodesets.feasibility import fits
from sunk_nodeset_controller.nodesets.members import AWAY_S
from sunk_nodeset_controller.nodesets.model import (
    Action,
    CondemnPod,
    CreatePod,
    DeletePod,
    Fits,
    Observed,
    Plan,
    ReleasePod,
    Why,
)
from sunk_nodeset_controller.nodesets.plan import plan
from sunk_nodeset_controller.nodesets.protection import is_late, may_be_evicted
from sunk_nodeset_controller.nodesets.rollout import HELD_S, LOOK_AGAIN_S, failed_nodes
from sunk_nodeset_controller.nodesets.status import status
from sunk_nodeset_controller.nodesets.template import template_hash
from sunk_nodeset_controller.nodesets.usable import noted
from sunk_nodeset_controller.reasons import NodeSetReason
from sunk_nodeset_controller.slurm_health import StaleReason

OWNER = OwnerReference(kind="NodeSet", name="gpu", uid="uid-gpu", controller=True)
DEAD = Condition(type="Ready", status="Unknown")
NOT_READY = "taint node.kubernetes.io/not-ready:NoSchedule is not tolerated"
IDLE, DRAINED, DRAINING, BUSY = "idle", "drained", "draining", "busy"
Slurm = dict[str, str | None]
"""What Slurm says of each node; None: it does not know it."""


def wanted(
    replicas: int | None = None,
    *,
    at_once: int | str = 1,
    kind: str | None = None,
    min_ready: int | None = None,
    is_deleted: bool = False,
    finalizers: tuple[str, ...] = (),
) -> NodeSet:
    made = nodeset(replicas=replicas)
    strategy = {"type": kind, "rollingUpdate": {"maxUnavailable": at_once}}
    spec = replace(
        made.spec,
        update_strategy=msgspec.convert(strategy, UpdateStrategy),
        min_ready_seconds=min_ready,
    )
    meta = replace(made.metadata, deletion_timestamp=T0 if is_deleted else None, finalizers=finalizers)
    return replace(made, spec=spec, metadata=meta)


def member(
    number: int,
    *,
    is_old: bool = False,
    is_ready: bool = True,
    condemned: str = "",
    age_h: float = 1,
    ready_s: float = 3600,
) -> Pod:
    annotations = {wk.ANNOTATION_TEMPLATE_HASH: "old" if is_old else template_hash(nodeset())}
    if condemned:
        annotations[wk.ANNOTATION_CONDEMNED] = condemned
    made = pod(
        f"gpu-{number}",
        namespace="slurm",
        node=f"node{number}",
        labels={wk.LABEL_NODESET: "gpu", wk.LABEL_PROTECTED: "true"},
        annotations=annotations,
        owners=(OWNER,),
        created=T0 - timedelta(hours=age_h),
    )
    since = T0 - timedelta(seconds=ready_s)
    ready = Condition(type="Ready", status="True" if is_ready else "False", last_transition_time=since)
    return replace(made, status=replace(made.status, conditions=(ready,)))


def slurm_state(name: str, word: str, *, for_s: float = HELD_S) -> SlurmNodeState:
    return SlurmNodeState(
        changed=T0 - timedelta(seconds=for_s),
        node=name,
        state="ALLOCATED" if word in {DRAINING, BUSY} else "IDLE",
        is_drain=word in {DRAINED, DRAINING},
        is_busy=word in {DRAINING, BUSY},
    )


def seen(of: NodeSet, pods: tuple[Pod, ...], slurm: Mapping[str, str | None] | None) -> Observed:
    """Look at *pods*, each on a Node of its number; what *slurm* does not name is idle."""
    numbers = [int(pod.metadata.name.rpartition("-")[2]) for pod in pods]
    nodes = [node(f"node{number}", ip=f"10.0.0.{number}") for number in numbers]
    states = None
    if slurm is not None:
        words = {pod.metadata.name: slurm.get(pod.metadata.name, IDLE) for pod in pods}
        states = {name: slurm_state(name, word) for name, word in words.items() if word is not None}
    return Observed(
        nodeset=of,
        nodes={node.metadata.name: node for node in nodes},
        fits=fits(of, nodes, wk.TAINT_LOCK),
        pods=pods,
        slurm=states,
        now=T0,
    )


def condemn(number: int, why: Why) -> CondemnPod:
    return CondemnPod(f"gpu-{number}", f"uid-gpu-{number}", why)


def delete(number: int, *, is_unknown_fine: bool = True) -> DeletePod:
    return DeletePod(f"gpu-{number}", f"uid-gpu-{number}", is_unknown_fine)


def release(number: int) -> ReleasePod:
    return ReleasePod(f"gpu-{number}", f"uid-gpu-{number}")


@pytest.mark.parametrize(
    ("pods", "slurm", "chosen"),
    [
        pytest.param((member(1), member(2, is_ready=False, age_h=9)), {}, 2, id="not ready before idle"),
        pytest.param((member(1), member(2, age_h=9)), {"gpu-1": DRAINING}, 2, id="idle before draining"),
        pytest.param(
            (member(1), member(2, age_h=9)),
            {"gpu-1": BUSY, "gpu-2": DRAINING},
            2,
            id="draining before running",
        ),
        pytest.param((member(1, age_h=2), member(2, age_h=1)), {}, 2, id="the newest of equals"),
        pytest.param((member(1), member(2)), {"gpu-1": DRAINED, "gpu-2": BUSY}, 1, id="drained is idle"),
    ],
)
def test_whose_loss_costs_least_goes_first(pods: tuple[Pod, ...], slurm: Slurm, chosen: int) -> None:
    assert plan(seen(wanted(1), pods, slurm)).actions == (condemn(chosen, "scale-down"),)


def test_planning_again_while_the_first_still_drains_condemns_nobody_else() -> None:
    pods = member(1, condemned="scale-down"), member(2)

    assert plan(seen(wanted(1), pods, {"gpu-1": DRAINING})).actions == ()


def test_a_condemned_pod_goes_when_its_node_is_drained_and_idle() -> None:
    pods = member(1, condemned="scale-down"), member(2)

    assert plan(seen(wanted(1), pods, {"gpu-1": DRAINED})).actions == (delete(1),)
    assert plan(seen(wanted(1), pods, {"gpu-1": IDLE})).actions == ()
    assert plan(seen(wanted(1), pods, {"gpu-1": BUSY})).actions == ()


def test_a_drain_alone_condemns_nobody() -> None:
    assert plan(seen(wanted(1), (member(1),), {"gpu-1": DRAINED})).actions == ()


def test_replicas_back_up_release_who_was_to_go() -> None:
    pods = member(1, condemned="scale-down"), member(2)

    assert plan(seen(wanted(2), pods, {"gpu-1": DRAINED})).actions == (release(1),)


def test_of_two_that_were_to_go_the_dearer_is_released() -> None:
    pods = member(1, condemned="scale-down"), member(2, condemned="scale-down"), member(3)

    assert plan(seen(wanted(2), pods, {"gpu-1": DRAINING})).actions == (release(1),)


def test_while_slurm_is_not_heard_nobody_is_chosen_and_nobody_goes() -> None:
    pods = member(1, condemned="scale-down"), member(2, is_old=True), member(3)

    assert plan(seen(wanted(1), pods, None)).actions == ()


def test_an_update_takes_as_many_away_as_it_may() -> None:
    pods = tuple(member(number, is_old=True) for number in range(1, 5))

    assert plan(seen(wanted(at_once=2), pods, {})).actions == (condemn(1, "update"), condemn(2, "update"))
    assert plan(seen(wanted(at_once="75%"), pods, {})).actions == tuple(
        condemn(number, "update") for number in (1, 2, 3)
    )


def test_who_is_away_already_counts() -> None:
    pods = member(1, is_old=True), member(2, is_ready=False), member(3)

    assert plan(seen(wanted(at_once=1), pods, {})).actions == ()


def test_an_old_pod_that_is_not_ready_is_replaced_whatever_else_is_away() -> None:
    pods = member(1, is_old=True, is_ready=False), member(2, is_ready=False), member(3, is_old=True)

    assert plan(seen(wanted(at_once=1), pods, {})).actions == (condemn(1, "update"),)


def test_a_pod_that_has_just_become_ready_is_not_available_yet() -> None:
    pods = member(1, is_old=True), member(2, ready_s=4)
    found = plan(seen(wanted(at_once=1, min_ready=10), pods, {}))

    assert (found.actions, found.again_s) == ((), 6.0)


def test_the_old_template_back_releases_who_was_to_be_replaced() -> None:
    pods = (member(1, condemned="update"),)

    assert plan(seen(wanted(), pods, {"gpu-1": DRAINED})).actions == (release(1),)


def test_on_delete_replaces_nobody_by_itself() -> None:
    pods = member(1, is_old=True), member(2, is_old=True, condemned="update")

    assert plan(seen(wanted(kind="OnDelete"), pods, {})).actions == (release(2),)


def invalid(of: NodeSet, pods: tuple[Pod, ...], slurm: Slurm | None) -> Observed:
    """Look at *pods* of a NodeSet whose template is no Pod's, so that nobody is of it."""
    return replace(seen(of, pods, slurm), fits=Fits(invalid="no Pod"))


def test_a_template_that_is_no_pods_lets_those_stay_that_were_to_be_replaced() -> None:
    pods = member(1, is_old=True, condemned="update"), member(2, condemned="deletion"), member(3, is_old=True)

    assert plan(invalid(wanted(), pods, {"gpu-1": DRAINED})) == Plan(
        actions=(release(1), release(2)), invalid="no Pod"
    )
    assert plan(invalid(wanted(), pods, None)).actions == (release(1), release(2))


def test_who_is_too_many_stays_marked_under_a_template_that_is_no_pods_and_does_not_go() -> None:
    pods = member(1, condemned="scale-down"), member(2), member(3, condemned="update")
    slurm: Slurm = {"gpu-1": DRAINED, "gpu-3": DRAINED}

    assert plan(invalid(wanted(1), pods, slurm)).actions == (release(3),)
    assert plan(invalid(wanted(3), pods, slurm)).actions == (release(1), release(3))


def test_who_is_not_ready_stays_condemned_under_a_template_that_is_no_pods() -> None:
    pods = (member(1, is_old=True, is_ready=False, condemned="update"),)

    assert plan(invalid(wanted(), pods, {"gpu-1": DRAINED})).actions == ()


def test_a_deleted_nodeset_drains_all_its_pods_and_then_goes() -> None:
    leaving = wanted(is_deleted=True)
    pods = member(1), member(2, condemned="deletion"), member(3, condemned="deletion")
    found = plan(seen(leaving, pods, {"gpu-2": DRAINED, "gpu-3": DRAINING}))

    assert (found.actions, found.is_over) == ((condemn(1, "deletion"), delete(2)), False)
    assert plan(seen(leaving, (), {})).is_over


def test_a_nodeset_deleted_without_its_pods_leaves_them_alone() -> None:
    found = plan(seen(wanted(is_deleted=True, finalizers=("orphan",)), (member(1),), {}))

    assert (found.actions, found.is_over) == ((), True)


def test_a_node_that_slurm_does_not_know_goes_only_if_it_is_the_exception() -> None:
    condemned = member(1, is_old=True, condemned="update")
    pods = condemned, member(2), member(3)

    assert plan(seen(wanted(), pods, {"gpu-1": None})).actions == (delete(1),)
    assert plan(seen(wanted(), pods, {"gpu-1": None, "gpu-2": None})).actions == ()


def was_known(made: Pod) -> Pod:
    """Return *made* as it is after Slurm has said something of its node."""
    says = Condition(type=wk.CONDITION_SLURM_RUNNING, status="False", reason="Idle")
    return replace(made, status=replace(made.status, conditions=(*made.status.conditions, says)))


@pytest.mark.parametrize("is_ready", [True, False], ids=["ready", "not ready"])
def test_a_node_that_slurm_has_forgotten_is_no_reason_for_its_pod_to_go(*, is_ready: bool) -> None:
    forgotten = was_known(member(1, is_old=True, is_ready=is_ready, condemned="update"))
    pods = forgotten, member(2), member(3)

    assert plan(seen(wanted(), pods, {"gpu-1": None})).actions == ()


@pytest.mark.parametrize(
    "of", [wanted(0), wanted(), wanted(is_deleted=True)], ids=["scale-down", "update", "deletion"]
)
def test_while_slurm_suddenly_knows_far_fewer_nodes_nobody_is_chosen(of: NodeSet) -> None:
    pods = tuple(was_known(member(number, is_old=True, is_ready=number > 1)) for number in (1, 2, 3))
    looked = seen(of, pods, dict.fromkeys(("gpu-1", "gpu-2", "gpu-3")))
    doubted = replace(
        looked, doubt=StaleReason(NodeSetReason.NODES_MISSING, "Slurm knows 0 of 3 nodes that it knew")
    )

    assert plan(doubted).actions == ()
    assert plan(looked).actions != ()


def test_what_was_chosen_before_a_doubt_goes_on_where_slurm_still_says_so() -> None:
    pods = tuple(was_known(member(number, is_old=True, condemned="update")) for number in (1, 2, 3))
    looked = seen(wanted(at_once=3), pods, {"gpu-1": DRAINED, "gpu-2": None, "gpu-3": None})
    doubted = replace(
        looked, doubt=StaleReason(NodeSetReason.NODES_MISSING, "Slurm knows 1 of 3 nodes that it knew")
    )

    assert plan(doubted).actions == (delete(1, is_unknown_fine=False),)


def test_a_pod_that_never_started_may_go_though_slurm_knows_no_node_at_all() -> None:
    pods = member(1, is_old=True, is_ready=False, condemned="update"), member(2)

    assert plan(seen(wanted(), pods, {"gpu-1": None, "gpu-2": None})).actions == (delete(1),)


def test_the_status_says_for_whom_an_update_waits() -> None:
    pods = member(1, is_old=True, condemned="update"), member(2)
    looked = seen(wanted(), pods, {"gpu-1": DRAINING})
    told = status(looked, plan(looked))
    found = next(one for one in told.conditions if one.type == "Updated")

    assert (told.number_condemned, told.updated_number_scheduled) == (1, 1)
    assert found.message == "1 of 2 Pods have the current template; gpu-1: jobs run on 1 of them"


def test_the_status_says_whom_slurm_does_not_know_and_why_nobody_is_chosen() -> None:
    pods = member(1, is_old=True, condemned="update"), member(2, is_old=True), member(3)
    looked = replace(
        seen(wanted(), pods, {"gpu-1": None}),
        doubt=StaleReason(NodeSetReason.NODES_MISSING, "half are missing"),
    )
    found = condition(status(looked, plan(looked)).conditions, "Updated")

    assert found is not None
    assert found.message == (
        "1 of 3 Pods have the current template; gpu-1: Slurm does not know 1 of them; "
        "no other Pod is chosen: half are missing"
    )


@pytest.mark.parametrize(
    ("word", "is_cordoned", "is_late", "may_go"),
    [
        (DRAINED, True, False, True),
        (DRAINED, False, False, False),
        (IDLE, True, False, False),
        (DRAINING, True, False, False),
        (BUSY, True, False, False),
        (None, True, False, False),
        (None, True, True, True),
        (None, False, True, False),
    ],
)
def test_only_who_is_on_a_cordoned_node_and_runs_nothing_may_be_evicted(
    word: str | None, *, is_cordoned: bool, is_late: bool, may_go: bool
) -> None:
    slurm = slurm_state("gpu-1", word) if word is not None else None

    cordoned = node(is_cordoned=is_cordoned)
    assert may_be_evicted(cordoned, slurm, is_unregistered=is_late, is_held=False) is may_go
    assert not may_be_evicted(cordoned, slurm, is_unregistered=is_late, is_held=True)
    assert not may_be_evicted(None, slurm, is_unregistered=is_late, is_held=False)


@pytest.mark.parametrize(
    ("first", "expected"),
    [(member(1), True), (member(1, age_h=0.01), False), (was_known(member(1)), False)],
    ids=["never registered", "just made", "forgotten"],
)
def test_a_slurmd_that_never_registered_holds_up_no_drain_of_its_node(first: Pod, *, expected: bool) -> None:
    assert is_late(first, T0) is expected


def test_a_pod_whose_kubelets_clock_is_ahead_becomes_available_all_the_same() -> None:
    ahead = member(2, ready_s=-3600)
    found = plan(seen(wanted(at_once=1, min_ready=10), (member(1, is_old=True), ahead), {}))

    assert found.actions == (condemn(1, "update"),)


def of_slurm(looked: Observed, name: str, says: Mapping[str, Any]) -> Observed:
    """Return *looked* with more that Slurm *says* of a node."""
    assert looked.slurm is not None
    return replace(looked, slurm={**looked.slurm, name: replace(looked.slurm[name], **says)})


def test_a_moment_without_readiness_condemns_no_more_than_may_be_away() -> None:
    """The kubelets of four lost the API server for a moment: their Pods and jobs run on."""
    pods = (
        *(was_known(member(number, is_old=True, is_ready=False, ready_s=5)) for number in (1, 2, 3, 4)),
        was_known(member(5, is_old=True)),
    )

    assert plan(seen(wanted(at_once=1), pods, {})).actions == (condemn(1, "update"),)


def back(number: int, *, for_s: float) -> Node:
    """Return a Node that is ready again *for_s*."""
    since = T0 - timedelta(seconds=for_s)
    return node(
        f"node{number}", conditions=(Condition(type="Ready", status="True", last_transition_time=since),)
    )


@pytest.mark.parametrize(
    ("for_s", "again_s", "taken"),
    [
        pytest.param(1, AWAY_S - 1, {1}, id="a second ago"),
        pytest.param(AWAY_S, None, {1, 2, 3, 4}, id="a minute ago"),
        pytest.param(3600, None, {1, 2, 3, 4}, id="before the Pods became not ready"),
    ],
)
def test_pods_whose_nodes_have_just_come_back_have_a_minute_to_be_ready_again(
    for_s: float, again_s: float | None, taken: set[int]
) -> None:
    """Kubernetes called the Pods not ready for their kubelets, which have not said anything of them yet."""
    pods = tuple(was_known(member(at, is_old=True, is_ready=False, ready_s=300)) for at in (1, 2, 3, 4))
    looked = seen(wanted(at_once=1), pods, {})
    found = plan(replace(looked, nodes={f"node{at}": back(at, for_s=for_s) for at in (1, 2, 3, 4)}))

    assert (set(found.actions), found.again_s) == ({condemn(at, "update") for at in taken}, again_s)


def test_pods_that_are_ready_again_count_as_away_and_the_surplus_is_released() -> None:
    pods = tuple(member(number, is_old=True, condemned="update") for number in (1, 2, 3, 4, 5))

    assert plan(seen(wanted(at_once=1), pods, {"gpu-1": DRAINING})).actions == (
        release(3),
        release(4),
        release(5),
        release(1),
    )
    assert plan(seen(wanted(at_once=5), pods, {})).actions == ()


def left(of: NodeSet, all_: tuple[Pod, ...], pods: tuple[Pod, ...], slurm: Slurm) -> set[Action]:
    """Return what is planned for *pods*, of *all_* on the Nodes, but for new ones."""
    nodes = seen(of, all_, slurm).nodes
    found = plan(replace(seen(of, pods, slurm), nodes=nodes))
    return {one for one in found.actions if not isinstance(one, CreatePod)}


def test_of_pods_that_are_marked_too_many_one_goes_and_no_other_before_it_is_back() -> None:
    first, second = (member(number, is_old=True, condemned="update") for number in (1, 2))
    both, slurm = (first, second), Slurm({"gpu-1": DRAINED, "gpu-2": DRAINED})

    assert left(wanted(), both, both, slurm) == {delete(1), release(2)}
    assert left(wanted(), both, (second,), slurm) == {release(2)}  # It was not carried out in time.
    assert left(wanted(), both, (member(1, is_ready=False), second), slurm) == {release(2)}
    assert left(wanted(), both, (member(1), second), {"gpu-1": IDLE, "gpu-2": DRAINED}) == {delete(2)}


NOT_READY_YET = member(1, is_ready=False)
AWAY = was_known(member(1, is_old=True, is_ready=False, ready_s=AWAY_S))
BLIPS = was_known(member(1, is_old=True, is_ready=False, ready_s=1))


@pytest.mark.parametrize(
    ("other", "is_lost"),
    [
        pytest.param((), False, id="has no Pod"),
        pytest.param((NOT_READY_YET,), False, id="is updated and not ready"),
        pytest.param((AWAY,), False, id="is away"),
        pytest.param((AWAY,), True, id="is lost"),
        pytest.param((BLIPS,), False, id="is not ready for a moment"),
    ],
)
def test_while_another_is_away_a_marked_pod_keeps_its_mark_and_is_released_when_it_was_idle_for_a_while(
    other: tuple[Pod, ...], *, is_lost: bool
) -> None:
    marked = member(2, is_old=True, condemned="update")
    of, pods = wanted(), (*other, marked)
    nodes = {**seen(of, (member(1), marked), {}).nodes}
    if is_lost:
        nodes["node1"] = node("node1", conditions=(DEAD,))

    def of_the_marked(word: str, *, for_s: float = HELD_S) -> set[Action]:
        looked = seen(of, pods, {})
        slurm = {**(looked.slurm or {}), "gpu-2": slurm_state("gpu-2", word, for_s=for_s)}
        found = plan(replace(looked, nodes=nodes, slurm=slurm))
        return {one for one in found.actions if one in (delete(2), release(2))}

    assert of_the_marked(DRAINING) == set()
    assert of_the_marked(DRAINED, for_s=HELD_S - 1) == set()
    assert of_the_marked(DRAINED) == {release(2)}


def test_an_update_says_which_pods_hold_it_up() -> None:
    pods = AWAY, member(2, is_old=True), member(3)
    looked = seen(wanted(), pods, {})
    looked = replace(looked, nodes={**looked.nodes, "node1": node("node1", conditions=(DEAD,))})
    message = condition(status(looked, plan(looked)).conditions, "Updated")

    assert message is not None
    assert "other Pods that count as unavailable: gpu-1" in message.message


def test_a_failed_node_does_not_count_where_there_are_as_many_pods_as_shall_be() -> None:
    pods = member(2, is_old=True), member(3, is_old=True)
    began = Condition(type="Updated", status="False", last_transition_time=T0 - timedelta(hours=2))
    of = wanted(2)
    looked = seen(replace(of, status=replace(of.status, conditions=(began,))), pods, {})
    failed = replace(DEAD, last_transition_time=T0 - timedelta(hours=1))
    entries = (NodeSliceEntry(name="gpu-1", kube_node="node1", released=True),)
    found = plan(
        replace(
            looked,
            nodes={**looked.nodes, "node1": node("node1", conditions=(failed,))},
            slices=(NodeSlice(node_set="gpu", nodes=entries),),
            fits=Fits(obstacles={"node1": NOT_READY}),
        )
    )

    assert (found.failed, found.actions) == (frozenset(), (condemn(2, "update"),))


def test_the_place_of_one_that_cannot_go_is_another_ones() -> None:
    forgotten, drained = (member(number, is_old=True, condemned="update") for number in (2, 3))
    pods = (member(1, is_ready=False), was_known(forgotten), drained)

    found = left(wanted(at_once=2), pods, pods, {"gpu-1": None, "gpu-2": None, "gpu-3": DRAINED})

    assert found == {delete(3)}


@pytest.mark.parametrize(
    ("began_h", "why", "is_counted"),
    [
        pytest.param(2, NOT_READY, True, id="since the update began"),
        pytest.param(0.5, NOT_READY, False, id="before it"),
        pytest.param(2, "taint example.com/broken:NoSchedule is not tolerated", True, id="another taint"),
        pytest.param(2, "node selector does not match", False, id="no longer a Node of the set"),
    ],
)
@pytest.mark.parametrize("is_terminating", [True, False], ids=["the Pod is terminating", "the Pod is gone"])
def test_a_node_that_fails_when_its_pod_went_for_an_update_counts_as_away(
    began_h: float, why: str, *, is_counted: bool, is_terminating: bool
) -> None:
    pods = tuple(member(number, is_old=True) for number in (1, 2, 3))
    ends = replace(pods[0], metadata=replace(pods[0].metadata, deletion_timestamp=T0))
    began = Condition(type="Updated", status="False", last_transition_time=T0 - timedelta(hours=began_h))
    of = wanted()
    looked = seen(replace(of, status=replace(of.status, conditions=(began,))), pods, {})
    failed = replace(DEAD, last_transition_time=T0 - timedelta(hours=1))
    entries = tuple(
        NodeSliceEntry(name=f"gpu-{one}", kube_node=f"node{one}", released=one == 1) for one in (1, 2)
    )
    failing = replace(
        looked,
        pods=(*((ends,) if is_terminating else ()), *pods[1:]),
        nodes={**looked.nodes, "node1": node("node1", conditions=(failed,))},
        slices=(NodeSlice(node_set="gpu", nodes=entries),),
        fits=Fits(obstacles={"node1": why}),
    )
    found = plan(failing)

    assert found.actions == (() if is_counted else (condemn(2, "update"),))
    assert found.failed == ({"node1"} if is_counted else frozenset())
    assert failed_nodes(replace(failing, let_go=frozenset({"node1"})), failing.fits.obstacles) == frozenset()
    message = condition(status(looked, found).conditions, "Updated")
    assert message is not None
    assert ("became not ready during the update count as unavailable: node1" in message.message) is is_counted
    kept = condition(status(looked, Plan(invalid="no Pod")).conditions, "Updated")
    assert kept == began


def test_a_pod_that_was_not_ready_for_long_is_away_and_one_on_a_node_that_is_down_is_not_chosen() -> None:
    pods = (
        was_known(member(1, is_old=True, is_ready=False, ready_s=AWAY_S - 10)),
        was_known(member(2, is_old=True, is_ready=False, ready_s=AWAY_S)),
        was_known(member(3, is_old=True, is_ready=False, ready_s=AWAY_S)),
        member(4, is_ready=False),
    )
    looked = seen(wanted(at_once=1), pods, {})
    dead = {"node3": node("node3", conditions=(DEAD,))}
    found = plan(replace(looked, nodes={**looked.nodes, **dead}))

    assert (set(found.actions), found.again_s) == ({condemn(1, "update"), condemn(2, "update")}, 10.0)
    looked = seen(wanted(at_once=1), (*pods[2:], was_known(member(1, is_old=True))), {})

    assert plan(replace(looked, nodes={**looked.nodes, **dead})).actions == ()


@pytest.mark.parametrize(
    ("says", "why"),
    [
        pytest.param(None, "Slurm does not know it", id="not registered"),
        pytest.param({"state": "DOWN", "reason": "Not responding"}, "DOWN: Not responding", id="down"),
        pytest.param({"state": "DOWN"}, "DOWN", id="down without a reason"),
        pytest.param({"state": "UNKNOWN"}, "UNKNOWN", id="unknown"),
        pytest.param(
            {"flags": ("DRAIN", "INVALID_REG"), "is_drain": True, "reason": "Low RealMemory"},
            "INVALID_REG: Low RealMemory",
            id="refused",
        ),
        pytest.param({"flags": ("NOT_RESPONDING",)}, "NOT_RESPONDING", id="not responding"),
        pytest.param(
            {"slurmd_started": T0 - timedelta(hours=9)},
            "its slurmd has not registered",
            id="a former slurmd's",
        ),
        pytest.param(
            {"is_drain": True, "reason": "NHC: no GPU", "reason_changed": T0},
            "drained: NHC: no GPU",
            id="drained since",
        ),
        pytest.param(
            {
                "is_drain": True,
                "reason": "NHC: no GPU",
                "reason_changed": T0 - timedelta(hours=1, seconds=10),
            },
            "drained: NHC: no GPU",
            id="drained since, by a slurmctld whose clock is behind",
        ),
        pytest.param(
            {
                "state": "DOWN",
                "reason": "gres too low",
                "reason_changed": T0 - timedelta(hours=1, seconds=10),
            },
            "DOWN: gres too low",
            id="down since, by a slurmctld whose clock is behind",
        ),
    ],
)
def test_an_updated_pod_whose_node_slurm_cannot_use_is_away_and_the_update_waits_and_says_so(
    says: dict[str, Any] | None, why: str
) -> None:
    pods = was_known(member(1)), was_known(member(2, is_old=True)), was_known(member(3, is_old=True))
    looked = seen(wanted(at_once=1), pods, {"gpu-1": None} if says is None else {})
    looked = looked if says is None else of_slurm(looked, "gpu-1", says)
    found = plan(looked)
    told = condition(status(looked, found).conditions, "Updated")

    assert (found.actions, found.again_s) == ((), LOOK_AGAIN_S)
    assert told is not None
    assert told.message == (
        "1 of 3 Pods have the current template; Slurm cannot use the nodes of these updated Pods: gpu-1 "
        f"({why}). The update waits. Fix them, change the template, or raise maxUnavailable"
    )
    assert plan(replace(looked, nodeset=wanted(at_once=2))).actions == (condemn(2, "update"),)


@pytest.mark.parametrize(
    "says",
    [
        pytest.param({"is_drain": True, "reason": "bad dimm", "reason_changed": T0 - timedelta(days=9)}),
        pytest.param({"is_drain": True, "reason": "k8s: cordon: disk", "reason_changed": T0}),
        pytest.param({"slurmd_started": T0 - timedelta(minutes=61)}),
        pytest.param({"state": "DOWN", "reason": "bad dimm", "reason_changed": T0 - timedelta(days=9)}),
        pytest.param(
            {
                "state": "DOWN",
                "reason": "k8s: pod terminated; was down: bad dimm",
                "reason_changed": T0 - timedelta(days=9),
            }
        ),
    ],
    ids=[
        "drained by hand",
        "cordoned",
        "a clock that is behind",
        "down by hand",
        "down by hand, drained by us since",
    ],
)
def test_a_node_that_somebody_took_out_before_its_pod_was_made_holds_no_update_up(
    says: dict[str, Any],
) -> None:
    pods = was_known(member(1)), was_known(member(2, is_old=True))

    assert plan(of_slurm(seen(wanted(at_once=1), pods, {}), "gpu-1", says)).actions == (condemn(2, "update"),)


@pytest.mark.parametrize("behind_s", [-30, 30], ids=["behind", "ahead"])
@pytest.mark.parametrize(
    "says", [{"is_drain": True}, {"state": "DOWN"}], ids=["drained by hand", "down by hand"]
)
def test_what_took_a_node_out_just_before_its_pod_was_made_is_noted_whatever_slurmctlds_clock(
    says: dict[str, Any], behind_s: float
) -> None:
    changed = T0 - timedelta(hours=1, seconds=20) + timedelta(seconds=behind_s)
    out = {**says, "reason": "bad dimm", "reason_changed": changed}
    slurm = of_slurm(seen(wanted(at_once=1), (member(1),), {}), "gpu-1", out).slurm
    assert slurm is not None
    made = was_known(member(1))
    meta = replace(made.metadata, annotations={**made.metadata.annotations, **noted(slurm["gpu-1"])})
    pods = replace(made, metadata=meta), was_known(member(2, is_old=True))
    again = {**out, "reason_changed": changed + timedelta(seconds=40)}

    assert plan(of_slurm(seen(wanted(at_once=1), pods, {}), "gpu-1", out)).actions == (condemn(2, "update"),)
    assert plan(of_slurm(seen(wanted(at_once=1), pods, {}), "gpu-1", again)).actions == ()


def test_a_node_that_is_in_use_has_nothing_to_note() -> None:
    used = of_slurm(seen(wanted(), (member(1),), {}), "gpu-1", {"reason_changed": T0}).slurm
    assert used is not None

    assert (noted(used["gpu-1"]), noted(None)) == ({}, {})


def test_a_template_that_slurm_rejected_is_replaced_before_any_other_pod() -> None:
    """What came of the bad template is old by now, and its node is of no use to Slurm."""
    pods = tuple(was_known(member(number, is_old=True, age_h=number == 3)) for number in (1, 2, 3))
    looked = of_slurm(
        seen(wanted(at_once=1), pods, {}), "gpu-3", {"state": "DOWN", "reason": "Not responding"}
    )

    assert plan(looked).actions == (condemn(3, "update"),)


def test_a_node_that_is_down_and_not_drained_yet_is_waited_for_and_said() -> None:
    pods = was_known(member(1, is_old=True, condemned="update")), member(2)
    looked = of_slurm(
        seen(wanted(), pods, {}), "gpu-1", {"state": "DOWN", "reason": "bad dimm", "is_down": True}
    )
    found = plan(looked)
    told = condition(status(looked, found).conditions, "Updated")

    assert found.actions == ()
    assert told is not None
    assert told.message == (
        "1 of 2 Pods have the current template; gpu-1: 1 of them DOWN, which the syncer drains first"
    )
    assert plan(of_slurm(looked, "gpu-1", {"is_drain": True})).actions == (delete(1, is_unknown_fine=False),)


Fleet = list[tuple[bool, bool, str, str | None, int]]
"""Of each Pod: is it old, is it ready, why is it condemned, what does Slurm say, how old is it."""
fleets = st.lists(
    st.tuples(
        st.booleans(),
        st.booleans(),
        st.sampled_from(["", "update", "scale-down"]),
        st.sampled_from([IDLE, DRAINED, DRAINING, BUSY, None]),
        st.integers(0, 9),
    ),
    max_size=8,
)


def made_of(fleet: Fleet) -> tuple[tuple[Pod, ...], Slurm]:
    pods = tuple(
        member(number, is_old=is_old, is_ready=is_ready, condemned=why, age_h=age)
        for number, (is_old, is_ready, why, _, age) in enumerate(fleet, 1)
    )
    return pods, {f"gpu-{number}": one[3] for number, one in enumerate(fleet, 1)}


def why_of(pod: Pod) -> str:
    return pod.metadata.annotations.get(wk.ANNOTATION_CONDEMNED, "")


@given(fleets, st.none() | st.integers(0, 9), st.integers(1, 4))
def test_no_plan_deletes_a_pod_whose_node_may_run_a_job(
    fleet: Fleet, replicas: int | None, at_once: int
) -> None:
    pods, slurm = made_of(fleet)
    actions = plan(seen(wanted(replicas, at_once=at_once), pods, slurm)).actions
    deleted = {one.name for one in actions if isinstance(one, DeletePod)}

    assert {slurm[name] for name in deleted} <= {DRAINED, None}
    assert deleted <= {pod.metadata.name for pod in pods if why_of(pod)}


@given(fleets, st.none() | st.integers(0, 9))
def test_for_a_template_that_is_no_pods_nobody_goes_is_chosen_or_made(
    fleet: Fleet, replicas: int | None
) -> None:
    pods, slurm = made_of(fleet)
    actions = plan(invalid(wanted(replicas), pods, slurm)).actions
    released = {one.name for one in actions if isinstance(one, ReleasePod)}

    assert len(released) == len(actions)
    assert released <= {pod.metadata.name for pod in pods if why_of(pod)}


@given(st.permutations(range(5)), fleets.filter(lambda fleet: len(fleet) >= 5), st.none() | st.integers(0, 9))
def test_the_same_view_plans_the_same_in_whatever_order_it_comes(
    order: list[int], fleet: Fleet, replicas: int | None
) -> None:
    pods, slurm = made_of(fleet)
    shuffled = tuple(pods[place] for place in order) + pods[5:]

    assert plan(seen(wanted(replicas), shuffled, slurm)) == plan(seen(wanted(replicas), pods, slurm))


@given(fleets, st.integers(1, 4))
def test_no_update_takes_more_away_than_it_may(fleet: Fleet, at_once: int) -> None:
    pods, slurm = made_of(fleet)
    actions = plan(seen(wanted(at_once=at_once), pods, slurm)).actions
    released = {one.name for one in actions if isinstance(one, ReleasePod)}
    chosen = {one.name for one in actions if isinstance(one, CondemnPod)}
    marked = chosen | {pod.metadata.name for pod in pods if why_of(pod)} - released
    serving = {pod.metadata.name for pod in pods if pod.is_ready} - marked
    begun = {pod.metadata.name for pod in pods if pod.is_ready} & chosen

    assert not begun or len(pods) - len(serving) <= at_once


class World:
    """Pods, Slurm and time, for plans to act on."""

    def __init__(self, fleet: Fleet, at_once: int, *, is_rejected: bool = False) -> None:
        found, self.slurm = made_of(fleet)
        self.is_rejected = is_rejected
        """Slurm takes no node of the new template."""
        self.at_once = at_once
        self.exceeded: list[str] = []
        """Pods that an update took away though too many were away."""
        self.nodes = {f"node{number}": node(f"node{number}") for number in range(1, len(fleet) + 1)}
        self.pods = {pod.metadata.name: pod for pod in found}
        self.lost_jobs = 0

    def observe(self, of: NodeSet) -> Observed:
        names = tuple(NodeSliceEntry(name=f"gpu-{name[4:]}", kube_node=name) for name in self.nodes)
        looked = seen(of, tuple(self.pods.values()), self.slurm)
        return replace(looked, nodes=self.nodes, slices=(NodeSlice(node_set="gpu", nodes=names),))

    def apply(self, action: Action) -> None:
        match action:
            case CreatePod(name, kube_node):
                self.pods[name] = member(int(kube_node.removeprefix("node")), age_h=0, is_ready=False)
                self.slurm[name] = None
            case CondemnPod(name, _, why):
                self.pods[name] = self._marked(name, why)
                if why == "update" and self.pods[name].is_ready and self._away() > self.at_once:
                    self.exceeded.append(name)
            case ReleasePod(name, _):
                self.pods[name] = self._marked(name, "")
            case DeletePod(name, _):
                self.lost_jobs += self.slurm[name] in {BUSY, DRAINING}
                del self.pods[name]
            case _:
                raise AssertionError(action)

    def _away(self) -> int:
        """Return how many Nodes have no Pod that serves, or one that is about to go."""
        return len(self.nodes) - sum(pod.is_ready and not why_of(pod) for pod in self.pods.values())

    def pass_time(self) -> None:
        """The syncer drains who is condemned, jobs end, slurmds come up."""
        for name, found in self.pods.items():
            state = self.slurm[name] or IDLE
            if why_of(found):
                self.slurm[name] = {IDLE: DRAINED, BUSY: DRAINING, DRAINING: DRAINED}.get(state, state)
            else:
                is_refused = (
                    self.is_rejected and found.metadata.annotations[wk.ANNOTATION_TEMPLATE_HASH] != "old"
                )
                self.slurm[name] = None if is_refused else BUSY if state == BUSY else IDLE
                self.pods[name] = replace(found, status=member(1).status)

    def _marked(self, name: str, why: str) -> Pod:
        pod = self.pods[name]
        annotations = {**pod.metadata.annotations, wk.ANNOTATION_CONDEMNED: why}
        if not why:
            del annotations[wk.ANNOTATION_CONDEMNED]
        return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


@settings(max_examples=60, deadline=None)
@given(fleets, st.none() | st.integers(0, 9), st.integers(1, 4), st.data())
def test_every_update_and_scaling_ends_with_what_was_asked_and_loses_no_job(
    fleet: Fleet, replicas: int | None, at_once: int, data: st.DataObject
) -> None:
    world = World(fleet, at_once)
    of = wanted(replicas, at_once=at_once)
    for _ in range(12 * len(fleet) + 12):
        actions = plan(world.observe(of)).actions
        done = data.draw(st.integers(min(1, len(actions)), len(actions)), label="done before a kill")
        for action in actions[:done]:
            world.apply(action)
        world.pass_time()

    size = len(fleet) if replicas is None else min(replicas, len(fleet))
    assert (plan(world.observe(of)).actions, world.lost_jobs, len(world.pods)) == ((), 0, size)
    assert all(pod.metadata.annotations == member(1).metadata.annotations for pod in world.pods.values())


@settings(max_examples=60, deadline=None)
@given(fleets, st.integers(1, 4), st.data())
def test_no_update_ever_keeps_more_pods_away_than_it_may(
    fleet: Fleet, at_once: int, data: st.DataObject
) -> None:
    world = World([(is_old, is_ready, "", word, age) for is_old, is_ready, _, word, age in fleet], at_once)
    for _ in range(6 * len(fleet) + 6):
        actions = plan(world.observe(wanted(at_once=at_once))).actions
        done = data.draw(st.integers(min(1, len(actions)), len(actions)), label="done before a kill")
        for action in actions[:done]:
            world.apply(action)
        if data.draw(st.booleans(), label="time passes"):
            world.pass_time()

    assert world.exceeded == []


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(1, 4), st.data())
def test_a_template_that_slurm_rejects_reaches_no_more_pods_than_may_be_away(
    size: int, at_once: int, data: st.DataObject
) -> None:
    world = World([(True, True, "", IDLE, 1)] * size, at_once, is_rejected=True)
    for _ in range(4 * size + 8):
        for action in plan(world.observe(wanted(at_once=at_once))).actions:
            world.apply(action)
        if data.draw(st.booleans(), label="time passes"):
            world.pass_time()

    old = [
        one for one in world.pods.values() if one.metadata.annotations[wk.ANNOTATION_TEMPLATE_HASH] == "old"
    ]
    assert len(old) >= size - at_once
