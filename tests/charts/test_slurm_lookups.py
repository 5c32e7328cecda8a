"""What the chart that each Slurm cluster has refuses because of what the cluster says, without a cluster."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_lab.charts import render

CHART: Final = Path(__file__).parents[2] / "helm/slurm"
VALUES: Final[dict[str, Any]] = {"clusterName": "prod", "nats": {"existingSecret": "passwords"}}
PROBE: Final = """
{{- range $check, $arguments := .Files.Get "found.json" | fromJson }}
{{- include $check (set $arguments "root" $) }}
{{- end }}
"""
"""A template that asks checks of the chart about what a cluster would have answered."""


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chart = tmp_path_factory.mktemp("charts") / "slurm"
    shutil.copytree(CHART, chart)
    (chart / "templates/probe.yaml").write_text(PROBE)
    return chart


def ask(probed: Path, check: str, found: dict[str, Any], **values: Any) -> None:  # noqa: ANN401 - free-form.
    """Have *check* judge *values*, where the cluster has *found*."""
    (probed / "found.json").write_text(json.dumps({check: found}))
    render(helm.Chart.load(probed), VALUES | values, name="prod", namespace="slurm")


@pytest.mark.parametrize(
    ("said", "values", "why"),
    [
        ({"NATS_REPLICAS": "3"}, {}, "nats.replicas: the sunk release keeps streams on 3 servers"),
        ({"NATS_URL": "nats://bus:4222"}, {}, "nats.url: is empty, .*: set nats://bus:4222"),
        ({"LOCK_KEY": "example.com/lock"}, {}, "sunk.lockKey: the sunk release locks Nodes by .*example.com"),
        (
            {"TOPOLOGY": "block"},
            {"slurmConfig": {"topologyPlugin": "topology/tree"}},
            "slurmConfig.topologyPlugin: topology/tree reads a topology.conf, .* of kind block",
        ),
        (
            {"NODE_PERMISSIONS": "stage"},
            {"syncer": {"nodePermissions": {"enabled": True}}},
            "syncer.nodePermissions.enabled: the sunk release does not let prod",
        ),
        (
            {"NODE_PERMISSIONS": "prod", "REBOOT_REASON": "other"},
            {"syncer": {"nodePermissions": {"enabled": True}}},
            "syncer.hooksAPI.nodeRebootReason: .* writes other: set the same in both",
        ),
    ],
    ids=[
        "three servers",
        "another bus",
        "another lock",
        "another topology",
        "no reboots",
        "another reason to reboot",
    ],
)
def test_what_the_sunk_release_says_otherwise_is_refused_with_key_and_fix(
    probed: Path, said: dict[str, Any], values: dict[str, Any], why: str
) -> None:
    with pytest.raises(helm.HelmRenderError, match=why):
        ask(probed, "slurm.checkSaid", {"said": said}, **values)


def test_a_cluster_in_another_namespace_than_the_sunk_release_says_is_refused(probed: Path) -> None:
    with pytest.raises(helm.HelmRenderError, match="clusterName: the sunk release has prod in namespace hpc"):
        ask(probed, "slurm.checkSaid", {"said": {}, "namespace": "hpc"})
    ask(probed, "slurm.checkSaid", {"said": {}, "namespace": "slurm"})


def test_what_both_releases_say_alike_is_taken(probed: Path) -> None:
    ask(
        probed,
        "slurm.checkSaid",
        {"said": {"LOCK_KEY": "a/b", "NATS_REPLICAS": "1"}},
        sunk={"lockKey": "a/b"},
    )
    ask(probed, "slurm.checkSaid", {"said": {}})


def stateful_set(chart: Path, kind: str, **values: Any) -> dict[str, Any]:  # noqa: ANN401 - free-form.
    """Return the StatefulSet of *kind* that a release with *values* has."""
    found = render(helm.Chart.load(chart), VALUES | values, name="prod", namespace="slurm")
    return found["StatefulSet", f"prod-{kind}"]


@pytest.mark.parametrize(
    ("before", "values", "why"),
    [
        (
            {},
            {"controller": {"stateVolume": {"size": "20Gi"}}},
            "controller.stateVolume.size: the volume is of 10Gi, .* no 20Gi: .*statefulset prod-controller",
        ),
        (
            {"controller": {"stateVolume": {"storageClassName": "fast"}}},
            {},
            'controller.stateVolume.storageClassName: the volume is of class "fast"',
        ),
        (
            {},
            {"controller": {"stateVolume": {"accessModes": ["ReadWriteMany"]}}},
            "controller.stateVolume.accessModes: the volume has ReadWriteOnce, .* no ReadWriteMany",
        ),
        ({}, {"mariadb": {"size": "1Ti"}}, "mariadb.size: the volume is of 20Gi, .*statefulset prod-mariadb"),
        ({}, {"clusterName": "test"}, "clusterName: this release is prod, .*: set that"),
        ({}, {"fullnameOverride": "other"}, "fullnameOverride: this release has prod-controller, .*set prod"),
        (
            {},
            {"compute": {"nodes": {"gpu": {"podNamePrefix": "g"}}}},
            "compute.nodes.gpu.podNamePrefix: the names of its Slurm nodes begin with gpu",
        ),
    ],
    ids=["size", "class", "modes", "database", "cluster", "name", "prefix"],
)
def test_an_upgrade_that_cannot_work_is_refused_before_half_of_it_is_done(
    probed: Path, before: dict[str, Any], values: dict[str, Any], why: str
) -> None:
    there = {
        "slurmctld": stateful_set(CHART, "controller", **before),
        "mariadb": stateful_set(CHART, "mariadb", **before),
        "sets": {"prod-gpu": {"podNamePrefix": "gpu"}},
    }

    with pytest.raises(helm.HelmRenderError, match=why):
        ask(probed, "slurm.checkStays", there, **values)


def test_a_volume_of_the_same_size_in_other_words_is_taken(probed: Path) -> None:
    there = {"slurmctld": stateful_set(CHART, "controller"), "sets": {}}

    ask(probed, "slurm.checkStays", there, controller={"stateVolume": {"size": "10240Mi"}})
    ask(probed, "slurm.checkStays", {"sets": {}}, controller={"stateVolume": {"size": "20Gi"}})
