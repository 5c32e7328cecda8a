"""Both examples of high availability, installed and failed over: each part is killed, and a Node with it.

As they are in `examples/high-availability.yaml` of both charts, but for what this lab has otherwise: images,
small requests, a Service that waits for no load balancer. The shared volume is a directory of this machine,
which every Node of the lab sees, and the database a Pod on a compute Node.

A part goes by ``kubectl delete --grace-period=0 --force``, which leaves it a second. The Node is killed as if
its power failed, and all that runs on it with it.
"""

import os
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sunk_kube.wellknown import TAINT_LOCK
from sunk_lab.charts import sunk_values
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import CHARTS, NAMESPACE, SMALL, SUNK_NAMESPACE, Installation, install, merged
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm import cluster_images
from sunk_lab.slurm.releases import Release

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(3000)]
CONTROL: Final = ("node1", "node2", "node3")
COMPUTE: Final = ("node4", "node5")
SLURM_UID: Final = 64030
PASSWORD: Final = "books"  # noqa: S105 - of a database that the test makes.
SERVER: Final = """
mariadb-install-db --datadir=/tmp/data --auth-root-authentication-method=normal --skip-test-db >/dev/null
exec mariadbd --no-defaults --datadir=/tmp/data --socket=/tmp/mysqld.sock --bind-address=0.0.0.0 \\
    --innodb-snapshot-isolation=OFF
"""
READY_S: Final = 400
FIRST: Final = {"slurmctld": "slurm-controller-0", "slurmdbd": "slurm-accounting-0"}
LEASES: Final = {
    "pod-scheduler": (NAMESPACE, "sunk-pod-scheduler-prod"),
    "nodeset-controller": (SUNK_NAMESPACE, "sunk-nodeset-controller"),
}


def example(chart: str) -> dict[str, Any]:
    return yaml.safe_load((CHARTS / chart / "examples/high-availability.yaml").read_text())


