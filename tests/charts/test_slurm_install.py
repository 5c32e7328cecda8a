"""A whole Slurm cluster from both charts on real kubelets: jobs, Pods through Slurm, the story, updates.

Each run of all tests has the core; `./task test:install` runs the rest too.
"""

import contextlib
import json
import os
import re
import signal
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest
import yaml

from sunk_hook_gateway.testing.certificates import Authority
from sunk_lab.charts import Objects, helm_of, render, sunk_values
from sunk_lab.config import from_environment
from sunk_lab.directory import BASE, Directory
from sunk_lab.errors import LabError
from sunk_lab.installation import CHARTS, NAMESPACE, SUNK_NAMESPACE, Installation, install, merged
from sunk_lab.kube.cgroups import processes_of
from sunk_lab.processes import wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm import cluster_images
from sunk_lab.slurm.releases import SLURM_26_05
from sunk_lab.sniffer import sniffing
from sunk_lab.story.installed import Installed
from sunk_lab.story.stage import Scene
from sunk_lab.story.steps import STEPS

pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(2400),  # The images are made from the code as it is now.
]
on_request: Final = pytest.mark.install
EXAMPLES: Final = sorted((CHARTS / "slurm/examples").glob("*.yaml"))
DEADLINE_S: Final = 240
"""For a prolog, whose Pod may still be there when a busy machine has come to what is asked of it."""
SPOOL: Final = "/var/spool/slurmd"
PROLOG: Final = f"#!/bin/bash\ntouch {SPOOL}/prolog-of-$SLURM_JOB_ID\n"


class Cluster(Installation):
    """The release of a Slurm cluster in its namespace of a lab."""

    def values(self) -> dict[str, Any]:
        more = {"hooks": {"prolog": {"50-mark": PROLOG}}, "slurmConfig": {"hookDeadline": DEADLINE_S}}
        return super().values() | more

    def secrets(self) -> dict[str, Any]:
        kept = [one for one in self.items("secret") if one["type"] == "Opaque"]
        return {
            one["metadata"]["name"]: one["data"] for one in kept if one["metadata"]["name"] != "slurm-nats"
        }

    def refusal(self, **values: Any) -> str:  # noqa: ANN401 - values are free-form.
        """Return why another release with *values* is refused."""
        other = helm_of(self.lab, "default")
        with pytest.raises(helm.HelmError) as refused:
            other.install(
                CHARTS / "slurm", "other", self.values() | values, namespace="default", dry_run="server"
            )
        return str(refused.value)


@pytest.fixture(scope="module")
def cluster() -> Generator[Cluster]:
    """Both releases on two Nodes, which are compute Nodes too, in a namespace of the baseline standard."""
    with reserved_lab() as lab:
        config = from_environment()
        made = Cluster(lab, nodes=("node1", "node2"), slurm=config.slurm)
        install(made, config.cache, lambda _line: None)
        made.install_slurm()  # With a prolog of its own.
        yield made


def test_a_user_runs_a_job_on_two_nodes_and_accounting_knows_it(cluster: Cluster) -> None:
    as_ada = "setpriv --reuid=2000 --regid=2000 --clear-groups"

    names = cluster.login(f"cd /tmp && timeout 220 {as_ada} srun -N2 -J two bash -c 'hostname; id -un'")

    assert sorted(names.split()) == ["ada", "ada", *sorted(cluster.uids("pod").keys() & set(names.split()))]
    wait_for("the job in sacct", lambda: "COMPLETED" in cluster.login("sacct -aXn --name=two -o state"))


ALL_REDUCE: Final = """
import os, socket, time

ranks, rank, port = int(os.environ["SLURM_NTASKS"]), int(os.environ["SLURM_PROCID"]), 23456
if rank == 0:
    with socket.create_server(("", port), family=socket.AF_INET) as server:
        calls = [server.accept()[0] for _ in range(ranks - 1)]
    total = sum(int(call.recv(8)) for call in calls)
    for call in calls:
        call.sendall(str(total).encode())
else:
    for turn in range(100):
        try:
            call = socket.create_connection((os.environ["MASTER_ADDR"], port), timeout=30)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    call.sendall(str(rank).encode())
    total = int(call.recv(8))
print(rank, total, os.uname().nodename, flush=True)
"""
"""What torchrun, NCCL and Ray do first: everybody meets at a node's name."""


def test_the_ranks_of_a_batch_job_meet_at_the_name_of_the_node_of_its_script(cluster: Cluster) -> None:
    script = f"#!/bin/bash\nexport MASTER_ADDR=$(hostname)\nsrun python3 -c '{ALL_REDUCE}'\n"
    submit = f"sbatch --parsable --wait -N2 -n2 --output={SPOOL}/met-%j --time=2"

    job = cluster.login(
        f"cd /tmp && cat >/tmp/meet.sh <<'EOF'\n{script}EOF\ntimeout 220 {submit} /tmp/meet.sh"
    ).strip()

    leader, names = cluster.login(f"squeue -h -j {job} -t all -o '%B %N'").split()
    others = set(cluster.login(f"scontrol show hostnames {names}").split()) - {leader}
    told = cluster.kubectl("exec", leader, "-c", "slurmd", "--", "cat", f"{SPOOL}/met-{job}")
    assert sorted(told.splitlines()) == [f"0 1 {leader}", f"1 1 {others.pop()}"]


PMIX: Final = """
import ctypes, os

class Proc(ctypes.Structure):
    _fields_ = [("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]

pmix, me, none = ctypes.CDLL("libpmix.so.2"), Proc(), ctypes.c_size_t(0)
codes = [
    pmix.PMIx_Init(ctypes.byref(me), None, none),
    pmix.PMIx_Fence(None, none, None, none),
    pmix.PMIx_Finalize(None, none),
]
print(me.rank, *codes, flush=True)
"""
"""What MPI does of PMIx at its start: each rank learns who it is and meets all others."""


