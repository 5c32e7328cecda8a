from typing import Any

import msgspec
import pytest

from sunk_kube import wellknown as wk
from sunk_kube.matching import untolerated
from sunk_kube.nodesets import DynamicFeature, Features
from sunk_kube.objects import Taint
from sunk_kube.pods import Pod
from sunk_kube.testing import node, nodeset
from sunk_nodeset_controller.nodesets.feasibility import fits, obstacle, requests
from sunk_nodeset_controller.nodesets.template import features, manifest, pinned_node, pod_spec, template_hash

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def affinity(key: str, value: str) -> dict[str, object]:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}, "preferredDuringScheduling": []}}


def test_a_pod_is_pinned_to_its_node_and_keeps_the_rest_of_its_template() -> None:
    given = {"affinity": {**affinity("a", "b"), "podAffinity": {"x": 1}}, "hostname": "kept"}
    made = manifest(nodeset(spec=given), node("node7"), "gpu-000-011", wk.TAINT_LOCK)

    assert pinned_node(msgspec.convert(made, Pod)) == "node7"
    assert made["spec"]["affinity"]["podAffinity"] == {"x": 1}
    assert made["spec"]["hostname"] == "kept"
    assert made["spec"]["restartPolicy"] == "Always"


def test_a_pods_hostname_is_its_slurm_nodes_name_so_that_dns_can_know_it() -> None:
    assert manifest(nodeset(), node(), "gpu-000-011", wk.TAINT_LOCK)["spec"]["hostname"] == "gpu-000-011"


def test_a_template_stays_as_it_is_however_many_pods_are_made_of_it() -> None:
    spec = {
        "affinity": affinity("a", "b"),
        "tolerations": [{"key": "mine", "operator": "Exists"}],
        "initContainers": [{"name": "init", "image": "i", "resources": {"limits": {"cpu": "1"}}}],
    }
    of = nodeset(spec=spec)
    before = msgspec.json.encode(of.spec.template)
    first, second = (manifest(of, node(name), "gpu-1", wk.TAINT_LOCK) for name in ("node1", "node2"))

    assert msgspec.json.encode(of.spec.template) == before
    assert first["spec"]["affinity"] != second["spec"]["affinity"]


def container(**words: object) -> dict[str, Any]:
    """Return the container that comes of one with *words* in the template."""
    given = {"containers": [{"name": "slurmd", "image": "slurm:1", **words}]}
    return manifest(nodeset(spec=given), node(), "gpu-000-011", wk.TAINT_LOCK)["spec"]["containers"][0]


def test_slurmd_asks_kubernetes_for_little_and_for_no_gpu() -> None:
    assert container()["resources"] == {"requests": {"cpu": "100m", "memory": "256Mi"}}


@pytest.mark.parametrize(
    ("given", "requests"),
    [
        ({"limits": {"cpu": "128", "memory": "1Ti"}}, {"cpu": "100m", "memory": "256Mi"}),
        ({"requests": {"cpu": "2"}, "limits": {"memory": "1Ti"}}, {"cpu": "2", "memory": "256Mi"}),
        ({"limits": {"cpu": "50m"}}, {"cpu": "50m", "memory": "256Mi"}),
    ],
    ids=["limits alone", "one request", "a limit below"],
)
def test_a_limit_is_no_request(given: dict[str, dict[str, str]], requests: dict[str, str]) -> None:
    assert container(resources=given)["resources"] == {**given, "requests": requests}


def test_what_the_containers_of_a_pod_share_is_asked_for_by_the_pod() -> None:
    spec = {"resources": {"limits": {"memory": "1Gi"}}}
    made = manifest(nodeset(spec=spec), node(), "gpu-000-011", wk.TAINT_LOCK)

    assert "resources" not in made["spec"]["containers"][0]


def test_a_limit_that_is_no_quantity_is_named() -> None:
    containers = [{"name": "a", "image": "b", "resources": {"limits": {"cpu": "1.2.3"}}}]

    assert "'1.2.3'" in fits(nodeset(spec={"containers": containers}), (), wk.TAINT_LOCK).invalid