class Doubled(Installation):
    """A cluster with two or three of everything, on three Nodes, and two compute Nodes."""

    def __init__(self, lab: KubeLab, slurm: Release, folder: Path) -> None:
        super().__init__(lab, nodes=COMPUTE, slurm=slurm)
        self._folder = folder

    def make_namespaces(self) -> None:
        super().make_namespaces()
        for label, machines in (("example.com/role=control", CONTROL), ("example.com/slurm=true", COMPUTE)):
            self.lab.kubectl("label", "node", *machines, label)
        os.chown(self._folder, SLURM_UID, SLURM_UID)
        shared = {"storageClassName": "shared", "accessModes": ["ReadWriteMany"]}
        made: tuple[tuple[str, str, dict[str, Any]], ...] = (
            ("storage.k8s.io/v1", "StorageClass", {"provisioner": "kubernetes.io/no-provisioner"}),
            (
                "v1",
                "PersistentVolume",
                {
                    "spec": {
                        **shared,
                        "capacity": {"storage": "10Gi"},
                        "hostPath": {"path": str(self._folder)},
                    }
                },
            ),
            ("v1", "Namespace", {}),
        )
        names = {"StorageClass": "shared", "PersistentVolume": "shared", "Namespace": "databases"}
        for version, kind, body in made:
            self.apply({"apiVersion": version, "kind": kind, "metadata": {"name": names[kind]}, **body})
        self._make_database()

    def _make_database(self) -> None:
        name, labels = "mariadb-primary", {"app": "mariadb"}
        image = f"{cluster_images.REGISTRY}/{cluster_images.DATABASE}:{cluster_images.DATABASE_VERSION}"
        pod = {
            "nodeSelector": {"kubernetes.io/hostname": COMPUTE[-1]},
            "tolerations": [{"key": TAINT_LOCK, "operator": "Exists"}],
            "containers": [{"name": "mariadb", "image": image, "command": ["bash", "-ec", SERVER]}],
        }
        specs = {"Pod": pod, "Service": {"selector": labels, "ports": [{"port": 3306}]}}
        for kind, spec in specs.items():
            metadata = {"name": name, "namespace": "databases", "labels": labels}
            self.apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec})
        metadata = {"name": "slurm-database", "namespace": NAMESPACE}
        secret = {"stringData": {"password": PASSWORD}}
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata} | secret)
        client = ("mariadb", "--no-defaults", "--socket=/tmp/mysqld.sock", "--user=root", "--execute")
        asking = partial(self.lab.kubectl, "-n", "databases", "exec", name, "--", *client)
        wait_for("the database", lambda: bool(asking("SELECT 1")), READY_S)
        asking("CREATE DATABASE IF NOT EXISTS slurm_acct_db")
        asking(f"CREATE USER IF NOT EXISTS slurm@'%' IDENTIFIED BY '{PASSWORD}'")
        asking("GRANT ALL ON slurm_acct_db.* TO slurm@'%'")

    def sunk_values(self) -> dict[str, Any]:
        return merged(sunk_values(), example("sunk"))

    def values(self) -> dict[str, Any]:
        own = super().values()
        images = {key: own[key] for key in ("slurmImage", "serviceImage", "users")}
        cpu = own["compute"]["nodes"]["cpu"]
        of_lab = {key: cpu[key] for key in ("slurm", "terminationGracePeriodSeconds")}
        parts = (
            *("controller", "accounting", "rest", "login", "syncer"),
            *("scheduler", "hookGateway", "metricsExporter"),
        )
        small = {part: {"resources": SMALL} for part in parts}
        lab = {"login": {"service": {"type": "ClusterIP"}}, "compute": {"nodes": {"cpu": of_lab}}}
        return merged(merged(merged(example("slurm"), images), small), lab)

    def ready(self, namespace: str) -> bool:
        """Whether all that the charts have made in *namespace* is as they want it."""
        wide = ("-o", "jsonpath={range .items[*]}{.spec.replicas} {.status.readyReplicas}{'\\n'}{end}")
        told = self.lab.kubectl("-n", namespace, "get", "deployments,statefulsets", *wide)
        return all(len(set(line.split())) == 1 and len(line.split()) == 2 for line in told.splitlines())

    def pods_of(self, name: str, namespace: str = NAMESPACE) -> list[str]:
        """Return the Pods of the label *name*."""
        which = ("-l", f"app.kubernetes.io/name={name}", "-o", "jsonpath={.items[*].metadata.name}")
        return self.lab.kubectl("-n", namespace, "get", "pods", *which).split()

    def leader(self, service: str) -> str:
        """Return the Pod that leads: a holder is service, Pod and process."""
        namespace, lease = LEASES[service]
        where = ("-o", "jsonpath={.spec.holderIdentity}")
        holder = self.lab.kubectl("-n", namespace, "get", "lease", lease, *where)
        return holder.removeprefix(f"{service}-").rpartition("-")[0]

    def syncer(self) -> str:
        """Return the syncer that leads, by its log: its lease is on the bus."""

        def led_at(pod: str) -> str:
            lines = self.kubectl("logs", pod, "--tail=-1").splitlines()
            return max((line[:40] for line in lines if '"message": "leading"' in line), default="")

        return max(self.pods_of("sunk-syncer"), key=led_at)

    def kill(self, pod: str, namespace: str = NAMESPACE) -> None:
        """End *pod* at once."""
        now = ("--grace-period=0", "--force", "--wait=false")
        self.lab.kubectl("-n", namespace, "delete", "pod", pod, *now)

    def ask_slurm(self, command: str) -> str:
        """Run *command* in the login Pod that answers; empty while none does, or Slurm does not."""
        for pod in ("slurm-login-0", "slurm-login-1"):
            try:
                return self.kubectl("exec", pod, "-c", "sshd", "--", "timeout", "20", "bash", "-c", command)
            except LabError:
                continue
        return ""

    def drains_for(self, reason: str) -> bool:
        """Whether a node is drained for exactly *reason*."""
        return reason in [line.strip() for line in self.ask_slurm("sinfo -h -N -o '%E'").splitlines()]

    def job_state(self, job: str) -> str:
        """Return the state of *job*; empty while Slurm does not say."""
        return self.ask_slurm(f"squeue -h -t all -j {job} -o %T").strip()

    def phase(self, pod: str) -> str:
        """Return how far a Pod of the namespace default is."""
        return self.lab.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Doubled]:
    with reserved_lab() as lab:
        config = from_environment()
        made = Doubled(lab, config.slurm, tmp_path_factory.mktemp("state"))
        install(made, config.cache, lambda _line: None)
        yield made