def test_the_ranks_of_an_mpi_job_meet_by_pmix(cluster: Cluster) -> None:
    plugins = cluster.login("srun --mpi=list").split()
    if cluster.slurm is SLURM_26_05 and "pmix" not in plugins:
        pytest.skip("the archive had no source of Slurm 26.05, of which its image builds the plugin")
    assert "pmix" in plugins

    told = cluster.login(
        f"cat >/tmp/pmix.py <<'EOF'\n{PMIX}EOF\n"
        'cd /tmp; timeout 220 srun --mpi=pmix -N2 -n2 python3 -c "$(cat /tmp/pmix.py)"'
    )

    assert sorted(told.splitlines()) == ["0 0 0 0", "1 0 0 0"]


PMI: Final = """
import os, socket

rank, size = os.environ["PMI_RANK"], int(os.environ["PMI_SIZE"])
server = socket.socket(fileno=int(os.environ["PMI_FD"])).makefile("rw")

def ask(command):
    server.write(f"cmd={command}\\n")
    server.flush()
    return dict(word.split("=", 1) for word in server.readline().split())

ask("init pmi_version=1 pmi_subversion=1")
space = "kvsname=" + ask("get_my_kvsname")["kvsname"]
ask(f"put {space} key=of-{rank} value={os.uname().nodename}")
ask("barrier_in")
met = [ask(f"get {space} key=of-{other}")["value"] for other in range(size)]
ask("finalize")
print(rank, *met, flush=True)
"""
"""What MPICH does of PMI at its start: each rank tells where it is, and learns it of all others."""


def test_the_ranks_of_an_mpi_job_meet_by_pmi2(cluster: Cluster) -> None:
    told = cluster.login(
        f"cat >/tmp/pmi.py <<'EOF'\n{PMI}EOF\n"
        'cd /tmp; timeout 220 srun --mpi=pmi2 -N2 -n2 python3 -c "$(cat /tmp/pmi.py)"'
    )

    (first, *met), (second, *met_too) = sorted(line.split() for line in told.splitlines())
    assert (first, second) == ("0", "1")
    assert met == met_too
    assert set(met) == set(cluster.login("sinfo -h -N -o %N").split())


def test_a_user_asks_on_a_login_node_why_an_own_job_waits(cluster: Cluster) -> None:
    as_ada = "cd /tmp && timeout 220 setpriv --reuid=2000 --regid=2000 --clear-groups"
    sunkctl = "/usr/local/bin/sunkctl"  # Which ssh has in PATH, and this command has not.
    (node, *_) = cluster.login("sinfo -h -N -p cpu -o %N").split()
    machine = cluster.kubectl("get", "pod", node, "-o", "jsonpath={.spec.nodeName}")
    cluster.apply(stays_for_a_while(machine))
    wait_for("the Pod that is to leave", lambda: phase(cluster, "stays") == "Running")

    job = cluster.login(f"{as_ada} sbatch --parsable -w {node} --output=/dev/null --wrap=true").strip()

    def told(job: str) -> str:
        return cluster.login(f"{as_ada} {sunkctl} explain job {job} 2>&1; echo status=$?")

    why = f"because: 1 Pod has to leave node {node}, the last by"
    wait_for("what has to leave", lambda: is_in(why, told(job)), STAYS_S)
    with contextlib.suppress(LabError):  # It may have left by now.
        cluster.lab.kubectl("exec", "stays", "--", "touch", "/tmp/end")  # noqa: S108 - in its own root.
    wait_for("the end of the job", lambda: is_in("over: COMPLETED", told(job)), 300)
    roots = cluster.login("sbatch --parsable --begin=now+1hour --output=/dev/null --wrap=true").strip()
    refusal = f"sunkctl: no job {roots} of ada is known, or its user is not known yet\nstatus=4"
    wait_for("another's job", lambda: is_in(refusal, told(roots)))
    assert "because: BeginTime" in cluster.login(f"{sunkctl} explain job {roots}")
    cluster.login(f"scancel {roots}")


def is_in(wanted: str, told: str) -> bool:
    """Return True. Raises `LabError` with what was told in place of it."""
    if wanted not in told:
        raise LabError(told)
    return True


STAYS_S: Final = 150


def stays_for_a_while(machine: str) -> dict[str, Any]:
    """Return a Pod on *machine* that takes its whole grace period to leave, or until it has /tmp/end."""
    pod = walker()
    pod["metadata"] = {"name": "stays", "namespace": "default"}
    del pod["spec"]["schedulerName"]
    pod["spec"] |= {
        "nodeSelector": {"kubernetes.io/hostname": machine},
        "terminationGracePeriodSeconds": STAYS_S,
    }
    run = "trap '' TERM; while [ ! -e /tmp/end ]; do sleep 1; done"
    pod["spec"]["containers"][0]["args"] = ["bash", "-c", run]
    return pod


def test_every_pod_of_slurm_knows_the_nodes_by_name(cluster: Cluster) -> None:
    nodes = cluster.login("sinfo -h -N -o %N").split()
    pods = [*nodes, "slurm-login-0", "slurm-controller-0"]

    for pod in pods:
        found = cluster.kubectl("exec", pod, "--", "getent", "hosts", *nodes)
        assert len(found.splitlines()) == len(nodes), pod


def test_a_prolog_of_the_values_runs_on_each_node_of_a_job(cluster: Cluster) -> None:
    told = cluster.login("timeout 220 srun -N2 bash -c 'echo $SLURM_JOB_ID $(hostname)'").splitlines()

    assert len(told) == 2
    for job, node in (line.split() for line in told):
        cluster.kubectl("exec", node, "--", "test", "-e", f"/var/spool/slurmd/prolog-of-{job}")


