"""Done once a year: keys rotated, a second cluster put beside the first, Slurm upgraded (docs/upgrade.md)."""

import json
from collections.abc import Generator
from functools import cached_property
from typing import Any, Final

import helm_python as helm
import pytest

from sunk_lab.charts import helm_of, sunk_values
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import CHARTS, NAMESPACE, SUNK_NAMESPACE, Installation, install
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.cluster_images import slurm_image_of
from sunk_lab.slurm.releases import SLURM_26_05

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
NEW: Final[dict[str, Any]] = {"image": {"tag": SLURM_26_05.version}}
OLD: Final[dict[str, Any]] = {"image": {"tag": "24.11"}}
STAGE: Final = "stage"


class Stage(Installation):
    """The Slurm cluster `stage` in a namespace of that name, beside `prod`."""

    @cached_property
    def helm(self) -> helm.Config:
        return helm_of(self.lab, STAGE)

    def values(self) -> dict[str, Any]:
        return super().values() | {"clusterName": STAGE}

    def kubectl(self, *args: str) -> str:
        return self.lab.kubectl("-n", STAGE, *args)


@pytest.fixture(scope="module")
def cluster() -> Generator[Installation]:
    """Both releases, with 24.11 on node1, the image of 26.05 beside it, and node2 for others."""
    with reserved_lab() as lab:
        lab.up(nodes=2)
        made = Installation(lab, nodes=("node1",))
        cache = from_environment().cache
        install(made, cache, lambda _line: None)
        lab.load(slurm_image_of(SLURM_26_05, cache, lambda _line: None))
        yield made


def runs(cluster: Installation) -> bool:
    """Return whether a job runs to its end."""
    try:
        return bool(cluster.login("timeout 20 srun hostname"))
    except LabError:
        return False


def forget(cluster: Installation, namespace: str, secret: str, key: str) -> None:
    """Take *key* out of *secret*: the next upgrade makes another."""
    gone = [{"op": "remove", "path": f"/data/{key}"}]
    arguments = ("-n", namespace, "patch", "secret", secret, "--type=json", f"--patch={json.dumps(gone)}")
    cluster.lab.kubectl(*arguments)


def kept(cluster: Installation) -> dict[str, str]:
    """Return what the Secrets of both releases hold, by Secret and key."""
    found: dict[str, str] = {}
    for namespace in (NAMESPACE, SUNK_NAMESPACE):
        shown = cluster.lab.kubectl("-n", namespace, "get", "secrets", "-o", "json")
        for secret in json.loads(shown)["items"]:
            name = secret["metadata"]["name"]
            found |= {f"{name} {key}": text for key, text in secret.get("data", {}).items()}
    return found


def test_every_key_is_rotated_and_the_cluster_works_with_the_new_ones(cluster: Installation) -> None:
    before = kept(cluster)
    for secret, key in (
        ("slurm-keys", "slurm.key"),
        ("slurm-keys", "jwt.key"),
        ("slurm-placement-key", "placement.key"),
    ):
        forget(cluster, NAMESPACE, secret, key)
    for user in ("nodeset-controller", "syncer-prod"):
        forget(cluster, SUNK_NAMESPACE, "sunk-nats-users", user)

    cluster.install_sunk()
    cluster.install_slurm()
    after = kept(cluster)
    assert {name for name in before if before[name] != after.get(name) and "helm" not in name} == {
        *("slurm-keys slurm.key", "slurm-keys jwt.key", "slurm-placement-key placement.key"),
        *("sunk-nats-users nodeset-controller", "sunk-nats-users syncer-prod", "slurm-nats syncer-prod"),
    }
    restart = ("rollout", "restart")
    cluster.lab.kubectl("-n", SUNK_NAMESPACE, *restart, "statefulset/sunk-nats")
    cluster.lab.kubectl("-n", SUNK_NAMESPACE, *restart, "deployment/sunk-nodeset-controller")
    for name in ("controller", "accounting", "login"):
        cluster.kubectl(*restart, f"statefulset/slurm-{name}")
    for name in ("syncer", "scheduler"):
        cluster.kubectl(*restart, f"deployment/slurm-{name}")
    cluster.kubectl("delete", "pods", "-l", "app.kubernetes.io/name=slurmd")

    wait_for("a job", lambda: runs(cluster), 300)
    cluster.lab.kubectl("cordon", "node1")  # By the nodeset-controller, the bus and the syncer to Slurm.
    wait_for("its drain", lambda: "k8s: cordon" in cluster.login("sinfo -h -R -o %E"), 240)
    cluster.lab.kubectl("uncordon", "node1")
    cluster.await_idle()


def test_a_second_slurm_cluster_runs_beside_the_first_and_goes_without_it(cluster: Installation) -> None:
    clusters = [{"name": "prod", "namespace": NAMESPACE}, {"name": STAGE, "namespace": STAGE}]
    helm_of(cluster.lab, SUNK_NAMESPACE).upgrade(
        CHARTS / "sunk", "sunk", sunk_values(replicas=1) | {"clusters": clusters}, wait="watcher", timeout=240
    )
    metadata = {"name": STAGE, "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    before = cluster.uids("pod")
    stage = Stage(cluster.lab, nodes=("node2",))

    stage.install_slurm()
    stage.await_idle()

    for one in (cluster, stage):
        (name,) = one.login("sinfo -h -N -p cpu -o %N").split()
        assert one.login("timeout 60 srun hostname").strip() == name
        assert one.login("scontrol show config | grep ClusterName").split()[-1] == one.values()["clusterName"]
    stage.uninstall_slurm()
    assert stage.items("nodeset") == []
    assert cluster.uids("pod").items() <= before.items()  # What was going then is gone.
    cluster.login("timeout 60 srun true")


def version(cluster: Installation) -> str:
    """Return the release of Slurm's clients."""
    return cluster.login("scontrol --version").split()[1].rsplit(".", 1)[0]


def test_slurm_is_upgraded_from_24_11_to_26_05_and_neither_a_job_nor_its_record_is_lost(
    cluster: Installation,
) -> None:
    cluster.login("timeout 60 srun -J before true")
    cluster.login("sbatch --parsable -J across --output=/dev/null --wrap='sleep 200'")
    wait_for("the job to run", lambda: "RUNNING" in cluster.login("squeue -h -n across -o %T"), 60)
    values = cluster.values()
    image = values["slurmImage"] | {"tag": SLURM_26_05.version}
    old_nodes = {"base": {"enabled": False, **OLD}, **values["compute"]["nodes"]}

    cluster.install_slurm(values | {"accounting": values["accounting"] | NEW})
    wait_for("the record", lambda: "COMPLETED" in cluster.login("sacct -aXn --name=before -o state"), 60)
    cluster.install_slurm(values | {"slurmImage": image, "compute": values["compute"] | {"nodes": old_nodes}})
    assert version(cluster) == SLURM_26_05.version
    assert cluster.login("squeue -h -n across -o %T").strip() == "RUNNING"
    cluster.install_slurm(values | {"slurmImage": image})

    def is_new() -> bool:
        return cluster.login("sinfo -h -N -p cpu -t idle -o %v").startswith(SLURM_26_05.version)

    wait_for("the node to be idle and new", is_new, 600)
    for name in ("before", "across"):
        assert "COMPLETED" in cluster.login(f"sacct -aXn --name={name} -o state")
    wait_for("a job", lambda: runs(cluster), 60)
