"""Slurm in Pods of the lab's Kubernetes, for real, in both releases."""

import json
from collections.abc import Generator
from typing import Any

import pytest

from sunk_lab.config import from_environment
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import wait_for
from sunk_lab.slurm.pods import PodSlurm, SlurmdShape, cluster_manifests, slurmd_pod_template
from sunk_lab.slurm.releases import RELEASES, Release
from sunk_lab.slurm.roots import image_of
from sunk_lab.slurm.tokens import new_keys

pytestmark = pytest.mark.lab
PROLOG = """#!/bin/bash
. /etc/sunk/hooks.env
echo "$SLURMD_NODENAME $SUNK_HOOKS_URL $(head -c 2 $SUNK_HOOKS_TOKEN_FILE)" >/run/prolog.out
"""


class Cluster:
    """Slurm in one namespace, with two slurmd Pods that nobody owns."""

    def __init__(self, lab: KubeLab, release: Release) -> None:
        self._lab = lab
        self.namespace = f"slurm-{release.version.replace('.', '-')}"
        self._slurm = PodSlurm(
            release=release,
            keys=new_keys(),
            hooks_url="http://gateway",
            prolog=PROLOG,
            namespace=self.namespace,
        )

    def up(self) -> None:
        self._apply(*cluster_manifests(self._slurm))
        wait_for("the ServiceAccount", lambda: self.kubectl("get", "serviceaccount", "default"))
        template = slurmd_pod_template(self._slurm, SlurmdShape(features=("gb200",)))
        for node, name in (("node2", "slurm-000-012"), ("node3", "slurm-000-013")):
            self._apply(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {**template["metadata"], "name": name, "namespace": self.namespace},
                    "spec": {**template["spec"], "nodeName": node},
                }
            )
        self.kubectl("rollout", "status", "statefulset/slurmctld", "deployment/slurmrestd", "--timeout=180s")
        self.kubectl(
            "wait", "--for=condition=Ready", "--timeout=180s", "pod/slurm-000-012", "pod/slurm-000-013"
        )
        wait_for(
            "idle nodes", lambda: self.slurm("sinfo", "-h", "-N", "-o", "%T").split() == ["idle"] * 2, 30
        )

    def kubectl(self, *args: str) -> str:
        return self._lab.kubectl("-n", self.namespace, *args)

    def slurm(self, *argv: str, pod: str = "slurmctld-0") -> str:
        return self.kubectl("exec", pod, "--", *argv)

    def _apply(self, *manifests: dict[str, Any]) -> None:
        self._lab.kubectl("apply", "-f", "-", input="\n---\n".join(map(json.dumps, manifests)))


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def cluster(request: pytest.FixtureRequest, kube_lab: KubeLab) -> Generator[Cluster]:
    kube_lab.load(image_of(request.param, from_environment().cache, lambda _line: None))
    cluster = Cluster(kube_lab, request.param)
    cluster.up()
    yield cluster
    kube_lab.kubectl("delete", "namespace", cluster.namespace, "--timeout=180s")


def test_a_job_runs_on_two_nodes_under_their_pods_names(cluster: Cluster) -> None:
    printed = cluster.slurm("srun", "-N2", "-l", "hostname")

    assert sorted(printed.split()[1::2]) == ["slurm-000-012", "slurm-000-013"]


def test_a_prolog_from_the_config_map_runs_with_its_settings_and_its_token(cluster: Cluster) -> None:
    cluster.slurm("srun", "-w", "slurm-000-013", "true")

    told = cluster.slurm("cat", "/run/prolog.out", pod="slurm-000-013")
    assert told.split() == ["slurm-000-013", "http://gateway", "ey"]


def test_the_hook_token_is_roots_alone(cluster: Cluster) -> None:
    with_user = ("setpriv", "--reuid=sunk", "--clear-groups", "test", "-r", "/var/run/secrets/sunk/token")
    told = cluster.slurm("bash", "-c", f"{' '.join(with_user)} || echo refused", pod="slurm-000-012")

    assert told.strip() == "refused"


def test_slurmctld_finds_its_nodes_and_jobs_again_after_its_pod_is_replaced(cluster: Cluster) -> None:
    job = cluster.slurm(
        "sbatch", "--parsable", "--chdir=/", "--output=/dev/null", "--wrap", "sleep 600"
    ).strip()
    wait_for("the job", lambda: cluster.slurm("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING")

    cluster.kubectl("delete", "pod", "slurmctld-0")
    cluster.kubectl("rollout", "status", "statefulset/slurmctld", "--timeout=180s")

    assert cluster.slurm("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING"
    cluster.slurm("scancel", job)
