import pytest
from msgspec.structs import replace

from sunk_events.nodesets import KubePodState
from sunk_events.requests import Finding
from sunk_kube import wellknown as wk
from sunk_kube.objects import Condition
from sunk_kube.testing import T0, node, nodeset, pod
from sunk_nodeset_controller.pods.explain import Explained, explain
from sunk_nodeset_controller.reasons import NodeSetReason
from sunk_nodeset_controller.slurm_health import StaleReason

STATE = KubePodState(
    changed=T0,
    pod="gpu-000-011",
    namespace="slurm",
    nodeset="gpu",
    kube_node="node1",
    phase="running",
    is_ready=True,
    ready_changed=T0,
)
SEEN = Explained(state=STATE, pod=pod("gpu-000-011"), node=node(), nodeset=nodeset())


def whats(seen: Explained) -> list[str]:
    return [found.what for found in explain(seen)]


def test_of_what_is_well_there_is_nothing_to_say() -> None:
    assert explain(SEEN) == ()


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (replace(SEEN, pod=None), "its Pod is gone"),
        (
            replace(SEEN, pod=pod("gpu-000-011", annotations={wk.ANNOTATION_CONDEMNED: "update"})),
            "its Pod is to be deleted: update",
        ),
        (replace(SEEN, pod=pod("gpu-000-011", deleted=T0)), "its Pod is terminating"),
        (replace(SEEN, state=replace(STATE, is_ready=False)), "its Pod is not ready"),
        (replace(SEEN, node=None), "its Node is gone"),
        (
            replace(SEEN, node=node(conditions=(Condition(type="Ready", status="Unknown"),))),
            "its Node is not ready",
        ),
        (replace(SEEN, state=replace(STATE, is_cordoned=True, cordon_reason="fan")), "its Node is cordoned"),
        (
            replace(SEEN, node=node(conditions=(Condition(type="HPCVerification", status="False"),))),
            "its Node failed its verification",
        ),
        (replace(SEEN, nodeset=None), "its NodeSet is gone"),
        (
            replace(SEEN, pod=pod("gpu-000-011", annotations={wk.ANNOTATION_FEATURES: "a," * 100_000})),
            "the services ignore its features: the annotation sunk.coreweave.com/features is too long",
        ),
        (
            replace(SEEN, doubt=StaleReason(NodeSetReason.NO_NEWS_FROM_SLURM, "silent")),
            "the state of Slurm is too old to rely on, or incomplete",
        ),
        (replace(SEEN, locks=(Finding(what="locked for job 7"),)), "locked for job 7"),
    ],
)
def test_what_stands_out_is_said(seen: Explained, expected: str) -> None:
    assert whats(seen) == [expected]


def test_the_weightiest_comes_first_and_all_fits_an_answer() -> None:
    ready = Condition(type="Ready", status="False", message="x" * 5000)
    found = explain(
        replace(
            SEEN,
            node=node(conditions=(ready,)),
            pod=pod("gpu-000-011", annotations={wk.ANNOTATION_CONDEMNED: "deletion"}),
            locks=tuple(Finding(what=f"job {number}") for number in range(40)),
        )
    )

    assert [one.what for one in found[:3]] == [
        "its Pod is to be deleted: deletion",
        "its Node is not ready",
        "job 0",
    ]
    assert len(found) == 32
    assert len(found[1].because) == 1024