def walker(**annotations: str) -> dict[str, Any]:
    """Return a Pod through Slurm."""
    version = from_environment().slurm.version
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "walker", "namespace": "default", "annotations": annotations},
        "spec": {
            "schedulerName": "slurm-slurm",
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "walker",
                    "image": f"{cluster_images.REGISTRY}/{cluster_images.SLURM}:{version}",
                    "args": ["true"],
                    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                }
            ],
        },
    }


def test_a_pod_that_slurm_would_never_take_is_refused_as_it_is_applied(cluster: Cluster) -> None:
    with pytest.raises(LabError, match="priority: must be an integer"):
        cluster.apply(walker(**{"sunk.coreweave.com/priority": "high"}))


def test_a_pod_runs_through_slurm(cluster: Cluster) -> None:
    cluster.apply(walker())

    wait_for("the Pod to have run", lambda: phase(cluster, "walker") == "Succeeded")
    wait_for("its job in sacct", lambda: "sunk|COMPLETED" in cluster.login("sacct -aXnP -o user,state"))


def test_helms_own_test_passes(cluster: Cluster) -> None:
    told = cluster.helm.test("slurm", timeout=900, logs=True)["logs"]

    assert "PARTITION" in told


@pytest.fixture(scope="module")
def scene(cluster: Cluster) -> Generator[Scene]:
    """What the story is told on elsewhere, by the Services and keys of the charts."""
    sides = Installed(cluster)
    yield Scene(sides)
    sides.close()


@pytest.mark.parametrize("name", STEPS)
def test_the_step_of_the_story_holds(scene: Scene, name: str) -> None:
    timings = STEPS[name](scene)

    assert all(timing.seconds >= 0 for timing in timings)


def test_an_upgrade_that_changes_nothing_restarts_nothing_and_keeps_every_key(cluster: Cluster) -> None:
    before = cluster.uids("pod"), cluster.secrets()

    cluster.install_slurm()

    assert (cluster.uids("pod"), cluster.secrets()) == before


@on_request
def test_a_changed_slurm_conf_reaches_slurmctld_without_a_restart(cluster: Cluster) -> None:
    cluster.install_slurm()  # Whatever was tried before.
    before = cluster.uids("pod")
    values: dict[str, Any] = cluster.values()
    values["slurmConfig"] |= {"slurmdTimeout": 77}
    values["compute"]["partitions"] = "PartitionName=all Nodes=ALL Default=YES\nPartitionName=more Nodes=ALL"

    cluster.install_slurm(values)

    def is_told() -> bool:
        return re.search(r"SlurmdTimeout\s+= 77", cluster.login("scontrol show config")) is not None

    wait_for("slurmctld to have read slurm.conf", is_told, 300)
    assert cluster.login("sinfo -h -p more -o %P").strip() == "more"
    assert cluster.uids("pod") == before


@on_request
def test_an_allocation_ends_whose_salloc_is_gone(cluster: Cluster) -> None:
    values = cluster.values()
    values["slurmConfig"] |= {"inactiveLimit": 6}
    cluster.install_slurm(values)

    def is_read() -> bool:
        return re.search(r"InactiveLimit\s+= 6 sec", cluster.login("scontrol show config")) is not None

    wait_for("slurmctld to have read slurm.conf", is_read, 300)
    cluster.login("setsid salloc -N1 -J orphan sleep 3600 >/dev/null 2>&1 & echo $! >/tmp/salloc")
    wait_for("the allocation", lambda: "RUNNING" in cluster.login("squeue -h -n orphan -o %T"))

    cluster.login("kill -9 -- -$(cat /tmp/salloc)")

    wait_for("its end", lambda: cluster.login("squeue -h -n orphan -o %T").strip() == "")


@on_request
def test_limits_of_the_values_are_those_of_a_users_job(cluster: Cluster) -> None:
    """Lower ones than the runtime's: not every machine that the lab runs on has the capability for more."""
    values = cluster.values()
    (node, *_) = cluster.login("sinfo -h -N -p cpu -o %N").split()
    (slurmd, *_) = json.loads(cluster.kubectl("get", "pod", node, "-o", "json"))["spec"]["containers"]
    values["compute"] |= {"limits": {"memlock": 4096, "nofile": 10000, "stack": 4096}}
    values["compute"]["nodes"]["cpu"]["securityContext"] = slurmd["securityContext"]
    cluster.install_slurm(values)
    as_ada = "cd /tmp && timeout 220 setpriv --reuid=2000 --regid=2000 --clear-groups"

    def limits() -> list[str]:
        with contextlib.suppress(LabError):  # The node is on its way.
            return cluster.login(f"{as_ada} srun -N1 bash -c 'ulimit -l; ulimit -Hn; ulimit -s'").split()
        return []

    wait_for("the new limits", lambda: limits() == ["4096", "10000", "4096"])
    shared = cluster.login(f"{as_ada} srun -N1 df --output=size -BM /dev/shm").split()
    cluster.install_slurm()
    assert shared[-1] == "2000M"