def test_a_gpu_in_the_limits_alone_is_asked_for() -> None:
    limits = {"cpu": "999", "nvidia.com/gpu": 8}
    containers = [{"name": "a", "image": "b", "resources": {"limits": limits}}]
    spec = pod_spec(nodeset(spec={"containers": containers}), wk.TAINT_LOCK)

    assert obstacle(spec, requests(spec), node()) == "not enough nvidia.com/gpu"


def test_slurmd_is_told_its_name_its_cluster_and_its_features() -> None:
    mine = {"name": "SUNK_CLUSTER", "value": "mine"}
    found = {one["name"]: one for one in container(env=[mine])["env"]}

    assert found["SUNK_NODE"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert wk.ANNOTATION_FEATURES in found["SUNK_FEATURES"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert found["SUNK_CLUSTER"] == mine


def test_readiness_is_the_answer_of_slurmds_own_port_unless_the_template_says_otherwise() -> None:
    ports = [{"name": "slurmd", "containerPort": 6818}]
    probe = {"exec": {"command": ["true"]}}

    assert container(ports=ports)["readinessProbe"]["tcpSocket"] == {"port": "slurmd"}
    assert container(ports=ports, readinessProbe=probe)["readinessProbe"] == probe
    assert "readinessProbe" not in container()


def test_a_pod_belongs_to_its_nodeset_by_owner_and_by_labels() -> None:
    made = manifest(nodeset(), node(), "gpu-000-011", wk.TAINT_LOCK)

    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-gpu"
    assert made["metadata"]["labels"] == {
        wk.LABEL_NODESET: "gpu",
        wk.LABEL_CLUSTER: "lab",
        wk.LABEL_ROLE: wk.ROLE_COMPUTE,
        wk.LABEL_PROTECTED: "true",
    }


@pytest.mark.parametrize(
    ("key", "effect"),
    [
        (wk.TAINT_LOCK, "NoExecute"),
        (wk.TAINT_NOT_READY, "NoExecute"),
        (wk.TAINT_UNREACHABLE, "NoExecute"),
        (wk.TAINT_UNSCHEDULABLE, "NoSchedule"),
        (wk.TAINT_DISK_PRESSURE, "NoSchedule"),
    ],
)
def test_neither_a_lock_nor_an_outage_drives_slurmd_away(key: str, effect: str) -> None:
    spec = pod_spec(nodeset(), wk.TAINT_LOCK)

    assert obstacle(spec, {}, node(taints=(Taint(key=key, effect=effect),))) == ""


@pytest.mark.parametrize("is_host_network", [True, False])
def test_a_node_without_pod_network_is_no_matter_to_who_has_the_nodes_own(*, is_host_network: bool) -> None:
    given = nodeset(spec={"hostNetwork": is_host_network})
    taint = Taint(key=wk.TAINT_NETWORK_UNAVAILABLE, effect="NoSchedule")
    made = msgspec.convert(manifest(given, node(), "gpu-000-011", wk.TAINT_LOCK), Pod)

    assert (obstacle(pod_spec(given, wk.TAINT_LOCK), {}, node(taints=(taint,))) == "") is is_host_network
    assert (not untolerated(made.spec.tolerations, (taint,))) is is_host_network


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, "", id="nothing asked"),
        pytest.param({"nodeSelector": {"role": "compute"}}, "", id="selector"),
        pytest.param({"nodeSelector": {"role": "x"}}, "node selector does not match", id="other selector"),
        pytest.param({"affinity": affinity("role", "compute")}, "", id="affinity"),
        pytest.param(
            {"affinity": affinity("role", "x")}, "required node affinity does not match", id="other affinity"
        ),
        pytest.param({"overhead": {"cpu": "7", "memory": "99Gi"}}, "", id="overhead of nothing is nothing"),
    ],
)
def test_a_node_is_feasible_where_a_pod_may_run(spec: dict[str, object], expected: str) -> None:
    asked = pod_spec(nodeset(spec=spec), wk.TAINT_LOCK)

    assert obstacle(asked, requests(asked), node(labels={"role": "compute"})) == expected


def test_a_taint_that_is_not_tolerated_is_named() -> None:
    spec = pod_spec(nodeset(), wk.TAINT_LOCK)
    tainted = node(taints=(Taint(key="mine", effect="NoSchedule"),))

    assert obstacle(spec, {}, tainted) == "taint mine:NoSchedule is not tolerated"


