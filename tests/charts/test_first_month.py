"""A cluster's first month: a scanner at ssh, a slurmctld that takes long to start, a conversion.

`./task test:install -- -k first_month` tells all of it on both releases.
"""

import os
import signal
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import pytest

from sunk_kube.wellknown import TAINT_LOCK
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.installation import Installation, install
from sunk_lab.kube.cgroups import processes_of
from sunk_lab.processes import stopped, wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm import cluster_images
from sunk_lab.slurm.releases import RELEASES, SLURM_24_11

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
LONG_S: Final = 100
"""Longer than Kubernetes' own threshold of a probe (three times) would bear with the chart's times: 90 s."""
STATE: Final = "/var/spool/slurmctld/state"
DAY_S: Final = 86400
SSH: Final = "ssh -n -i /tmp/key -o BatchMode=yes -o ConnectTimeout=10 -o StrictHostKeyChecking"


class Month(Installation):
    """Both releases as docs/upgrade.md wants them for a conversion, and two Pods that call ssh."""

    user_key = ""

    def values(self) -> dict[str, Any]:
        values = super().values()
        values["accounting"] = values["accounting"] | {"terminationGracePeriodSeconds": DAY_S}
        values["login"] = values["login"] | {"service": {"type": "NodePort"}}
        keys = {"sshKeys": [self.user_key]} if self.user_key else {}
        return values | {"users": [{"name": "ada", "uid": 2000} | keys]}

    def make_caller(self, name: str) -> str:
        """Make a Pod of another address with a key of its own; return its public key."""
        container = {
            "name": name,
            "image": f"{cluster_images.REGISTRY}/{cluster_images.SLURM}:{self.slurm.version}",
            "args": ["sleep", "infinity"],
        }
        pod = {"containers": [container], "tolerations": [{"key": TAINT_LOCK, "operator": "Exists"}]}
        metadata = {"name": name, "namespace": "default"}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})
        self.lab.kubectl("-n", "default", "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=120s")
        return self.call(name, "ssh-keygen -q -t ed25519 -N '' -f /tmp/key; cat /tmp/key.pub").strip()

    def call(self, caller: str, command: str) -> str:
        """Return what *command* says in the Pod *caller*, whether it fails or not."""
        run = f"{command} 2>&1 || true"
        return self.lab.kubectl("-n", "default", "exec", caller, "--", "bash", "-c", run)

    def log_in(self, caller: str, checking: str = "yes") -> str:
        """Return what ada, who calls from there, is told by `id`, or by ssh."""
        return self.call(caller, f"{SSH}={checking} ada@slurm-login.slurm id -un")

    def container(self, pod: str, name: str) -> dict[str, Any]:
        """Return what Kubernetes says of a container; its own schema is the type."""
        (found,) = (one for one in self.items("pod") if one["metadata"]["name"] == pod)
        statuses = found["status"].get("containerStatuses", [])
        return next((one for one in statuses if one["name"] == name), {"ready": False})

    def in_controller(self, command: str) -> str:
        """Return what *command* prints beside slurmctld."""
        return self.kubectl("exec", "slurm-controller-0", "-c", "slurmctld", "--", "bash", "-c", command)

    def slurmctld(self) -> list[int]:
        """Return the process of slurmctld, while there is one."""
        return processes_of(self.uids("pod")["slurm-controller-0"], "slurmctld")

    def sql(self, question: str) -> str:
        """Return what the embedded database says to its owner."""
        client = ("mariadb", "--no-defaults", "--socket=/run/mysqld/mysqld.sock", "--user=root", "--batch")
        words = (*client, "--skip-column-names", "slurm_acct_db", "--execute", question)
        return self.kubectl("exec", "slurm-mariadb-0", "--", *words)

    def has_ended(self, job: str) -> bool:
        """Return whether accounting has *job* as completed."""
        return "COMPLETED" in self.login(f"sacct -aXn --name={job} -o state")


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def cluster(request: pytest.FixtureRequest) -> Generator[Month]:
    """Both releases on two Nodes, which are compute Nodes too, and callers of two addresses."""
    with reserved_lab() as lab:
        made = Month(lab, nodes=("node1", "node2"), slurm=request.param)
        install(made, from_environment().cache, lambda _line: None)
        made.user_key = made.make_caller("user")
        made.make_caller("scanner")
        yield made


