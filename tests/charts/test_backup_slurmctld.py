"""Two slurmctlds with one state on real kubelets: the backup takes over when the first one's Node dies.

The volume of both is a directory of this machine, which every Node of the lab sees.

slurmctld writes its state every five seconds (`SAVE_MAX_WAIT` of Slurm), and what it has not written dies
with it: so the job here is in the file before the Node is killed.
"""

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from sunk_lab.config import from_environment
from sunk_lab.installation import Installation, install
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.releases import RELEASES, Release

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
MACHINES: Final = ("node1", "node2")
"""Where slurmctld may be."""
ROLE: Final = {"example.com/role": "slurmctld"}
SLURM_UID: Final = 64030
FIRST, BACKUP = "slurm-controller-0", "slurm-backup-0"


class Doubled(Installation):
    """A cluster that may have two slurmctlds; everything else is on another Node."""

    def __init__(self, lab: KubeLab, slurm: Release, folder: Path) -> None:
        super().__init__(lab, nodes=("node3", "node4"), slurm=slurm)
        self.has_backup = False
        self._folder = folder

    def make_namespaces(self) -> None:
        super().make_namespaces()
        for machine in MACHINES:
            self.lab.kubectl("label", "node", machine, *(f"{key}={value}" for key, value in ROLE.items()))
        os.chown(self._folder, SLURM_UID, SLURM_UID)
        self.apply(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "shared"},
                "provisioner": "kubernetes.io/no-provisioner",
            }
        )
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": "slurmctld"},
                "spec": {
                    "storageClassName": "shared",
                    "capacity": {"storage": "10Gi"},
                    "accessModes": ["ReadWriteMany"],
                    "hostPath": {"path": str(self._folder)},
                },
            }
        )

    def sunk_values(self) -> dict[str, Any]:
        return super().sunk_values() | {"podDefaults": {"nodeSelector": {"kubernetes.io/hostname": "node3"}}}

    def values(self) -> dict[str, Any]:
        values = super().values()
        values["podDefaults"] = {"nodeSelector": {"kubernetes.io/hostname": "node3"}}
        values["slurmConfig"] = {"slurmctldTimeout": 15}
        values["controller"] |= {
            "nodeSelector": ROLE,
            "backup": {"enabled": self.has_backup},
            "stateVolume": {"storageClassName": "shared", "accessModes": ["ReadWriteMany"]},
        }
        return values

    def machine_of(self, pod: str) -> str:
        """Return the Node of *pod*."""
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")

    def job(self, script: str) -> str:
        """Submit *script*; return the job."""
        return self.login(f"sbatch --parsable -n1 --output=/dev/null --wrap='{script}'").strip()

    def state(self, job: str) -> str:
        """Return the state of *job*."""
        return self.login(f"scontrol --oneliner show job {job} | grep -o 'JobState=[A-Z]*'").strip()

    def write_down(self, job: str) -> None:
        """Wait until *job* is in slurmctld's state as it is now."""
        mark = f"written-{job}-{time.monotonic_ns()}"
        self.login(f"scontrol update jobid={job} comment={mark}")
        saved = self._folder / "state/job_state"
        wait_for(f"job {job} in {saved}", lambda: mark.encode() in saved.read_bytes(), 60)

    def is_up(self, *pods: str) -> bool:
        """Return whether the slurmctlds of *pods* answer, to a user."""
        told = self.login("scontrol ping || true")
        return all(f"at {pod} is UP" in told for pod in pods)

    def starts_of(self, pod: str) -> int:
        """Return how often the slurmctld of *pod* was started again."""
        where = "jsonpath={.status.containerStatuses[?(@.name=='slurmctld')].restartCount}"
        return int(self.kubectl("get", "pod", pod, "-o", where))

    def slurmctlds_of(self, pod: str) -> list[str]:
        """Return which slurmctlds the slurmd of *pod* knows."""
        conf = self.kubectl("exec", pod, "-c", "slurmd", "--", "cat", "/run/slurm/conf/slurm.conf")
        return [line for line in conf.splitlines() if line.startswith("SlurmctldHost=")]


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Doubled]:
    """Both charts, without a backup so far."""
    with reserved_lab() as lab:
        made = Doubled(lab, request.param, tmp_path_factory.mktemp("state"))
        install(made, from_environment().cache, lambda _line: None)
        yield made


def test_a_backup_is_added_takes_over_with_all_jobs_gives_them_back_and_goes(cluster: Doubled) -> None:
    pods = cluster.uids("pod")
    job = cluster.job("sleep 3000")
    wait_for("the job", lambda: cluster.state(job) == "JobState=RUNNING", 90)

    cluster.has_backup = True
    cluster.install_slurm()

    wait_for("two slurmctlds", lambda: cluster.is_up(FIRST, BACKUP), 240)
    assert {cluster.machine_of(FIRST), cluster.machine_of(BACKUP)} == set(MACHINES)
    nodes = [pod for pod in pods if pod.startswith("cpu-")]
    assert {pod: cluster.uids("pod").get(pod) for pod in nodes} == {pod: pods[pod] for pod in nodes}
    for pod in nodes:
        wait_for(f"{pod} to know both", lambda pod=pod: len(cluster.slurmctlds_of(pod)) == 2, 300)
    assert cluster.state(job) == "JobState=RUNNING"
    cluster.write_down(job)

    dead = cluster.machine_of(FIRST)
    cluster.lab.kill_node(dead)
    began = time.monotonic()
    wait_for("the backup's answer", lambda: bool(cluster.state(job)), 240)
    print(f"the backup answers {time.monotonic() - began:.0f} s after the Node's death (SlurmctldTimeout=15)")  # noqa: T201 - this is what one may want to know.
    assert cluster.state(job) == "JobState=RUNNING"
    other = cluster.job("true")
    assert int(other) == int(job) + 1
    wait_for("a new job", lambda: cluster.state(other) == "JobState=COMPLETED", 120)

    cluster.lab.start_node(dead)
    began = time.monotonic()
    wait_for("both slurmctlds", lambda: cluster.is_up(FIRST, BACKUP), 300)
    print(f"both answer {time.monotonic() - began:.0f} s after the Node's start")  # noqa: T201
    wait_for("the job's slurmctld", lambda: cluster.state(job) == "JobState=RUNNING", 120)
    last = cluster.job("true")
    assert int(last) == int(other) + 1
    wait_for("a job of the first one", lambda: cluster.state(last) == "JobState=COMPLETED", 120)

    starts = cluster.starts_of(FIRST)
    hang = "kill -STOP $(</run/slurmctld/slurmctld.pid)"
    cluster.kubectl("exec", FIRST, "-c", "slurmctld", "--", "bash", "-c", hang)
    wait_for("the slurmctld that hangs to be ended", lambda: cluster.starts_of(FIRST) > starts, 300)
    wait_for("both slurmctlds", lambda: cluster.is_up(FIRST, BACKUP), 300)
    wait_for("the job's slurmctld", lambda: cluster.state(job) == "JobState=RUNNING", 120)

    cluster.has_backup = False
    cluster.install_slurm()

    assert BACKUP not in cluster.uids("pod")
    for pod in nodes:
        wait_for(f"{pod} to know one", lambda pod=pod: len(cluster.slurmctlds_of(pod)) == 1, 300)
    assert cluster.state(job) == "JobState=RUNNING"
    assert {pod: cluster.uids("pod").get(pod) for pod in nodes} == {pod: pods[pod] for pod in nodes}
