import pytest
from msgspec.structs import replace

from sunk_pod_scheduler.placement.explain import FINDINGS_MAX, explain
from sunk_pod_scheduler.placement.model import JobGone, JobUnknown, Observed
from sunk_pod_scheduler.testing import KUBE_NODE, SLURM_NODE, job, placement, pod, seen

RUNNING = placement("released")
STARTED = placement("started", node=SLURM_NODE)


@pytest.mark.parametrize(
    ("found", "because", "would_change"),
    [
        pytest.param(seen(replace(pod(), is_gated=True), None, JobGone()), "gates", "removes", id="gated"),
        pytest.param(
            seen(pod(problems=("no cpu",)), placement("refused", job=None), JobGone()),
            "no cpu",
            "change the Pod",
            id="refused",
        ),
        pytest.param(
            seen(
                pod(),
                replace(
                    placement("submitted", job=None, digest="", attempt=3),
                    reason="Invalid partition name specified",
                ),
                JobGone(),
            ),
            "Invalid partition name",
            "tried again at 2026-01-05 12:00:04",
            id="rejected by Slurm",
        ),
        pytest.param(
            seen(pod(), placement("released"), job("PENDING", reason="Resources")),
            "Resources",
            "squeue --start",
            id="no room",
        ),
        pytest.param(
            seen(pod(), placement("released"), job("PENDING", is_held=True, reason="JobHeldUser")),
            "JobHeldUser",
            "scontrol release 7",
            id="held by somebody",
        ),
        pytest.param(
            seen(pod(), RUNNING, job(reason="Prolog")), "locks", "in the way", id="its prolog locks the Node"
        ),
        pytest.param(seen(pod(), RUNNING, job()), "not announced", "gateway", id="its script is silent"),
        pytest.param(
            seen(pod(), STARTED, job(), kube_node=""), "NodeSet", "nodeset-controller", id="no Node"
        ),
        pytest.param(
            seen(pod(), STARTED, job(), node_problem="a taint"), "a taint", "another job", id="a taint came"
        ),
        pytest.param(
            seen(pod(kube_node=KUBE_NODE), placement("bound", node=SLURM_NODE), JobUnknown()),
            "does not answer",
            "answer again",
            id="Slurm is away",
        ),
        pytest.param(
            seen(pod(), replace(placement("ending", node=SLURM_NODE), is_overdue=True), JobGone()),
            "may still run",
            "object is gone",
            id="overdue",
        ),
    ],
)
def test_says_why_a_pod_is_as_it_is_and_what_would_change_it(
    found: Observed, because: str, would_change: str
) -> None:
    first = explain(found)[0]

    assert because in first.because
    assert would_change in first.would_change


def test_everything_that_is_wrong_with_a_pod_is_listed() -> None:
    wrong = tuple(f"problem {number}" for number in range(50))

    found = explain(seen(pod(problems=wrong), placement("refused", job=None), JobGone()))

    assert [finding.because for finding in found] == list(wrong[:FINDINGS_MAX])