@on_request
def test_a_job_has_its_own_scratch_which_goes_with_it(cluster: Cluster) -> None:
    values = cluster.values()
    values["compute"] |= {"scratch": {"size": "100Mi"}}
    cluster.install_slurm(values)
    (node, *_) = cluster.login("sinfo -h -N -p cpu -o %N").split()

    def has_scratch() -> bool:
        return "TmpDisk=0 " not in cluster.login(f"scontrol -o show node {node}")

    wait_for("the new node", has_scratch)
    cluster.await_idle()
    as_ada = "cd /tmp && timeout 220 setpriv --reuid=2000 --regid=2000 --clear-groups"
    write = 'echo $TMPDIR; stat -c "%U %a" $TMPDIR; echo data >$TMPDIR/file'

    def told() -> list[str]:
        return cluster.login(f"{as_ada} srun -w {node} bash -c '{write}'").split()[1:]

    wait_for(
        "a folder of its own, once slurmd has heard of the new slurm.conf",
        lambda: told() == ["ada", "700"],
    )
    listed = ("exec", node, "-c", "slurmd", "--", "ls", "-A", "/local/scratch")
    wait_for("its end", lambda: "job-" not in cluster.kubectl(*listed))
    wait_for("the folder to be gone", lambda: ".gone" not in cluster.kubectl(*listed))
    cluster.install_slurm()


@on_request
def test_a_user_who_comes_later_logs_in_and_ends_no_session(cluster: Cluster) -> None:
    made = "rm -f /tmp/late; ssh-keygen -q -t ed25519 -N '' -f /tmp/late; cat /tmp/late.pub"
    public = cluster.login(made).strip()
    login = cluster.uids("pod")["slurm-login-0"]
    values = cluster.values()
    values["users"] = [*values["users"], {"name": "grace", "uid": 2001, "sshKeys": [public]}]

    cluster.install_slurm(values)

    ssh = "ssh -i /tmp/late -p 2222 -o StrictHostKeyChecking=no -o BatchMode=yes grace@localhost"

    def comes_in() -> bool:
        return cluster.login(f"{ssh} id -un 2>/dev/null || true").strip() == "grace"

    wait_for("grace to come in", comes_in)
    cluster.install_slurm()
    wait_for("her key to be gone", lambda: not comes_in())
    assert cluster.uids("pod")["slurm-login-0"] == login


@on_request
def test_what_slurm_refuses_of_accounting_setup_fails_its_job_which_says_why(cluster: Cluster) -> None:
    lines = [
        "add account physics",
        "add account physics",
        "add user ada account=nosuch",
        "add user ada account=physics",
    ]
    values = cluster.values()
    cluster.helm.upgrade(
        CHARTS / "slurm", "slurm", values | {"accounting": values["accounting"] | {"setup": lines}}
    )

    def failed() -> list[str]:
        wanted = "app.kubernetes.io/name=slurm-accounting-setup"
        pods = json.loads(cluster.kubectl("get", "pods", "-l", wanted, "-o", "json"))["items"]
        ended = [(pod, pod["status"].get("containerStatuses", [])) for pod in pods]
        return [pod["metadata"]["name"] for pod, found in ended if any(one["restartCount"] for one in found)]

    def says_why() -> bool:  # A log goes when its container has been started twice more.
        told = "".join(cluster.kubectl("logs", name, "--previous") for name in failed())
        return "account=nosuch: No account nosuch" in told

    wait_for("the Job to fail and say why", says_why)
    shown = cluster.login("sacctmgr -nP show assoc user=ada format=account")
    assert shown.split() == ["physics"]


@on_request
def test_a_slurmd_that_starts_anew_leaves_room_for_the_daemonsets_of_its_node(cluster: Cluster) -> None:
    def announced(node: str) -> tuple[int, int]:
        told = cluster.login(f"scontrol -o show node {node}")
        cpus, memory = re.search(r"CPUTot=(\d+)", told), re.search(r"RealMemory=(\d+)", told)
        return int(cpus[1]) if cpus else 0, int(memory[1]) if memory else 0

    (node, *_) = cluster.login("sinfo -h -N -p cpu -o %N").split()
    before = announced(node)
    values = cluster.values()
    values["compute"] |= {"leaveRoomFor": "DaemonSets"}
    values["compute"]["nodes"]["cpu"]["slurm"] = {"cpus": 999, "memory": 9999999}
    cluster.install_slurm(values)
    cluster.await_idle()
    wait_for("the new size", lambda: announced(node) != before)

    pod = json.loads(cluster.kubectl("get", "pod", node, "-o", "json"))
    env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
    assert announced(node) == (int(env["SUNK_LEFT_CPUS"]), int(env["SUNK_LEFT_MIB"]))
    cluster.login("timeout 220 srun -N2 --mem=100 true")