def test_a_scanner_locks_nobody_else_out_of_ssh(cluster: Month) -> None:
    cluster.install_slurm()
    wait_for("ada to come in", lambda: "ada" in cluster.log_in("user", "accept-new").splitlines(), 180)
    attempt = f"{SSH}=accept-new ada@slurm-login.slurm true || echo refused"
    first_line = "head -n1 </dev/tcp/slurm-login.slurm/22"

    with ThreadPoolExecutor(1) as pool:
        command = f"for turn in {{1..30}}; do {attempt}; done; {first_line}"
        scan = pool.submit(cluster.call, "scanner", command)
        seen: list[str] = []
        while not scan.done():
            seen.append(cluster.log_in("user").strip())
    told = scan.result().splitlines()

    assert told.count("refused") == 30
    assert told[-1].startswith("Not allowed at this time")
    assert set(seen) == {"ada"}
    assert cluster.log_in("user").strip() == "ada"


def test_a_login_pod_that_is_replaced_is_the_same_to_ssh(cluster: Month) -> None:
    wait_for("ada to come in", lambda: "ada" in cluster.log_in("user", "accept-new").splitlines(), 180)
    before = cluster.uids("pod")["slurm-login-0"]
    known = cluster.call("user", "cat ~/.ssh/known_hosts")

    cluster.kubectl("delete", "pod", "slurm-login-0")

    def is_new() -> bool:
        return cluster.uids("pod").get("slurm-login-0", before) != before

    wait_for("the next login Pod", is_new, 120)
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=180s", "pod/slurm-login-0")
    wait_for("ada to come in", lambda: cluster.log_in("user").strip() == "ada", 60)
    assert cluster.call("user", "cat ~/.ssh/known_hosts") == known


def test_a_slurmctld_that_answers_nobody_for_long_is_not_ready_and_is_not_killed(cluster: Month) -> None:
    cluster.await_idle()
    cluster.login("sbatch -n1 -J through --output=/dev/null --wrap='sleep 600'")
    wait_for("the job", lambda: "RUNNING" in cluster.login("squeue -h -n through -o %T"), 120)
    before = cluster.container("slurm-controller-0", "slurmctld")
    assert before["ready"]
    (process,) = cluster.slurmctld()

    with stopped([process]):
        wait_for("it not to be ready", lambda: not is_ready(cluster), 180)
        with pytest.raises(LabError):
            wait_for("it to be killed", lambda: cluster.slurmctld() != [process], LONG_S)

    wait_for("it to be ready", lambda: is_ready(cluster), 120)
    assert cluster.container("slurm-controller-0", "slurmctld")["restartCount"] == before["restartCount"]
    assert cluster.login("squeue -h -n through -o %T").strip() == "RUNNING"
    cluster.login("scancel --name=through")
    cluster.await_idle()


def is_ready(cluster: Month) -> bool:
    """Return whether Kubernetes calls slurmctld ready."""
    return bool(cluster.container("slurm-controller-0", "slurmctld")["ready"])


def test_a_slurmctld_that_reads_its_state_for_long_is_not_killed_and_is_ready_once_it_answers(
    cluster: Month,
) -> None:
    """A file of its state never ends: a pipe that nobody writes to, as a volume that does not answer."""
    starts = cluster.container("slurm-controller-0", "slurmctld")["restartCount"]
    (process,) = cluster.slurmctld()
    os.kill(process, signal.SIGSTOP)  # It would write that file once more.
    cluster.in_controller(f"cd {STATE}; rm -f trigger_state*; mkfifo trigger_state")
    os.kill(process, signal.SIGKILL)
    wait_for("it to start again", lambda: cluster.slurmctld() not in ([], [process]), 120)
    (process,) = cluster.slurmctld()

    with pytest.raises(LabError):
        wait_for(
            "it to be ready, or killed", lambda: is_ready(cluster) or cluster.slurmctld() != [process], LONG_S
        )
    with pytest.raises(LabError):
        cluster.login("timeout 10 scontrol ping | grep UP")
    cluster.in_controller(f"cd {STATE}; exec 3<>trigger_state; rm trigger_state; sleep 1")

    wait_for("it to be ready", lambda: is_ready(cluster), 180)
    assert "UP" in cluster.login("scontrol ping")
    assert cluster.slurmctld() == [process]
    assert cluster.container("slurm-controller-0", "slurmctld")["restartCount"] == starts + 1  # Ours.
    cluster.await_idle()


