"""A Node that shuts down in order: its kubelet ends the Pods, and slurmd's first gives its jobs back."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Generator
from typing import IO, Any, Final

import pytest

from sunk_lab.config import from_environment
from sunk_lab.installation import Installation, install
from sunk_lab.kube import node_files
from sunk_lab.kube.certificates import Authority
from sunk_lab.kube.network import Network
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
MACHINE: Final = "node3"
GRACE_S: Final = 60


class Patient(Installation):
    """A cluster whose jobs have ten seconds between SIGTERM and SIGKILL."""

    def values(self) -> dict[str, Any]:
        values: dict[str, Any] = super().values() | {"slurmConfig": {"killWait": 10}}
        del values["compute"]["nodes"]["cpu"]["terminationGracePeriodSeconds"]
        return values


@pytest.fixture(scope="module")
def cluster() -> Generator[Patient]:
    """Both charts, with what is not slurmd on another Node than those of the jobs."""
    with reserved_lab() as lab:
        config = from_environment()
        made = Patient(lab, slurm=config.slurm)
        install(made, config.cache, lambda _line: None)
        yield made


@contextlib.contextmanager
def logind(cluster: Patient) -> Generator[tuple[IO[str], IO[str]]]:
    """Serve logind on the Node; gives its input, where a line is a shutdown, and its output."""
    command = [*cluster.lab.shell(MACHINE), sys.executable, "-m", "sunk_lab.kube.logind"]
    with subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdin, process.stdout
        finally:
            process.kill()


def words(cluster: Patient, job: str) -> list[str]:
    """Return what Slurm says of *job*."""
    return cluster.login(f"scontrol --oneliner show job {job}").split()


def test_a_node_that_shuts_down_gives_its_jobs_back_before_its_pods_end(
    cluster: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "jsonpath={.items[?(@.spec.nodeName=='" + MACHINE + "')].metadata.name}"
    node = cluster.kubectl("get", "pods", "-l", "app.kubernetes.io/name=slurmd", "-o", where)
    jobs: dict[str, str] = {}
    for name in ("requeue", "no-requeue"):
        told = f"scontrol update jobid={jobs.get('requeue', '$SLURM_JOB_ID')} admincomment=heard-{name}"
        wrap = f"trap '{told}; exit 3' TERM; while :; do sleep 1; done".replace("$", "\\$")
        submit = f"sbatch --parsable -n1 --mem=100 -w {node} --{name} --output=/dev/null -J {name}"
        jobs[name] = cluster.login(f'{submit} --wrap="{wrap}"').strip()
        wait_for(name, lambda job=jobs[name]: "JobState=RUNNING" in words(cluster, job), 60)
    before = cluster.uids("pod")[node]
    usual = node_files.kubelet

    def patient(network: Network, index: int, authority: Authority) -> str:
        grace = {"shutdownGracePeriod": f"{GRACE_S}s", "shutdownGracePeriodCriticalPods": "10s"}
        return json.dumps(json.loads(usual(network, index, authority)) | grace)

    monkeypatch.setattr(node_files, "kubelet", patient)
    cluster.lab.stop_kubelet(MACHINE)

    with logind(cluster) as (orders, told):
        cluster.lab.start_node(MACHINE)
        assert told.readline() == "delays\n"
        ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        wait_for("the Node", lambda: cluster.lab.kubectl("get", "node", MACHINE, "-o", ready) == "True", 60)
        began = time.monotonic()
        orders.write("shutdown\n")
        orders.flush()
        assert told.readline() == "goes\n"
        took = time.monotonic() - began

    # Slurm knows it all when the machine may go off, well within the grace period.
    assert took < GRACE_S - 10
    assert "k8s: pod terminated" in cluster.login(f"sinfo -h -N -n {node} -o %E")
    assert {"JobState=PENDING", "Restarts=1"} <= {*words(cluster, jobs["requeue"])}
    assert {"JobState=NODE_FAIL", "Restarts=0"} <= {*words(cluster, jobs["no-requeue"])}
    monkeypatch.undo()
    cluster.lab.kill_node(MACHINE)  # The power is off; then it boots.
    cluster.lab.start_node(MACHINE)
    wait_for("a Pod of its own again", lambda: cluster.uids("pod").get(node, before) != before, 240)
    cluster.await_idle()
    cluster.login(f"scontrol update jobid={jobs['requeue']} starttime=now")
    wait_for("it to run again", lambda: "JobState=RUNNING" in words(cluster, jobs["requeue"]), 120)
    cluster.login(f"scancel {jobs['requeue']}")