@on_request
def test_users_of_a_directory_service_log_in_and_run_jobs_and_partitions_know_their_groups(
    cluster: Cluster, tmp_path: Path
) -> None:
    made = "rm -f /tmp/key; ssh-keygen -q -t ed25519 -N '' -f /tmp/key; cat /tmp/key.pub; cat /tmp/key"
    public, private = cluster.login(made).split("\n", 1)
    entries = (
        f"dn: uid=grace,{BASE}\nobjectClass: account\nobjectClass: posixAccount\nobjectClass: ldapPublicKey\n"
        f"cn: grace\nuid: grace\nuidNumber: 3000\ngidNumber: 3000\nhomeDirectory: /tmp\n"
        f"loginShell: /bin/bash\nsshPublicKey: {public}\n\n"
        f"dn: cn=physics,{BASE}\nobjectClass: posixGroup\ncn: physics\ngidNumber: 3000\nmemberUid: grace\n"
    )
    address = cluster.lab.network.host
    with Directory(tmp_path, from_environment().cache, entries, address=address) as directory:
        config = yaml.safe_load((CHARTS / "slurm/examples/ldap.yaml").read_text())["directory"]["sssdConfig"]
        config = config.replace("ldaps://ldap.example.com", f"{directory.url}\nldap_id_use_start_tls = false")
        config = config.replace("dc=example,dc=com", BASE)
        values = cluster.values() | {"directory": {"sssdConfig": config}}
        partitions = ("all Nodes=ALL Default=YES", "labs Nodes=ALL AllowGroups=physics")
        values["compute"] |= {"partitions": "\n".join(f"PartitionName={line}" for line in partitions)}
        cluster.install_slurm(values)
        cluster.await_idle()
        cluster.login(f"umask 077; cat >/tmp/key <<'EOF'\n{private}EOF\n")
        ssh = "ssh -i /tmp/key -p 2222 -o StrictHostKeyChecking=no grace@localhost"
        as_ada = "setpriv --reuid=2000 --regid=2000 --clear-groups"
        cluster.login(f"cd /tmp; {as_ada} sbatch -p labs -J adas --output=/dev/null --wrap=true")

        ran = cluster.login(f"timeout 220 {ssh} srun -N2 -p labs -J graces id -un")

        assert ran.split() == ["grace", "grace"]
        wait_for("ada's refusal", lambda: "not in group" in cluster.login("squeue -h -n adas -o %r"))
        cluster.login("scancel --name=adas")
        wait_for("the job in sacct", lambda: "grace" in cluster.login("sacct -aXn --name=graces -o user"))
        later = f"{ssh} sbatch --parsable -p labs --begin=now+1hour --output=/dev/null --wrap=true"
        ask = f"{ssh} sunkctl explain job {cluster.login(later).strip()} 2>&1"
        wait_for("graces answer", lambda: is_in("because: BeginTime", cluster.login(ask)))
    cluster.install_slurm()
    cluster.await_idle()


@on_request
def test_by_qos_a_job_pushes_a_pod_aside_and_a_pod_pushes_a_job_aside(cluster: Cluster) -> None:
    granted = {"policyByNamespace": {"default": {"qos": ["normal", "urgent"]}}}
    plain = cluster.values()
    by_qos = plain["slurmConfig"] | {"preemption": "qos"}
    values = plain | {"slurmConfig": by_qos, "scheduler": plain["scheduler"] | granted}
    setup = [
        "add qos urgent",
        "modify qos where name=urgent set preempt=normal",
        "modify user where name=sunk set qos=normal,urgent",
        "modify user where name=root set qos=normal,urgent",
    ]
    enforced = {"setup": setup, "enforce": "associations,limits,qos"}
    cluster.install_slurm(values | {"accounting": values["accounting"] | enforced})
    wait_for("the QoS", lambda: "normal" in cluster.login("sacctmgr -nP show qos urgent format=preempt"))
    cluster.await_idle()

    def job(name: str, qos: str) -> None:
        wrap = "--mem=100 --output=/dev/null --wrap='sleep 600'"
        cluster.login(f"sbatch --no-requeue -N2 --exclusive --job-name={name} --qos={qos} {wrap}")

    def is_in(name: str, state: str) -> bool:
        return state in cluster.login(f"squeue -h -n {name} -t all -o %T").split()

    cluster.apply(waiter("calm"))
    wait_for("the Pod to run", lambda: phase(cluster, "calm") == "Running")
    job("pusher", "urgent")
    wait_for("the Pod to be gone", lambda: phase(cluster, "calm") == "")
    wait_for("the urgent job", lambda: is_in("pusher", "RUNNING"))
    cluster.login("scancel --name=pusher")
    job("training", "normal")
    wait_for("the training job", lambda: is_in("training", "RUNNING"))
    cluster.apply(waiter("urgent", **{"sunk.coreweave.com/qos": "urgent"}))
    wait_for("the urgent Pod", lambda: phase(cluster, "urgent") == "Running")

    assert is_in("training", "PREEMPTED")
    cluster.lab.kubectl("delete", "pod", "urgent")
    cluster.await_idle()


def waiter(name: str, **annotations: str) -> dict[str, Any]:
    """Return a Pod through Slurm that runs until it is told to end."""
    pod = walker(**annotations)
    pod["metadata"]["name"] = name
    pod["spec"]["containers"][0]["args"] = ["sleep", "3600"]
    return pod


def test_an_update_by_helm_waits_for_a_job_and_nodes_go_come_and_are_rolled_back(cluster: Cluster) -> None:
    def nodes() -> dict[str, str]:
        return {name: uid for name, uid in cluster.uids("pod").items() if name.startswith("cpu-")}

    def state(job: str) -> str:
        return cluster.login(f"squeue -h -j {job} -t all -o %T").strip()

    before, revision = nodes(), cluster.helm.status("slurm")["revision"]
    kept = cluster.secrets(), cluster.uids("persistentvolumeclaim")
    wrap = "while [ ! -e /var/spool/slurmd/end-of-$SLURM_JOB_ID ]; do sleep 0.2; done"
    job = cluster.login(f"sbatch --parsable --output=/dev/null --wrap='{wrap}'").strip()
    wait_for("the job to run", lambda: state(job) == "RUNNING")
    busy = cluster.login(f"squeue -h -j {job} -o %N").strip()
    (calm,) = before.keys() - {busy}
    values = cluster.values()
    values["compute"] |= {"s6": {"10-hello": {"type": "oneshot", "script": "touch /var/spool/slurmd/hello"}}}

    cluster.helm.upgrade(CHARTS / "slurm", "slurm", values)

    wait_for("the idle node to be new", lambda: nodes().get(calm, before[calm]) != before[calm])
    wait_for("the other to drain", lambda: "draining" in cluster.login(f"sinfo -h -n {busy} -o %T"))
    assert (nodes()[busy], state(job)) == (before[busy], "RUNNING")
    cluster.kubectl("exec", busy, "--", "touch", f"/var/spool/slurmd/end-of-{job}")
    wait_for("the other node to be new", lambda: nodes().get(busy, before[busy]) != before[busy])
    wait_for(
        "the job in sacct",
        lambda: cluster.login(f"sacct -Xnp -j {job} -o state,restarts").strip() == "COMPLETED|0|",
    )
    cluster.await_idle()
    for node in (busy, calm):
        cluster.kubectl("exec", node, "--", "test", "-e", "/var/spool/slurmd/hello")

    values["compute"]["nodes"]["cpu"]["replicas"] = 1
    cluster.helm.upgrade(CHARTS / "slurm", "slurm", values)
    known = "sinfo -h -N -p all -o %N"
    wait_for("one node to go", lambda: len(cluster.login(known).split()) == len(nodes()) == 1)
    (updated,) = nodes().values()
    cluster.helm.rollback("slurm", version=revision)
    wait_for("both nodes to be as they were", lambda: len({*nodes().values()} - {updated}) == 2)
    cluster.await_idle()
    for node in nodes():
        cluster.kubectl("exec", node, "--", "test", "!", "-e", "/var/spool/slurmd/hello")
    assert (cluster.secrets(), cluster.uids("persistentvolumeclaim")) == kept
    assert cluster.login("timeout 220 srun -N2 true") == ""


