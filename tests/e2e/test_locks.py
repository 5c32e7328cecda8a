"""Locks that fail, on the whole stack: real kubelets, a real Slurm, our scripts as slurmd starts them."""

from collections.abc import Generator

import pytest

from sunk_lab.config import from_environment
from sunk_lab.stack.raw import Object
from sunk_lab.story import manifests
from sunk_lab.story.deeds import fresh
from sunk_lab.story.observe import until
from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import JOB_SCRIPT

pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        from_environment().seeds < 2,
        reason="a prolog's deadline is a minute away: SUNK_LAB_SEEDS=2 runs it",
    ),
]

NEVER = "test.example/never"


def kept_pod(name: str, kube_node: str) -> Object:
    """Return a Pod that a finalizer keeps, and whose container takes ten minutes to end."""
    container = {
        "name": "main",
        "image": manifests.PAUSE,
        "lifecycle": {"preStop": {"sleep": {"seconds": 600}}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": manifests.NAMESPACE, "finalizers": [NEVER]},
        "spec": {"nodeName": kube_node, "terminationGracePeriodSeconds": 600, "containers": [container]},
    }


@pytest.fixture
def pod(stage: Stage) -> Generator[str]:
    """A Pod that does not leave the first node, until the test ends."""
    kube, name = stage.deeds.kube, fresh("kept")
    kube.create(kept_pod(name, stage.nodes[0].kube_node))
    until(f"{name} running", lambda: phase(stage, name) == "Running", lambda: phase(stage, name))
    yield name
    if kube.get("Pod", name) is not None:
        let_go(stage, name)
    until(f"{name} gone", lambda: kube.get("Pod", name) is None, lambda: phase(stage, name))
    stage.deeds.unlocked(stage.nodes[0])
    stage.deeds.undrained(stage.nodes[0])


def phase(stage: Stage, name: str) -> str:
    found = stage.deeds.kube.get("Pod", name)
    return str(found["status"].get("phase")) if found else ""


def let_go(stage: Stage, name: str) -> None:
    """Have the Pod go at once."""
    stage.deeds.kube.patch("Pod", name, {"metadata": {"finalizers": None}})
    stage.stack.kubectl(
        "delete", "pod", name, "--namespace", manifests.NAMESPACE, "--force", "--grace-period=0"
    )


def test_a_pod_that_never_goes_keeps_the_job_off_its_node_which_is_drained_with_its_name_until_it_is_gone(
    stage: Stage, pod: str
) -> None:
    do, node = stage.deeds, stage.nodes[0]
    job = do.slurm.submit(JOB_SCRIPT, node=node.node, name="kept-off")
    try:
        do.job_reaches(job, "RUNNING")
        until(
            f"{node.node} drained for {pod}",
            lambda: f"{manifests.NAMESPACE}/{pod}" in (do.eyes.drain_reason(node.node) or ""),
            lambda: do.eyes.drain_reason(node.node),
            patience_s=180,
        )
        reason = do.eyes.drain_reason(node.node) or ""
        do.job_reaches(job, "PENDING")
        has_run = stage.in_slurmd(node, "ls", "/tmp").split()  # noqa: S108 - in the slurmd Pod

        let_go(stage, pod)
        do.undrained(node)
    finally:
        do.slurm.cancel(job)

    assert reason.startswith("k8s: prolog pre-hook failed: ")
    assert reason.endswith("(sunk:verify-undrain)")
    assert "grace period of 600 s" in reason
    assert f"started-{job}" not in has_run
