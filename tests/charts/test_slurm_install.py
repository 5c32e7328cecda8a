"""A whole Slurm cluster from both charts on real kubelets: jobs, Pods through Slurm, upgrade."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest
import yaml

from sunk_lab import nats_image, service_images
from sunk_lab.charts import helm_of, render, sunk_values
from sunk_lab.config import from_environment
from sunk_lab.kube.lab import KubeLab
from sunk_lab.kube.testing import reserved_lab
from sunk_lab.processes import wait_for
from sunk_lab.slurm import cluster_images
from sunk_lab.slurm.releases import SLURM_24_11

pytestmark = [
    pytest.mark.lab,
    pytest.mark.install,
    pytest.mark.timeout(900),  # The images are made from the code as it is now.
]
CHARTS: Final = Path(__file__).parents[2] / "helm"
EXAMPLES: Final = sorted((CHARTS / "slurm/examples").glob("*.yaml"))
NAMESPACE: Final = "slurm"
BASELINE: Final = {"pod-security.kubernetes.io/enforce": "baseline"}
SMALL: Final = {"requests": {"cpu": "10m"}}
PROLOG: Final = "#!/bin/bash\ntouch /var/spool/slurmd/prolog-of-$SLURM_JOB_ID\n"


class Cluster:
    """The release of a Slurm cluster in its namespace of a lab."""

    def __init__(self, lab: KubeLab) -> None:
        self.lab = lab
        self.helm = helm_of(lab, NAMESPACE)

    def install(self) -> None:
        self.helm.install(CHARTS / "slurm", "slurm", _slurm(), wait="watcher", timeout=240)

    def kubectl(self, *args: str) -> str:
        return self.lab.kubectl("-n", NAMESPACE, *args)

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of *kind*; Kubernetes' own schema is their type."""
        return json.loads(self.kubectl("get", kind, "-o", "json"))["items"]

    def uids(self, kind: str) -> dict[str, str]:
        return {found["metadata"]["name"]: found["metadata"]["uid"] for found in self.items(kind)}

    def secrets(self) -> dict[str, Any]:
        kept = [one for one in self.items("secret") if one["type"] == "Opaque"]
        return {
            one["metadata"]["name"]: one["data"] for one in kept if one["metadata"]["name"] != "slurm-nats"
        }

    def login(self, command: str) -> str:
        """Run *command* where users are."""
        return self.kubectl("exec", "slurm-login-0", "-c", "sshd", "--", "bash", "-c", command)

    def await_idle(self) -> None:
        def idle() -> bool:
            return self.login("sinfo -h -N -p cpu -t idle -o '%T'").split() == ["idle", "idle"]

        wait_for("two idle nodes", idle, 120)

    def refusal(self, **values: Any) -> str:  # noqa: ANN401 - values are free-form.
        """Return why another release with *values* is refused."""
        other = helm_of(self.lab, "default")
        with pytest.raises(helm.HelmError) as refused:
            other.install(CHARTS / "slurm", "other", _slurm() | values, namespace="default", dry_run="server")
        return str(refused.value)


@pytest.fixture(scope="module")
def cluster() -> Generator[Cluster]:
    """Both releases on three Nodes, two of them compute Nodes, in a namespace of the baseline standard."""
    cache = from_environment().cache

    def say(_line: str) -> None: ...

    archives = (
        nats_image.archive_of(cache),
        service_images.archive_of(list(service_images.SERVICES), cache, say),
        cluster_images.slurm_image_of(SLURM_24_11, cache, say),
        cluster_images.database_image_of(cache, say),
    )
    with reserved_lab() as lab:
        lab.up(nodes=3)
        lab.load(*archives)
        for name, labels in (("sunk", {}), (NAMESPACE, BASELINE)):
            metadata = {"name": name, "labels": labels}
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            lab.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(namespace))
        sunk = helm_of(lab, "sunk")
        sunk.install(CHARTS / "sunk", "sunk", sunk_values(replicas=1), wait="watcher", timeout=120)
        made = Cluster(lab)
        made.install()
        made.await_idle()
        yield made


def _slurm() -> dict[str, Any]:
    nodes = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node2", "node3"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [nodes]}]}
    one = {"replicas": 1, "resources": SMALL}
    database = {"registry": cluster_images.REGISTRY, "repository": cluster_images.DATABASE}
    return {
        "clusterName": "prod",
        "slurmImage": {"registry": cluster_images.REGISTRY, "repository": cluster_images.SLURM},
        "serviceImage": {"registry": service_images.REGISTRY, "tag": service_images.version()},
        "mariadb": {"image": database, "resources": SMALL, "bufferPoolSize": "64M"},
        "controller": {"resources": SMALL},
        "accounting": {"resources": SMALL},
        **dict.fromkeys(("rest", "login", "syncer", "scheduler", "hookGateway", "metricsExporter"), one),
        "users": [{"name": "ada", "uid": 2000}],
        "hooks": {"prolog": {"50-mark": PROLOG}},
        "compute": {
            "nodes": {
                "cpu": {
                    "slurm": {"cpus": 4, "memory": 4000},
                    "terminationGracePeriodSeconds": 2,
                    "affinity": {
                        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
                    },
                }
            }
        },
    }