def placed(cluster: Doubled, name: str) -> dict[str, Any]:
    """Return a Pod through Slurm that stays."""
    image = f"{cluster_images.REGISTRY}/{cluster_images.SLURM}:{cluster.slurm.version}"
    container = {
        "name": "serve",
        "image": image,
        "args": ["sleep", "infinity"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "slurm-slurm",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }


class Watch:
    """A job and a Pod that run throughout, and what a user notices of each death."""

    def __init__(self, cluster: Doubled) -> None:
        self.cluster = cluster
        self._turn = 0
        self.job = cluster.ask_slurm("sbatch --parsable -n1 -o /dev/null --wrap 'sleep infinity'").strip()
        cluster.apply(placed(cluster, "stays"))
        wait_for("the job", lambda: cluster.job_state(self.job) == "RUNNING", READY_S)
        wait_for("the Pod", lambda: cluster.phase("stays") == "Running", READY_S)
        self.restarts = self._restarts()

    def cordon(self) -> None:
        """Return when the next cordon is drained in Slurm; then it is undone."""
        self._turn += 1
        reason = f"turn-{self._turn}"
        self.cluster.lab.kubectl(
            "annotate", "node", COMPUTE[0], f"node.coreweave.cloud/cordonReason={reason}", "--overwrite"
        )
        self.cluster.lab.kubectl("cordon", COMPUTE[0])
        drained = f"k8s: cordon: {reason}"
        wait_for(f"the drain {drained}", lambda: self.cluster.drains_for(drained), READY_S, 0.2)

    def uncordon(self) -> None:
        """Undo the cordon."""
        self.cluster.lab.kubectl("uncordon", COMPUTE[0])
        wait_for(
            "the undrain", lambda: not self.cluster.drains_for(f"k8s: cordon: turn-{self._turn}"), READY_S
        )

    def place(self) -> None:
        """Return when another Pod runs through Slurm."""
        self._turn += 1
        name = f"pod-{self._turn}"
        self.cluster.apply(placed(self.cluster, name))
        wait_for(f"Pod {name}", lambda: self.cluster.phase(name) == "Running", READY_S, 0.2)
        self.cluster.lab.kubectl("delete", "pod", name, "--wait=false")

    def run_job(self) -> None:
        """Return when another job has run, with its prolog and its epilog."""
        job = ""
        while not job:
            job = self.cluster.ask_slurm("sbatch --parsable -n1 -o /dev/null --wrap true").strip()
        wait_for(f"job {job}", lambda: self.cluster.job_state(job) == "COMPLETED", READY_S, 0.2)

    def account(self) -> None:
        """Return when accounting has a job that runs from now on."""
        name = f"turn{self._turn}"
        wait_for("srun", lambda: bool(self.cluster.ask_slurm(f"srun -J {name} hostname")), READY_S)
        asked = f"sacct -aXn --name={name} -o state"
        wait_for("the job in sacct", lambda: "COMPLETED" in self.cluster.ask_slurm(asked), READY_S, 0.2)

    def after(self, what: str, death: Callable[[], object], reaction: Callable[[], None]) -> None:
        """Say how long *reaction* took after *death*, and see that all else ran on and comes back."""
        began = time.monotonic()
        death()
        reaction()
        print(f"{what}: {time.monotonic() - began:.1f} s, load {os.getloadavg()[0]:.0f}")  # noqa: T201 - this is what one may want to know.
        self.all_is_well()

    def all_is_well(self) -> None:
        """Wait until every part is back, and check the job and the Pod."""
        for namespace in (SUNK_NAMESPACE, NAMESPACE):
            wait_for(f"all of {namespace}", partial(self.cluster.ready, namespace), READY_S)
        wait_for("the job's slurmctld", lambda: bool(self.cluster.job_state(self.job)), READY_S)
        assert self.cluster.job_state(self.job) == "RUNNING"
        assert self.cluster.phase("stays") == "Running"
        assert self._restarts() == self.restarts

    def _restarts(self) -> tuple[str, str]:
        """Return when the job began, and which Pod it is with how many starts."""
        found = self.cluster.lab.kubectl(
            *(
                "get",
                "pod",
                "stays",
                "-o",
                "jsonpath={.metadata.uid}{.status.containerStatuses[0].restartCount}",
            )
        )
        return self.cluster.ask_slurm(f"squeue -h -j {self.job} -o %S").strip(), found


def test_each_part_dies_and_a_node_with_it_and_jobs_and_pods_run_on(cluster: Doubled) -> None:
    watch = Watch(cluster)
    watch.all_is_well()

    def cordoned() -> None:
        watch.cordon()
        watch.uncordon()

    watch.after("syncer", lambda: cluster.kill(cluster.syncer()), cordoned)
    watch.after(
        "nodeset-controller",
        lambda: cluster.kill(cluster.leader("nodeset-controller"), SUNK_NAMESPACE),
        cordoned,
    )
    watch.after("pod-scheduler", lambda: cluster.kill(cluster.leader("pod-scheduler")), watch.place)
    watch.after("hook-gateway", lambda: cluster.kill(cluster.pods_of("sunk-hook-gateway")[0]), watch.run_job)
    watch.after("slurmrestd", lambda: cluster.kill(cluster.pods_of("slurmrestd")[0]), cordoned)
    watch.after("NATS", lambda: cluster.kill("sunk-nats-0", SUNK_NAMESPACE), cordoned)
    watch.after("slurmdbd", lambda: cluster.kill(FIRST["slurmdbd"]), watch.account)
    watch.after("slurmctld", lambda: cluster.kill(FIRST["slurmctld"]), cordoned)

    dead = cluster.kubectl("get", "pod", FIRST["slurmctld"], "-o", "jsonpath={.spec.nodeName}")
    began = time.monotonic()
    cluster.lab.kill_node(dead)
    cordoned()
    print(f"{dead} with slurmctld: {time.monotonic() - began:.1f} s")  # noqa: T201
    watch.run_job()
    watch.place()
    cluster.lab.start_node(dead)
    watch.all_is_well()
    cordoned()