@on_request
def test_jobs_of_a_pod_that_is_deleted_hear_of_it_and_are_requeued_if_they_may(cluster: Cluster) -> None:
    """As when a spot machine is taken back: everything on it has 30 seconds."""
    cluster.await_idle()
    (node, _other) = cluster.login("sinfo -h -N -p cpu -o %N").split()
    jobs: dict[str, str] = {}
    for name, field in (("requeue", "comment"), ("no-requeue", "admincomment")):
        # Who has failed has no comment any more: the other job, which waits by then, bears both.
        told = f"scontrol update jobid={jobs.get('requeue', '$SLURM_JOB_ID')} {field}=heard"
        wrap = f"trap '{told}; exit 3' TERM; while :; do sleep 1; done".replace("$", "\\$")
        submit = f"sbatch --parsable -n1 --mem=100 -w {node} --{name} --output=/dev/null -J {name}"
        jobs[name] = cluster.login(f'{submit} --wrap="{wrap}"').strip()
        wait_for(name, lambda job=jobs[name]: "RUNNING" in cluster.login(f"squeue -h -j {job} -o %T"))
    before = cluster.uids("pod")[node]

    def words(job: str) -> list[str]:
        return cluster.login(f"scontrol --oneliner show job {job}").split()

    cluster.kubectl("delete", "pod", node, "--grace-period=30", "--wait=false")
    wait_for("the Pod to be new", lambda: cluster.uids("pod").get(node, before) != before)

    requeued = {"JobState=PENDING", "Restarts=1", "Comment=heard", "AdminComment=heard"}
    assert requeued <= {*words(jobs["requeue"])}
    assert {"JobState=NODE_FAIL", "Restarts=0"} <= {*words(jobs["no-requeue"])}
    cluster.await_idle()  # The syncer lifts the drain once the new Pod is ready.
    cluster.login(f"scontrol update jobid={jobs['requeue']} starttime=now")
    wait_for("it to run again", lambda: "JobState=RUNNING" in words(jobs["requeue"]))
    cluster.login(f"scancel {jobs['requeue']}")
    cluster.await_idle()


@on_request
def test_kubectl_drain_waits_for_the_job_and_ends_nothing(cluster: Cluster) -> None:
    cluster.await_idle()
    (node, _other) = cluster.login("sinfo -h -N -p cpu -o %N").split()
    machine = cluster.kubectl("get", "pod", node, "-o", "jsonpath={.spec.nodeName}")
    wrap = "while [ ! -e /var/spool/slurmd/end-of-$SLURM_JOB_ID ]; do sleep 0.2; done"
    job = cluster.login(f"sbatch --parsable -w {node} --output=/dev/null --wrap='{wrap}'").strip()
    wait_for("the job", lambda: "RUNNING" in cluster.login(f"squeue -h -j {job} -o %T"))
    selector = "--pod-selector=app.kubernetes.io/name=slurmd"
    drain = ("drain", machine, "--ignore-daemonsets", "--delete-emptydir-data", selector, "--timeout=15s")

    with pytest.raises(LabError, match="disruption budget"):
        cluster.lab.kubectl(*drain)
    assert cluster.login(f"squeue -h -j {job} -o %T").strip() == "RUNNING"
    cluster.kubectl("exec", node, "--", "touch", f"/var/spool/slurmd/end-of-{job}")
    wait_for("it to be drained", lambda: "drained" in cluster.lab.kubectl(*drain))

    recorded = f"sacct -Xnp -j {job} -o state,restarts"
    wait_for("the job in sacct", lambda: cluster.login(recorded).strip() == "COMPLETED|0|")
    cluster.lab.kubectl("uncordon", machine)
    cluster.await_idle()