def test_a_node_that_is_too_small_says_of_what() -> None:
    containers = [{"name": "a", "resources": {"requests": {"cpu": "9", "nvidia.com/gpu": 8}}}]
    spec = pod_spec(nodeset(spec={"containers": containers}), wk.TAINT_LOCK)

    assert obstacle(spec, requests(spec), node()) == "not enough cpu, nvidia.com/gpu"


def test_requests_are_those_of_all_containers_or_of_the_largest_that_starts_before_them() -> None:
    def container(cpu: str, policy: str = "") -> dict[str, object]:
        return {"name": "a", "restartPolicy": policy, "resources": {"requests": {"cpu": cpu}}}

    spec = pod_spec(
        nodeset(
            spec={
                "containers": [container("1"), container("500m")],
                "initContainers": [container("2"), container("100m", "Always")],
                "overhead": {"cpu": "50m"},
            }
        ),
        wk.TAINT_LOCK,
    )

    assert str(requests(spec)["cpu"]) == "2.050"


def test_a_template_that_is_no_pod_names_the_field() -> None:
    with pytest.raises(msgspec.ValidationError, match="nodeSelector"):
        pod_spec(nodeset(spec={"nodeSelector": 7}), wk.TAINT_LOCK)


def test_features_are_the_fixed_ones_and_those_of_the_labels_that_are_there() -> None:
    wanted = Features(
        static_features=("b", "a"),
        dynamic_features={"zone": DynamicFeature(prefix="z-"), "none": DynamicFeature()},
    )

    assert features(wanted, {"zone": "1"}) == ("a", "b", "z-1")


def test_the_hash_tells_two_templates_apart_and_nothing_else() -> None:
    assert template_hash(nodeset()) == template_hash(nodeset(replicas=9, generation=7))
    assert template_hash(nodeset()) != template_hash(nodeset(spec={"hostname": "x"}))


def test_a_pod_that_is_neither_bound_nor_pinned_is_nowhere() -> None:
    assert pinned_node(Pod()) == ""


@pytest.mark.parametrize(
    ("container", "field"),
    [
        pytest.param({"env": "A=b"}, "$.containers[0].env", id="an environment that is a text"),
        pytest.param({"env": ["A=b"]}, "$.containers[0].env[0]", id="a variable that is a text"),
        pytest.param({"env": [{"name": ["A"]}]}, "$.containers[0].env[0].name", id="a name that is a list"),
        pytest.param({"ports": [{"name": ["A"]}]}, "$.containers[0].ports[0].name", id="a port's name"),
    ],
)
def test_what_no_pod_can_be_made_of_is_refused_by_its_field(container: dict[str, Any], field: str) -> None:
    of = nodeset(spec={"containers": [{"name": "slurmd", "image": "i", **container}]})

    assert field in fits(of, [node()], wk.TAINT_LOCK).invalid


def test_an_overhead_that_is_no_quantity_is_refused_by_its_name() -> None:
    assert "overhead" in fits(nodeset(spec={"overhead": {"x": "y"}}), [node()], wk.TAINT_LOCK).invalid


def test_an_init_container_that_ends_gets_no_probe_though_its_port_is_slurmds() -> None:
    port = {"ports": [{"name": "slurmd", "containerPort": 6818}]}
    before = [
        {"name": "ends", "image": "i", **port},
        {"name": "stays", "image": "i", "restartPolicy": "Always", **port},
    ]
    made = manifest(nodeset(spec={"initContainers": before}), node(), "gpu-1", wk.TAINT_LOCK)

    assert ["readinessProbe" in one for one in made["spec"]["initContainers"]] == [False, True]


def test_an_empty_environment_is_none() -> None:
    of = nodeset(spec={"containers": [{"name": "slurmd", "image": "i", "env": None}]})
    (made,) = manifest(of, node(), "gpu-1", wk.TAINT_LOCK)["spec"]["containers"]

    assert fits(of, [node()], wk.TAINT_LOCK).invalid == ""
    assert made["env"][0]["name"] == "SUNK_NODE"
