"""Which workloads lack Pods, and what is said of that."""

from typing import Any

import pytest

from sunk_ctl.unready import unready


def named(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"metadata": {"namespace": "slurm", "name": name}, **fields}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "said"),
    [
        ("deployments", {"replicas": 2}, {"readyReplicas": 2}, []),
        ("deployments", {"replicas": 2}, {}, ["Deployment: 0 of 2 Pods are ready"]),
        ("deployments", {}, {}, ["Deployment: 0 of 1 Pods are ready"]),
        ("statefulsets", {"replicas": 3}, {"readyReplicas": 1}, ["StatefulSet: 1 of 3 Pods are ready"]),
        ("statefulsets", {"replicas": 0}, {}, ["StatefulSet: 0 of 0 Pods are ready"]),
        ("daemonsets", {}, {"desiredNumberScheduled": 4, "numberReady": 4}, []),
        ("daemonsets", {}, {"desiredNumberScheduled": 0}, []),
        ("daemonsets", {}, {"desiredNumberScheduled": 4}, ["DaemonSet: 0 of 4 Pods are ready"]),
    ],
)
def test_a_workload_that_lacks_pods_is_named(
    kind: str, spec: dict[str, Any], status: dict[str, Any], said: list[str]
) -> None:
    found = unready([(kind, named("one", spec=spec, status=status))], [])

    assert [one.what for one in found] == said
    assert {one.where for one in found} <= {"slurm/one"}


def test_a_pod_says_why_it_waits() -> None:
    waiting = {
        "name": "syncer",
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
    }
    starting = {"name": "syncer", "state": {"waiting": {"reason": "ContainerCreating"}}}
    full = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    pods = [
        named("a", status={"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}),
        named("b", status={"phase": "Pending", "containerStatuses": [waiting]}),
        named("c", status={"phase": "Running", "initContainerStatuses": [waiting]}),
        named("d", status={"phase": "Pending", "conditions": [full]}),
        named("e", status={"phase": "Pending", "containerStatuses": [starting]}),
        named("f", status={"phase": "Succeeded"}),
    ]
    found = {one.where: one.what for one in unready([], pods)}

    assert found == {
        "slurm/b": "Pod: syncer: ImagePullBackOff no such image",
        "slurm/c": "Pod: syncer: ImagePullBackOff no such image",
        "slurm/d": "Pod: 0/3 nodes are available",
        "slurm/e": "Pod: Pending",
    }