@on_request
def test_hooks_are_called_with_tls_and_a_renewed_certificate_is_taken_over(
    cluster: Cluster, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, server="slurm-hook-gateway.slurm.svc")

    def renew() -> str:
        file, key_file = authority.issue()
        texts = {
            "tls.crt": file.read_text(),
            "tls.key": key_file.read_text(),
            "ca.crt": authority.file.read_text(),
        }
        metadata = {"name": "gateway-tls", "namespace": NAMESPACE}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": metadata,
            "stringData": texts,
        }
        cluster.apply(secret)
        return texts["tls.crt"]

    renew()

    def install(*, required: bool) -> None:
        tls = {"existingSecret": "gateway-tls", "required": required}
        cluster.install_slurm(merged(cluster.values(), {"hookGateway": {"tls": tls}}))
        cluster.await_idle()

    def is_required() -> bool:
        with contextlib.suppress(helm.HelmError, LabError):  # A Pod of before is there.
            install(required=True)
            return True
        return False

    install(required=False)
    wait_for("compute Pods with the CA", is_required, pause_s=5.0)
    cluster.login("timeout 220 srun -N2 true")  # Its prologs lock both nodes.
    pod = walker()
    pod["metadata"]["name"] = "encrypted"
    cluster.apply(pod)
    wait_for("the Pod to have run", lambda: phase(cluster, "encrypted") == "Succeeded")
    before = cluster.uids("pod")

    renewed = renew()

    def shown() -> str:
        at = "slurm-hook-gateway.slurm.svc"
        return cluster.login(f"python3 -c 'import ssl; print(ssl.get_server_certificate((\"{at}\", 8443)))'")

    wait_for("the new certificate", lambda: shown().strip() == renewed.strip())
    cluster.login("timeout 220 srun -N2 true")
    assert cluster.uids("pod") == before
    cluster.install_slurm()
    cluster.await_idle()


@on_request
def test_a_cluster_changes_to_tls_while_jobs_start_on_old_nodes_and_then_no_token_is_read_on_the_network(
    cluster: Cluster, tmp_path: Path
) -> None:
    on_delete = {"compute": {"nodes": {"cpu": {"updateStrategy": {"type": "OnDelete"}}}}}

    def install(*, required: bool) -> None:
        tls = {"tls": {"generate": True, "required": required}}
        cluster.install_slurm(merged(cluster.values(), {**on_delete, "hookGateway": tls, "rest": tls}))
        cluster.await_idle()

    def compute() -> dict[str, str]:
        return {name: uid for name, uid in cluster.uids("pod").items() if name.startswith("cpu-")}

    def replace(*pods: str) -> None:
        cluster.kubectl("delete", "pod", *pods)
        before = {old[pod] for pod in pods}
        wait_for(
            "the next Pods", lambda: compute().keys() == old.keys() and not before & {*compute().values()}
        )
        cluster.await_idle()

    def works(name: str) -> None:
        cluster.login("timeout 220 srun -N2 true")  # Its prologs lock the nodes.
        pod = walker()
        pod["metadata"]["name"] = name
        cluster.apply(pod)
        wait_for(f"{name} to have run", lambda: phase(cluster, name) == "Succeeded")
        cluster.await_idle()

    def read(pod: str, container: str, file: str) -> str:
        program = f"print(open({file!r}).read().strip())"
        return cluster.kubectl("exec", pod, "-c", container, "--", "python3", "-c", program).strip()

    old = compute()
    with pytest.raises(LabError, match="first upgrade with false"):
        install(required=True)
    install(required=False)
    assert compute() == old
    works("tls-on-old-nodes")
    first, *others = sorted(old)
    replace(first)
    works("tls-on-some-nodes")
    with pytest.raises(LabError, match=f"the Pod {others[0]} was created without the CA"):
        install(required=True)
    replace(*others)

    install(required=True)
    with sniffing(tmp_path) as capture:
        works("tls-on-all-nodes")
        hook_tokens = [read(pod, "slurmd", "/var/run/secrets/sunk/token") for pod in compute()]
        slurm_tokens = {
            read(f"deployment/slurm-{name}", container, "/run/slurm-token/token")
            for name, container in (("syncer", "syncer"), ("scheduler", "scheduler"))
        }
    ways = {way for token in slurm_tokens for way in capture.carried(token)}
    ports = {port for way in ways for port in (way.source_port, way.target_port)}
    taken = {port for way in capture.streams for port in (way.source_port, way.target_port)}

    assert capture.lost == 0
    assert taken >= {6821, 8443}
    assert [token for token in hook_tokens if capture.carried(token)] == []
    assert not ports & {6820, 6821}, ways  # slurmrestd passes it on to slurmctld in clear.
    assert cluster.drains() == {}
    cluster.install_slurm()
    env = "/etc/sunk/scripts/hooks.env"
    wait_for(
        "hooks without TLS", lambda: not [pod for pod in compute() if "https" in read(pod, "slurmd", env)]
    )
    cluster.await_idle()


def phase(cluster: Cluster, pod: str) -> str:
    """Return the phase of *pod*; nothing if it is not there."""
    return cluster.lab.kubectl("get", "pod", pod, "--ignore-not-found", "-o", "jsonpath={.status.phase}")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "clusterName: prod has the NodeSet slurm/slurm-cpu already"),
        ({"clusterName": "stage"}, "clusterName: the sunk release has no Slurm cluster stage"),
        (
            {"clusterName": "stage", "scheduler": {"name": "slurm-slurm"}},
            "slurm/slurm-scheduler serves slurm-slurm already",
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
        (
            {"clusterName": "stage", "nats": {"existingSecret": "x", "replicas": 3}},
            "nats.replicas: the sunk release keeps streams on 1 servers",
        ),
        (
            {"clusterName": "stage", "nats": {"existingSecret": "x"}, "sunk": {"lockKey": "a/b"}},
            "sunk.lockKey: the sunk release locks Nodes with the taint sunk.coreweave.com/lock",
        ),
    ],
    ids=[
        "cluster taken",
        "cluster unknown",
        "scheduler name taken",
        "no such storage class",
        "no sunk release",
        "more NATS servers",
        "another lock",
    ],
)
def test_what_the_cluster_has_already_or_not_at_all_is_refused_before_anything_is_made(
    cluster: Cluster, values: dict[str, Any], why: str
) -> None:
    assert why in cluster.refusal(**values)


