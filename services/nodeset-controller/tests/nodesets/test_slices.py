from datetime import timedelta

from sunk_kube import wellknown as wk
from sunk_kube.node_slices import NodeSlice, NodeSliceEntry
from sunk_kube.objects import ObjectMeta, OwnerReference
from sunk_kube.pods import Pod
from sunk_kube.testing import T0, node, nodeset, pod
from sunk_nodeset_controller.nodesets.feasibility import fits
from sunk_nodeset_controller.nodesets.model import Observed
from sunk_nodeset_controller.nodesets.plan import plan
from sunk_nodeset_controller.nodesets.slices import (
    FAILURES_MAX,
    FORGIVEN_S,
    failed_of,
    failures_of,
    wanted_entries,
)

OWNED = {wk.LABEL_NODESET: "gpu", wk.LABEL_CLUSTER: "lab", wk.LABEL_PROTECTED: "true"}


def own(phase: str = "Running") -> Pod:
    owner = OwnerReference(kind="NodeSet", name="gpu", uid="uid-gpu", controller=True)
    return pod("gpu-1", namespace="slurm", phase=phase, labels=OWNED, owners=(owner,))


def observed(one: Pod, failures: int, *, after_s: float, failed: str = "") -> Observed:
    """Return a NodeSet with one Pod, all of it read from slices: nothing is remembered elsewhere."""
    entry = NodeSliceEntry(name="gpu-1", kube_node="node1", failures=failures, failed=failed)
    slices = (NodeSlice(metadata=ObjectMeta(name="gpu-0"), node_set="gpu", nodes=(entry,)),)
    return Observed(
        nodeset=nodeset(),
        nodes={"node1": node("node1")},
        fits=fits(nodeset(), (node("node1"),), wk.TAINT_LOCK),
        pods=(one,),
        slices=slices,
        failures=failures_of(slices),
        failed=failed_of(slices),
        now=T0 + timedelta(seconds=after_s),
    )


def written(seen: Observed) -> int:
    """Return how many failures the slice has when what is planned is carried out."""
    return wanted_entries(seen, plan(seen))["node1"].failures


def test_a_failure_is_written_down_with_the_deletion_of_its_pod_and_not_before_it_is_due() -> None:
    assert written(observed(own("Failed"), 0, after_s=9)) == 0
    assert written(observed(own("Failed"), 0, after_s=10)) == 1
    assert written(observed(own("Failed"), 1, after_s=19)) == 1
    assert written(observed(own("Failed"), 1, after_s=20)) == 2


def test_the_failure_of_one_pod_is_counted_once_also_where_it_is_seen_for_longer_than_its_deletion() -> None:
    """Its view is behind that of slices, or the leader was killed between the two."""
    before = observed(own("Failed"), 3, after_s=80)
    (entry,) = wanted_entries(before, plan(before)).values()

    behind = observed(own("Failed"), entry.failures, failed=entry.failed, after_s=80)

    assert (entry.failures, entry.failed) == (4, own().metadata.uid)
    assert plan(behind).actions == plan(before).actions != ()
    assert list(wanted_entries(behind, plan(behind)).values()) == [entry]
    assert written(observed(own("Failed"), 4, failed="uid-former", after_s=160)) == 5


def test_failures_are_no_longer_counted_where_waiting_longer_is_not_possible() -> None:
    assert written(observed(own("Failed"), FAILURES_MAX, after_s=3600)) == FAILURES_MAX


def test_a_pod_that_has_been_ready_for_long_is_forgiven() -> None:
    assert written(observed(own(), 3, after_s=FORGIVEN_S)) == 3
    assert written(observed(own(), 3, after_s=FORGIVEN_S + 1)) == 0


def test_a_pod_that_has_ended_is_not_forgiven_for_what_it_said_before() -> None:
    assert written(observed(own("Failed"), 3, after_s=3600)) == 4
