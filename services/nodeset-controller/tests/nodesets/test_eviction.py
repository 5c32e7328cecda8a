"""What an update does not wait for."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_events.placements import PlacementState
from sunk_kube import wellknown as wk
from sunk_kube.nodesets import RequeueRule, RollingUpdate, UpdateStrategy
from sunk_kube.testing import T0, nodeset, pod
from sunk_nodeset_controller.nodesets.eviction import cleared, matches
from sunk_nodeset_controller.nodesets.members import members
from sunk_nodeset_controller.nodesets.model import EvictPlacedPod, Fits, Observed, ReleasePod, RequeueJobOn
from sunk_nodeset_controller.nodesets.plan import plan
from sunk_nodeset_controller.nodesets.template import template_hash

EVERY = RequeueRule(partitions=("low",))


def job(number: int = 7, *, hours: int | None = 1) -> SlurmJobState:
    started = None if hours is None else T0 - timedelta(hours=hours)
    return SlurmJobState(
        changed=T0,
        job=number,
        state="RUNNING",
        is_running=True,
        partition="low",
        qos="normal",
        started=started,
    )


def seen(rolling: RollingUpdate, *, why: str = "update", is_drain: bool = True) -> Observed:
    """Look at a node with two jobs, of which one is a Pod's placeholder."""
    made = nodeset()
    strategy = UpdateStrategy(rolling_update=rolling)
    placed_pod = PlacementState(
        changed=T0, uid="u", namespace="web", pod="guest", phase="bound", job=8, node="gpu-1"
    )
    return Observed(
        nodeset=replace(made, spec=replace(made.spec, update_strategy=strategy)),
        nodes={},
        fits=Fits(),
        pods=(pod("gpu-1", annotations={wk.ANNOTATION_CONDEMNED: why} if why else {}),),
        slurm={
            "gpu-1": SlurmNodeState(
                changed=T0, node="gpu-1", state="ALLOCATED", is_drain=is_drain, is_busy=True
            )
        },
        jobs={"gpu-1": (job(7), job(8))},
        placed_pods={"gpu-1": (placed_pod,)},
        now=T0,
    )


def actions(rolling: RollingUpdate, *, why: str = "update", is_drain: bool = True) -> tuple[object, ...]:
    looked = seen(rolling, why=why, is_drain=is_drain)
    return cleared(looked, members(looked))


@pytest.mark.parametrize(
    ("rule", "found", "is_requeued"),
    [
        pytest.param(RequeueRule(), job(), False, id="no rule"),
        pytest.param(RequeueRule(partitions=("low",)), job(), True, id="its partition"),
        pytest.param(RequeueRule(partitions=("high",)), job(), False, id="another partition"),
        pytest.param(RequeueRule(qos=("normal",)), job(), True, id="its qos"),
        pytest.param(RequeueRule(running_seconds=3599), job(), True, id="it has run for longer"),
        pytest.param(RequeueRule(running_seconds=3600), job(), False, id="it has not run for longer"),
        pytest.param(RequeueRule(running_seconds=0), job(hours=None), False, id="it has not begun"),
    ],
)
def test_a_job_is_requeued_where_a_rule_says_so(
    rule: RequeueRule, found: SlurmJobState, *, is_requeued: bool
) -> None:
    assert matches(rule, found, T0) == is_requeued


def test_an_update_waits_for_everybody_unless_it_is_told_otherwise() -> None:
    assert actions(RollingUpdate()) == ()


def test_a_placeholder_is_not_requeued_but_its_pod_may_be_evicted() -> None:
    assert actions(RollingUpdate(requeue=EVERY)) == (RequeueJobOn(7, "gpu-1"),)
    assert actions(RollingUpdate(placeholders="evict")) == (EvictPlacedPod("web", "guest", "u", "gpu-1", 8),)


def test_nobody_leaves_a_node_that_is_not_drained_yet_or_goes_for_another_reason() -> None:
    rolling = RollingUpdate(requeue=EVERY, placeholders="evict")

    assert actions(rolling, is_drain=False) == ()
    assert actions(rolling, why="scale-down") == ()
    assert actions(rolling, why="") == ()


def test_nobody_leaves_a_node_that_the_update_no_longer_needs() -> None:
    looked = seen(RollingUpdate(requeue=EVERY, placeholders="evict"))
    present = template_hash(looked.nodeset)
    annotations = {wk.ANNOTATION_CONDEMNED: "update", wk.ANNOTATION_TEMPLATE_HASH: present}
    found = plan(replace(looked, pods=(pod("gpu-1", annotations=annotations),)))

    assert found.actions == (ReleasePod("gpu-1", "uid-gpu-1"),)


def test_nobody_leaves_a_node_whose_pod_may_not_go_because_another_one_is_away() -> None:
    looked = seen(RollingUpdate(requeue=EVERY, placeholders="evict"))
    assert {*plan(looked).actions} == {
        RequeueJobOn(7, "gpu-1"),
        EvictPlacedPod("web", "guest", "u", "gpu-1", 8),
    }

    away = pod(
        "gpu-2",
        node="node2",
        annotations={wk.ANNOTATION_TEMPLATE_HASH: template_hash(looked.nodeset)},
        is_ready=False,
    )

    assert plan(replace(looked, pods=(*looked.pods, away))).actions == ()