HOLD: Final = "BEGIN; SELECT COUNT(*) FROM prod_job_table; SELECT SLEEP(3600)"
SAID: Final = "SELECT id FROM information_schema.processlist WHERE info LIKE "
ALTERS: Final = f"{SAID}'alter table%job_table%' AND user = 'slurm'"
HOLDS: Final = f"{SAID}'SELECT SLEEP(3600)%'"


ADD: Final = "n=0; while sacctmgr -i add account a${i}x$((n++)) >/dev/null; do :; done"
READ: Final = "timeout 10 scontrol reconfigure; timeout 10 scontrol ping | grep UP"


def test_a_slurmctld_that_waits_for_slurmdbd_which_waits_for_it_is_started_again_once(cluster: Month) -> None:
    """It reads its configuration again while accounts are added; no call of anybody is answered then."""
    if cluster.slurm != SLURM_24_11:
        pytest.skip("Slurm 26.05 has not shown it")
    starts = cluster.container("slurm-controller-0", "slurmctld")["restartCount"]

    with suppress(LabError):  # What runs beside slurmctld ends with it.
        cluster.in_controller(f"for i in 1 2 3 4; do ({ADD}) & done; while {READ}; do sleep 1; done; wait")
    wait_for("it to be ready", lambda: is_ready(cluster), 300)

    assert cluster.container("slurm-controller-0", "slurmctld")["restartCount"] == starts + 1
    assert "UP" in cluster.login("scontrol ping")
    assert cluster.login("sacctmgr -nP show account a1x0 format=account").strip() == "a1x0"
    assert "slurmdbd, which waits for slurmctld" in cluster.kubectl("events", "--types=Warning")
    cluster.await_idle()


def test_a_conversion_outlives_the_drain_of_its_node_and_no_record_of_meanwhile_is_lost(
    cluster: Month,
) -> None:
    """The table of jobs is of an older version, and to alter it takes long: somebody reads it."""
    cluster.await_idle()
    cluster.login("timeout 60 srun -J before true")
    wait_for("the job in sacct", lambda: cluster.has_ended("before"), 60)
    cluster.sql("DELETE FROM table_defs_table WHERE table_name LIKE '%prod_job_table%'")
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(cluster.sql, HOLD)
        wait_for("the reader", lambda: cluster.sql(HOLDS).split(), 60)
        try:
            drained_while_it_converts(cluster)
        finally:
            cluster.sql(f"KILL {cluster.sql(HOLDS).split()[0]}")
        with pytest.raises(LabError):
            reader.result()

    def is_new() -> bool:
        return (
            cluster.container("slurm-accounting-0", "slurmdbd")["ready"] and not cluster.sql(ALTERS).split()
        )

    wait_for("slurmdbd", is_new, 240)
    wait_for("the record of meanwhile", lambda: cluster.has_ended("meanwhile"), 180)
    assert cluster.has_ended("before")
    cluster.lab.kubectl("uncordon", *cluster.nodes)
    cluster.await_idle()


def drained_while_it_converts(cluster: Month) -> None:
    """Restart slurmdbd; while it converts run a job, replace slurmctld, and drain slurmdbd's Node."""
    cluster.kubectl("delete", "pod", "slurm-accounting-0")
    wait_for("the conversion", lambda: cluster.sql(ALTERS).split(), 180)
    alters = cluster.sql(ALTERS).split()
    (pod,) = (one for one in cluster.items("pod") if one["metadata"]["name"] == "slurm-accounting-0")
    cluster.login("timeout 60 srun -J meanwhile true")
    controller = cluster.uids("pod")["slurm-controller-0"]
    cluster.kubectl("delete", "pod", "slurm-controller-0")  # What it holds back is on its volume.

    def is_replaced() -> bool:
        return cluster.uids("pod").get("slurm-controller-0", controller) != controller and is_ready(cluster)

    wait_for("another slurmctld", is_replaced, 240)
    drain = ("drain", pod["spec"]["nodeName"], "--ignore-daemonsets", "--delete-emptydir-data")

    with pytest.raises(LabError):
        cluster.lab.kubectl(
            *drain, "--pod-selector=app.kubernetes.io/name=slurmdbd", f"--timeout={LONG_S // 2}s"
        )

    (still,) = (one for one in cluster.items("pod") if one["metadata"]["name"] == "slurm-accounting-0")
    assert (still["metadata"]["uid"], "deletionTimestamp" in still["metadata"]) == (
        pod["metadata"]["uid"],
        True,
    )
    assert processes_of(pod["metadata"]["uid"], "slurmdbd")
    assert cluster.sql(ALTERS).split() == alters
