"""What `sunkctl doctor` says of a cluster, for values that are to be installed there."""

from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from sunk_ctl import doctor
from sunk_kube.objects import Node

DOCTOR: Final[dict[str, Any]] = dict(vars(doctor))
GPU: Final = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
VALUES: Final[dict[str, Any]] = {
    "clusterName": "prod",
    **{key: {"tls": {"generate": True}} for key in ("hookGateway", "rest")},
    "nats": {"existingSecret": "passwords"},
    "compute": {"nodes": {"gpu": {"nodeSelector": {"kind": "gpu"}, "replicas": 2}}},
}


def node(name: str, *taints: dict[str, str], kind: str = "gpu") -> Node:
    raw = {"metadata": {"name": name, "labels": {"kind": kind}}, "spec": {"taints": list(taints)}}
    return msgspec.convert(raw, Node)


GOOD: Final[dict[str, Any]] = {
    "version": (1, 31),
    "class_is_default": {"standard": True},
    "nodes": (node("a"), node("b"), node("c", kind="cpu")),
}


def said(values: dict[str, Any], **cluster: Any) -> list[str]:  # noqa: ANN401 - free-form.
    wanted = DOCTOR["wanted_of"](VALUES | values, "slurm", "slurm")
    return list(DOCTOR["findings"](DOCTOR["Cluster"](**GOOD | cluster), wanted))


def test_a_cluster_that_will_do_is_told_so() -> None:
    assert said({}) == []


def test_users_without_a_shared_home_are_warned_of_and_keep_nobody_from_installing() -> None:
    def warnings(**values: Any) -> list[str]:  # noqa: ANN401 - free-form.
        return list(DOCTOR["wanted_of"](VALUES | values, "slurm", "slurm").warnings)

    users = [{"name": "ada", "uid": 2000}]
    (told,) = warnings(users=users)
    assert told.startswith("WARNING: no shared file system is mounted below /home")
    assert "\n" not in told
    assert said({"users": users}) == warnings() == []


def test_that_pods_may_name_anything_of_slurm_is_said_before_an_install() -> None:
    told = DOCTOR["wanted_of"](VALUES | {"scheduler": {"defaultPolicy": "allow"}}, "slurm", "slurm").warnings

    (one,) = told
    assert one.startswith("WARNING: scheduler.defaultPolicy is allow: any user who may create Pods")


@pytest.mark.parametrize(
    ("bearers", "why"),
    [
        ((), "there is no policy sunk-lock-bearers."),
        (("Warn", "Audit"), "the policy sunk-lock-bearers only warns."),
    ],
)
def test_that_tenants_may_stay_on_locked_nodes_is_said_unless_such_pods_are_refused(
    bearers: tuple[str, ...], why: str
) -> None:
    def told(actions: tuple[str, ...]) -> list[str]:
        return list(DOCTOR["left_open"](DOCTOR["Cluster"](**GOOD, bearers=actions)))

    (warning,) = told(bearers)
    assert warning.startswith(
        "WARNING: Pods of any tenant can stay on a Node that is locked for a Slurm job: " + why
    )
    assert warning.endswith("set admissionPolicies.lockBearers.action to Deny")
    assert told(("Deny",)) == []


def test_that_nats_does_not_encrypt_is_said_where_one_is_seen() -> None:
    def told(**pod: Any) -> list[str]:  # noqa: ANN401 - free-form.
        bus = DOCTOR["bus_of"]({"spec": {"replicas": 1, "template": {"spec": pod}}})
        return list(DOCTOR["left_open"](DOCTOR["Cluster"](**GOOD, bearers=("Deny",), bus=bus)))

    (warning,) = told(volumes=[{"name": "config"}])
    assert warning.startswith("WARNING: NATS does not encrypt.")
    assert told(volumes=[{"name": "config"}, {"name": "tls"}]) == []


def test_objects_of_ones_own_are_not_looked_at() -> None:
    """They may be anything: a kind of somebody's operator, with any shape."""
    odd = [{"apiVersion": "a/v1", "kind": "NodeSet", "metadata": {"name": "x"}, "spec": None}]

    wanted = DOCTOR["wanted_of"]({"clusterName": "c", "extraObjects": odd}, "prod", "slurm")

    assert "x" not in wanted.sets


APART: Final[list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parents[2] / "helm/sunk/examples/high-availability.yaml").read_text()
)["nats"]["affinity"]
SKEWED: Final = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "topologyKey": "kubernetes.io/hostname"}


@pytest.mark.parametrize(
    ("replicas", "pod", "why"),
    [
        (1, {}, "three NATS servers, each on a Node of its own. The one server has the only copy"),
        (3, {}, "the 3 NATS servers may be on one Node"),
        (
            3,
            {"topologySpreadConstraints": [SKEWED | {"whenUnsatisfiable": "ScheduleAnyway"}]},
            "may be on one",
        ),
        (3, {"topologySpreadConstraints": [SKEWED | {"topologyKey": "zone"}]}, "may be on one Node"),
        (3, {"topologySpreadConstraints": [SKEWED]}, ""),
        (3, {"affinity": APART}, ""),
    ],
    ids=["one", "by default", "if it can be", "by zones", "spread", "as the example"],
)
def test_three_servers_that_cannot_be_on_one_node_are_recommended(
    replicas: int, pod: dict[str, Any], why: str
) -> None:
    bus = DOCTOR["bus_of"]({"spec": {"replicas": replicas, "template": {"spec": pod}}})

    told = list(DOCTOR["recommended"](DOCTOR["Cluster"](**GOOD, bus=bus)))

    assert [why in line for line in told] == [True] * bool(why)


def test_of_a_bus_that_is_not_seen_nothing_is_recommended() -> None:
    assert list(DOCTOR["recommended"](DOCTOR["Cluster"](**GOOD))) == []


@pytest.mark.parametrize(
    ("values", "cluster", "why"),
    [
        ({}, {"version": (1, 30)}, "version: Kubernetes 1.30 lacks"),
        ({}, {"denied": ("clusterroles",)}, "rights: you may not create clusterroles"),
        ({}, {"class_is_default": {"slow": False}}, "storage: no StorageClass is the default"),
        (
            {"mariadb": {"storageClassName": "fast"}},
            {},
            "storage: there is no StorageClass fast: name one",
        ),
        ({}, {"standard": "restricted"}, "Pod security: slurmd and sshd start as root"),
        ({}, {"nodes": (node("c", kind="cpu"),)}, "compute.nodes.gpu: no Node matches"),
        ({}, {"nodes": (node("a"),)}, "compute.nodes.gpu: wants 2 Nodes, and 1 fit: label more"),
        (
            {},
            {"nodes": (node("a", GPU), node("b"))},
            "wants 2 Nodes, and 1 fit; 1 have taints that it does not tolerate (nvidia.com/gpu)",
        ),
    ],
    ids=["version", "rights", "default class", "class", "standard", "labels", "too few", "taints"],
)
def test_what_would_keep_an_install_from_working_is_named_with_what_to_do(
    values: dict[str, Any], cluster: dict[str, Any], why: str
) -> None:
    (told,) = said(values, **cluster)

    assert why in told
