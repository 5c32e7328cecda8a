"""Which workloads lack Pods, and what is said of that."""

from typing import Any

import pytest

from sunk_ctl.unready import Objects, unready

MEANWHILE = "Kubernetes deletes no namespace meanwhile"


def named(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"metadata": {"namespace": "slurm", "name": name}, **fields}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "said"),
    [
        ("deployments", {"replicas": 2}, {"readyReplicas": 2}, []),
        ("deployments", {"replicas": 2}, {}, ["Deployment: 0 of 2 Pods are ready"]),
        ("deployments", {}, {}, ["Deployment: 0 of 1 Pods are ready"]),
        (
            *("deployments", {"replicas": 2}, {"readyReplicas": 2, "unavailableReplicas": 1}),
            ["Deployment: an update does not end"],
        ),
        ("statefulsets", {"replicas": 3}, {"readyReplicas": 1}, ["StatefulSet: 1 of 3 Pods are ready"]),
        ("statefulsets", {"replicas": 0}, {}, ["StatefulSet: it has no replicas"]),
        ("daemonsets", {}, {"desiredNumberScheduled": 4, "numberReady": 4}, []),
        ("daemonsets", {}, {"desiredNumberScheduled": 0}, []),
        ("daemonsets", {}, {"desiredNumberScheduled": 4}, ["DaemonSet: 0 of 4 Pods are ready"]),
    ],
)
def test_a_workload_that_lacks_pods_is_named(
    kind: str, spec: dict[str, Any], status: dict[str, Any], said: list[str]
) -> None:
    found = unready(Objects(workloads=[(kind, named("one", spec=spec, status=status))]))

    assert [one.what for one in found] == said
    assert {one.where for one in found} <= {"slurm/one"}


def test_a_login_set_may_have_no_replicas_and_a_nodeset_says_what_stops_it() -> None:
    login = named("slurm-login", spec={"replicas": 0})
    login["metadata"]["labels"] = {"app.kubernetes.io/name": "login"}
    conditions = [
        {"type": "SlurmKnown", "status": "False", "reason": "NoNewsFromBus", "message": "no word from NATS"},
        {"type": "Ready", "status": "False", "reason": "Some", "message": "1 of 2"},
        {"type": "Accepted", "status": "True"},
    ]
    nodeset = named("gpu", status={"conditions": conditions})

    assert [
        one.what for one in unready(Objects(workloads=[("statefulsets", login)], nodesets=[nodeset]))
    ] == ["NodeSet: SlurmKnown is False: NoNewsFromBus: no word from NATS"]


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ({"type": "Available", "status": "True"}, []),
        ({"type": "Available", "status": "Unknown", "reason": "Later"}, []),
        (
            {"type": "Available", "status": "False", "reason": "FailedDiscoveryCheck", "message": "late"},
            [f"APIService: not available. {MEANWHILE}: FailedDiscoveryCheck: late"],
        ),
    ],
)
def test_a_view_that_the_api_server_does_not_reach_says_what_stands_still_and_what_to_do(
    condition: dict[str, str], said: list[str]
) -> None:
    name = "v1alpha1.view.sunk.coreweave.com"
    one = {"metadata": {"name": name}, "status": {"conditions": [condition]}}

    found = unready(Objects(apiservices=[one]))

    assert [symptom.what for symptom in found] == said
    assert {symptom.where for symptom in found} <= {name}
    assert all("port 8443" in symptom.fix and "view.enabled=false" in symptom.fix for symptom in found)


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
        named("evicted", status={"phase": "Failed", "containerStatuses": [waiting]}),
    ]
    found = {one.where: one.what for one in unready(Objects(pods=pods))}

    assert found == {
        "slurm/b": "Pod: syncer: ImagePullBackOff no such image",
        "slurm/c": "Pod: syncer: ImagePullBackOff no such image",
        "slurm/d": "Pod: 0/3 nodes are available",
    }