def test_a_user_runs_a_job_on_two_nodes_and_accounting_knows_it(cluster: Cluster) -> None:
    as_ada = "setpriv --reuid=2000 --regid=2000 --clear-groups"

    names = cluster.login(f"cd /tmp && timeout 60 {as_ada} srun -N2 -J two bash -c 'hostname; id -un'")

    assert sorted(names.split()) == ["ada", "ada", *sorted(cluster.uids("pod").keys() & set(names.split()))]
    wait_for("the job in sacct", lambda: "COMPLETED" in cluster.login("sacct -aXn --name=two -o state"), 30)


def test_a_prolog_of_the_values_runs_on_each_node_of_a_job(cluster: Cluster) -> None:
    nodes = cluster.login("timeout 60 srun -N2 hostname").split()

    assert len(nodes) == 2
    for node in nodes:
        assert "prolog-of-" in cluster.kubectl("exec", node, "--", "ls", "/var/spool/slurmd")


def test_a_pod_runs_through_slurm(cluster: Cluster) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "walker", "namespace": "default"},
        "spec": {
            "schedulerName": "slurm-slurm",
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "walker",
                    "image": f"{cluster_images.REGISTRY}/{cluster_images.SLURM}:24.11",
                    "args": ["true"],
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                }
            ],
        },
    }

    cluster.lab.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(pod))

    def phase() -> bool:
        return cluster.lab.kubectl("get", "pod", "walker", "-o", "jsonpath={.status.phase}") == "Succeeded"

    wait_for("the Pod to have run", phase, 60)
    wait_for("its job in sacct", lambda: "sunk|COMPLETED" in cluster.login("sacct -aXnP -o user,state"), 30)


def test_helms_own_test_passes(cluster: Cluster) -> None:
    told = cluster.helm.test("slurm", timeout=90, logs=True)["logs"]

    assert "PARTITION" in told


def test_an_upgrade_that_changes_nothing_restarts_nothing_and_keeps_every_key(cluster: Cluster) -> None:
    before = cluster.uids("pod"), cluster.secrets()

    cluster.helm.upgrade(CHARTS / "slurm", "slurm", _slurm(), wait="watcher", timeout=120)

    assert (cluster.uids("pod"), cluster.secrets()) == before


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "clusterName: prod has the NodeSet slurm/slurm-cpu already"),
        ({"clusterName": "stage"}, "clusterName: the sunk release knows no Slurm cluster stage"),
        (
            {"clusterName": "stage", "scheduler": {"name": "slurm-slurm"}},
            "is served by slurm/slurm-scheduler",
        ),
        (
            {
                "clusterName": "stage",
                "nats": {"existingSecret": "x"},
                "controller": {"stateVolume": {"storageClassName": "fast"}},
            },
            "controller.stateVolume.storageClassName: there is no StorageClass fast: set one of standard",
        ),
        (
            {"clusterName": "stage", "sunk": {"namespace": "nowhere"}},
            "there is no Secret nowhere/sunk-nats-users: install helm/sunk first",
        ),
    ],
    ids=[
        "cluster taken",
        "cluster unknown",
        "scheduler name taken",
        "no such storage class",
        "no sunk release",
    ],
)
def test_what_the_cluster_has_already_or_not_at_all_is_refused_before_anything_is_made(
    cluster: Cluster, values: dict[str, Any], why: str
) -> None:
    assert why in cluster.refusal(**values)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_the_api_server_takes_every_object_of_every_example(cluster: Cluster, example: Path) -> None:
    # Of the one cluster that the sunk release knows, where it knows it.
    values = yaml.safe_load(example.read_text()) | {"clusterName": "prod"}
    made = render(helm.Chart.load(CHARTS / "slurm"), values, name="other", namespace=NAMESPACE)
    # A Pod of its own needs its ServiceAccount to be there, and monitors the operator.
    known = [
        found
        for (kind, _), found in made.items()
        if kind != "Pod" and "monitoring.coreos.com" not in found["apiVersion"]
    ]

    taken = cluster.lab.kubectl(
        *("-n", NAMESPACE, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": known}),
    )

    assert len(taken.strip().splitlines()) == len(known)
