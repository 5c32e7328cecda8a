"""What is said of Pods that no pod-scheduler serves."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from sunk_kube.objects import Condition
from sunk_kube.pods import Pod, PodStatus
from sunk_pod_scheduler.placement.unserved import OUT_OF_SCOPE_S, UNKNOWN_S, Unserved, unserved
from sunk_pod_scheduler.podspec.scopes import ALIAS, PodScope
from sunk_pod_scheduler.reasons import PodReason
from sunk_pod_scheduler.testing.builders import T0, manifest

OWNER = PodScope(cluster="a", names=("a-slurm", ALIAS))
NARROW = PodScope(cluster="b", names=("b-slurm", ALIAS), namespaces=("ml", "web"))


def named(name: str, *, said: bool = False) -> Pod:
    pod = manifest()
    conditions = (Condition(type="PodScheduled", status="False"),) if said else ()
    status = PodStatus(phase="Pending", conditions=conditions)
    return replace(pod, spec=replace(pod.spec, scheduler_name=name), status=status)


def test_a_pod_that_names_a_scheduler_outside_its_scope_is_told_who_serves_its_namespace() -> None:
    assert unserved(named("b-slurm", said=True), [OWNER, NARROW]) == Unserved(
        reason=PodReason.SCHEDULER_OUT_OF_SCOPE,
        text="scheduler b-slurm of cluster b does not serve namespace default; "
        "pod-schedulers that serve it: a-slurm, sunk-scheduler",
        due=T0 + timedelta(seconds=OUT_OF_SCOPE_S),
    )


def test_a_pod_that_names_no_scheduler_that_exists_is_told_so_after_a_while() -> None:
    assert unserved(named("sunk-schedular"), [OWNER]) == Unserved(
        reason=PodReason.SCHEDULER_UNKNOWN,
        text="no pod-scheduler has the name sunk-schedular, and no other scheduler has reported on this "
        "Pod; in namespace default, pod-schedulers that serve it: a-slurm, sunk-scheduler",
        due=T0 + timedelta(seconds=UNKNOWN_S),
    )


@pytest.mark.parametrize("name", ["a-slurm", ALIAS])
def test_a_pod_that_is_served_is_told_nothing(name: str) -> None:
    assert unserved(named(name), [NARROW, OWNER]) is None


def test_a_pod_that_another_projects_scheduler_has_looked_at_is_told_nothing() -> None:
    assert unserved(named("volcano", said=True), [OWNER]) is None


def test_a_pod_that_is_gated_bound_over_or_going_is_told_nothing() -> None:
    pod = named("nosuch")
    gated = replace(pod, spec=replace(pod.spec, scheduling_gates=({"name": "kueue"},)))
    bound = replace(pod, spec=replace(pod.spec, node_name="node1"))
    over = replace(pod, status=PodStatus(phase="Failed"))
    going = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=T0))

    assert [unserved(one, [OWNER]) for one in (gated, bound, over, going)] == [None] * 4


def test_what_a_pods_user_writes_is_one_short_line() -> None:
    found = unserved(named("x\n" + "y" * 10_000), [OWNER])

    assert found is not None
    assert found.text.isprintable()
    assert len(found.text) < 400