def test_an_upgrade_that_cannot_work_is_refused_and_the_release_is_as_it_was(cluster: Cluster) -> None:
    before = cluster.helm.status("slurm")

    with pytest.raises(LabError, match=r"controller\.stateVolume\.size: the volume has 10Gi"):
        cluster.install_slurm(cluster.values() | {"controller": {"stateVolume": {"size": "20Gi"}}})

    assert cluster.helm.status("slurm") == before


def taken(cluster: Cluster, namespace: str, made: Objects) -> bool:
    """Return whether the API server would take every object of *made*, as it said."""
    # A Pod of its own needs its ServiceAccount to be there, and monitors the operator.
    known = [
        found
        for (kind, _), found in made.items()
        if kind != "Pod" and "monitoring.coreos.com" not in found["apiVersion"]
    ]
    how = ("--server-side", "--dry-run=server", "--force-conflicts", "--validate=strict")
    said = cluster.lab.kubectl(
        *("-n", namespace, "apply", *how, "-f", "-"),
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": known}),
    )
    return len(said.strip().splitlines()) == len(known)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_the_api_server_takes_every_object_of_every_example(cluster: Cluster, example: Path) -> None:
    # Of the one cluster that the sunk release knows, where it knows it.
    values = yaml.safe_load(example.read_text()) | {"clusterName": "prod"}

    made = render(helm.Chart.load(CHARTS / "slurm"), values, name="other", namespace=NAMESPACE)

    assert taken(cluster, NAMESPACE, made)


def test_the_api_server_takes_every_object_of_a_release_with_the_longest_name(cluster: Cluster) -> None:
    values = {
        "clusterName": "prod",
        "compute": {"nodes": {"7": {"gresGpu": "8"}}},
        "login": {"replicas": 11},
        "scheduler": {"name": "42"},
    }

    made = render(helm.Chart.load(CHARTS / "slurm"), values, name="a" * 53, namespace=NAMESPACE)

    assert taken(cluster, NAMESPACE, made)


def test_the_api_server_takes_every_object_of_the_sunk_release_with_three_servers(cluster: Cluster) -> None:
    values = sunk_values(replicas=2)
    values["nats"] |= {"replicas": 3, "subscribers": ["billing"]}

    made = render(helm.Chart.load(CHARTS / "sunk"), values, name="sunk", namespace=SUNK_NAMESPACE)

    assert taken(cluster, SUNK_NAMESPACE, made)


@on_request
def test_an_uninstall_fails_and_changes_nothing_while_a_node_runs_a_job(cluster: Cluster) -> None:
    cluster.install_slurm(cluster.values() | {"uninstall": {"waitSeconds": 5}})
    cluster.login("sbatch --parsable --job-name=long --output=/dev/null --wrap='sleep 600'")
    wait_for("the job to run", lambda: "RUNNING" in cluster.login("squeue -h -n long -o %T"))

    with pytest.raises(LabError, match="slurm-uninstall"):
        cluster.uninstall_slurm()

    (node,) = cluster.login("squeue -h -n long -o %N").split()
    told = cluster.kubectl("logs", "job/slurm-uninstall")
    assert f"{node}: runs jobs" in told
    assert cluster.login("squeue -h -n long -o %T").strip() == "RUNNING"
    cluster.login("scancel --name=long")
    cluster.helm.rollback("slurm", wait="watcher", timeout=900)  # It is to stay after all.
    cluster.await_idle()
    assert cluster.helm.status("slurm")["status"] == "deployed"


@on_request
def test_an_uninstall_that_is_killed_is_taken_up_again(cluster: Cluster) -> None:
    cluster.login("sbatch --parsable --job-name=long --output=/dev/null --wrap='sleep 600'")
    wait_for("the job to run", lambda: "RUNNING" in cluster.login("squeue -h -n long -o %T"))

    def pods() -> dict[str, str]:
        return {name: uid for name, uid in cluster.uids("pod").items() if name.startswith("slurm-uninstall-")}

    def are_empty() -> bool:
        return [one["spec"].get("replicas") for one in cluster.items("nodeset")] == [0]

    with ThreadPoolExecutor(1) as pool:
        uninstalled = pool.submit(cluster.uninstall_slurm)
        wait_for("the NodeSet to be made empty", are_empty)
        (uid,) = pods().values()
        (process,) = processes_of(uid, "python3")
        os.kill(process, signal.SIGKILL)
        wait_for("another Pod", lambda: len(pods()) > 1)
        cluster.login("scancel --name=long")
        uninstalled.result()

    assert cluster.items("nodeset") == []
    cluster.install_slurm()
    cluster.await_idle()


def test_uninstall_keeps_keys_state_and_accounting_and_a_new_release_takes_them_over(
    cluster: Cluster,
) -> None:
    cluster.login("timeout 220 srun -J remembered true")
    kept = cluster.secrets(), cluster.uids("persistentvolumeclaim")

    cluster.uninstall_slurm()

    assert (cluster.secrets(), cluster.uids("persistentvolumeclaim")) == kept
    wait_for("its Pods to be gone", lambda: cluster.items("pod") == [])
    assert cluster.items("nodeset") == []
    cluster.install_slurm()
    cluster.await_idle()
    assert (cluster.secrets(), cluster.uids("persistentvolumeclaim")) == kept
    assert "COMPLETED" in cluster.login("sacct -aXn --name=remembered -o state")
    cluster.login("timeout 220 srun -N2 true")


@on_request
def test_an_uninstall_that_is_to_happen_now_ends_the_jobs(cluster: Cluster) -> None:
    cluster.login("sbatch --parsable --output=/dev/null --wrap='sleep 600'")
    wait_for("the job to run", lambda: "R" in cluster.login("squeue -h -o %t"))
    cluster.kubectl("annotate", "nodesets", "--all", "sunk.coreweave.com/uninstall=now")

    cluster.uninstall_slurm()

    assert cluster.items("nodeset") == []
