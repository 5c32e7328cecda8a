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
SINCE: Final = "sunk.coreweave.com/slurm-keys-since"


class Stage(Installation):
    """The Slurm cluster `stage` in a namespace of that name, beside `prod`."""

    @cached_property
    def helm(self) -> helm.Config:
        return helm_of(self.lab, STAGE)

    def values(self) -> dict[str, Any]:
        return super().values() | {"clusterName": STAGE}

    def kubectl(self, *args: str) -> str:
        return self.lab.kubectl("-n", STAGE, *args)


class Rotated(Installation):
    """The Slurm cluster `prod`, with what the tests before have changed for good."""

    lasting: dict[str, Any]

    def values(self) -> dict[str, Any]:
        return super().values() | self.lasting


@pytest.fixture(scope="module")
def cluster() -> Generator[Rotated]:
    """Both releases, with 24.11 on node1, the image of 26.05 beside it, and node2 for others."""
    with reserved_lab() as lab:
        lab.up(nodes=2)
        made = Rotated(lab, nodes=("node1",))
        made.lasting = {}
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


def test_every_other_key_is_rotated_and_the_cluster_works_with_the_new_ones(cluster: Installation) -> None:
    before = kept(cluster)
    for secret, key in (
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
        *("slurm-keys jwt.key", "slurm-placement-key placement.key"),
        *("sunk-nats-users nodeset-controller", "sunk-nats-users syncer-prod", "slurm-nats syncer-prod"),
    }
    restart = ("rollout", "restart")
    cluster.lab.kubectl("-n", SUNK_NAMESPACE, *restart, "statefulset/sunk-nats")
    cluster.lab.kubectl("-n", SUNK_NAMESPACE, *restart, "deployment/sunk-nodeset-controller")
    for name in ("controller", "accounting"):
        cluster.kubectl(*restart, f"statefulset/slurm-{name}")
    for name in ("syncer", "scheduler"):
        cluster.kubectl(*restart, f"deployment/slurm-{name}")

    wait_for("a job", lambda: runs(cluster), 300)
    cluster.lab.kubectl("cordon", "node1")  # By the nodeset-controller, the bus and the syncer to Slurm.
    wait_for("its drain", lambda: "k8s: cordon" in cluster.login("sinfo -h -R -o %E"), 240)
    cluster.lab.kubectl("uncordon", "node1")
    cluster.await_idle()


def readings(cluster: Installation) -> dict[str, int]:
    """Return how often each daemon has read another set of keys while it ran."""
    (node,) = (one for one in cluster.uids("pod") if one.startswith("cpu-"))
    daemons = {"slurm-controller-0": "slurmctld", "slurm-login-0": "sackd", node: "slurmd"}
    return {
        daemon: cluster.kubectl("logs", pod, "-c", daemon).count("this daemon reads them")
        for pod, daemon in daemons.items()
    }


def restarts(cluster: Installation) -> dict[str, int]:
    """Return how often slurmctld, sackd and slurmd were started again, by Pod and container."""
    return {
        f"{pod['metadata']['name']} {found['name']}": found["restartCount"]
        for pod in cluster.items("pod")
        if pod["metadata"]["name"].startswith(("cpu-", "slurm-controller-", "slurm-login-"))
        for found in (*pod["status"]["containerStatuses"], *pod["status"].get("initContainerStatuses", []))
    }


def rotate(cluster: Rotated, old: str, new: str) -> None:
    """Rotate the key of auth/slurm as docs/security.md has it, under a job that runs and jobs that come."""
    (node,) = (one for one in cluster.uids("pod") if one.startswith("cpu-"))
    name = f"under-{new}"
    wait = f"srun bash -c 'until [[ -e /var/spool/{name} ]]; do sleep 1; done'; srun true"
    cluster.login(f'sbatch -n1 -J {name} --output=/dev/null --wrap="{wait}"')
    wait_for("the job", lambda: "RUNNING" in cluster.login(f"squeue -h -n {name} -o %T"), 60)
    pods = {pod: uid for pod, uid in cluster.uids("pod").items() if pod in (node, "slurm-controller-0")}

    starts = restarts(cluster)
    for ids in ([old, new], [new, old], [new]):
        # In place of eight minutes: below, each daemon is waited for.
        cluster.kubectl("annotate", "secret", "slurm-keys", f"{SINCE}-")
        before = readings(cluster)
        cluster.lasting = cluster.lasting | {"keys": {"slurmKeyIds": ids}}
        cluster.install_slurm()
        for _step in range(3):
            assert cluster.login("timeout 60 srun hostname").strip() == node
        wait_for(
            "all to know it",
            lambda known=before: all(readings(cluster)[one] > known[one] for one in known),
            300,
        )
        assert cluster.login("timeout 60 srun hostname").strip() == node
        cluster.login(f"timeout 30 sacct -aXn --name={name}")
    cluster.kubectl("exec", node, "-c", "slurmd", "--", "touch", f"/var/spool/{name}")
    wait_for("its record", lambda: "COMPLETED" in cluster.login(f"sacct -aXn --name={name} -o state"), 60)
    assert pods.items() <= cluster.uids("pod").items()
    assert cluster.login(f"sacct -aXn --duplicates --name={name} -o restarts").split() == ["0"]
    assert cluster.login("sinfo -h -N -p cpu -o %T").split() == ["idle"]
    assert restarts(cluster) == starts
    cluster.kubectl(
        "exec", node, "-c", "slurmd", "--", "bash", "-c", f"! grep -q '\"{old}\"' /run/slurm-jwks/*"
    )


def test_the_key_of_slurm_is_rotated_under_a_job(cluster: Rotated) -> None:
    cluster.await_idle()
    rotate(cluster, "1", "2")


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
    cluster: Rotated,
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
    cluster.lasting = cluster.lasting | {"slurmImage": image}


def test_the_key_of_slurm_is_rotated_under_a_job_on_26_05_too(cluster: Rotated) -> None:
    assert version(cluster) == SLURM_26_05.version
    rotate(cluster, "2", "3")
