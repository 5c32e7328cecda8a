"""What users, operators and outages have done to a cluster of both charts, on real kubelets and each Slurm.

`./task test:install -- -k hostile` tells all of it.
"""

import json
import os
import re
import signal
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from sunk_lab.config import from_environment
from sunk_lab.errors import GivenUpError, LabError
from sunk_lab.installation import Installation, install
from sunk_lab.kube.cgroups import processes_of
from sunk_lab.kube.images import PAUSE
from sunk_lab.processes import stopped, wait_for
from sunk_lab.reserved import reserved_lab
from sunk_lab.slurm.releases import RELEASES, SLURM_24_11

pytestmark = [pytest.mark.lab, pytest.mark.install, pytest.mark.timeout(1800)]
JOB: Final = "sunk.coreweave.com/job"
LOCK: Final = "sunk.coreweave.com/lock"
TENANT: Final = "--as=system:serviceaccount:default:tenant"
SCHEDULER: Final = "--as=system:serviceaccount:slurm:slurm-scheduler"
SPOOL: Final = "/var/spool/slurmd"
STATE: Final = "/var/spool/slurmctld/state"
MARK: Final = f"touch {SPOOL}/ran-$SLURM_JOB_ID"
AS_ADA: Final = "setpriv --reuid=2000 --regid=2000 --clear-groups"
DEADLINE_S: Final = 240
CPUS: Final = 16
"""Each node has, as it says: enough for all jobs of a scene."""
LIST_ERRORS: Final = ("look at all nodes: ", "list nodes: ")
"""How the syncer's log begins to say why a list of nodes failed."""
LONG_S: Final = 80
"""Longer than what Slurm signs lives by itself: a minute."""


class Cluster(Installation):
    """Both releases, with locks that may take four minutes, and what the scenes' people do."""

    def values(self) -> dict[str, Any]:
        values = super().values()
        values["slurmConfig"] = {"hookDeadline": DEADLINE_S}
        # It is to come back while every Node is cordoned.
        values["rest"] = values["rest"] | {"tolerations": [{"operator": "Exists"}]}
        values["compute"]["nodes"]["cpu"]["slurm"]["cpus"] = CPUS
        # Three nodes are read in lists before they are drained, as twenty are.
        values["syncer"] = values["syncer"] | {"settings": {"LIST_FROM": "1"}}
        return values

    def place(self, name: str, *args: str, **annotations: str) -> None:
        """Apply a Pod that Slurm is to place; without *args* it ends at once."""
        container = {
            "name": "main",
            "image": f"localhost/sunk/slurm:{self.slurm.version}",
            "args": list(args) or ["true"],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        }
        asked = {f"sunk.coreweave.com/{key.replace('_', '-')}": text for key, text in annotations.items()}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": asked},
            "spec": {
                "schedulerName": "slurm-slurm",
                "terminationGracePeriodSeconds": 1,
                "restartPolicy": "Never",
                "containers": [container],
            },
        }
        self.apply(pod)

    def stay_on(self, node: str, name: str, seconds: int) -> None:
        """Start an ordinary Pod on the Node *node* that takes *seconds* to leave it."""
        container = {
            "name": "main",
            "image": PAUSE,
            "lifecycle": {"preStop": {"sleep": {"seconds": seconds}}},
        }
        spec = {"nodeName": node, "terminationGracePeriodSeconds": seconds + 5, "containers": [container]}
        metadata = {"name": name, "namespace": "default"}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        wait_for(f"{name} to run", lambda: self.pod(name)["status"]["phase"] == "Running", 120)

    def pod(self, name: str) -> dict[str, Any]:
        """Return a Pod of users; Kubernetes' own schema is its type."""
        return json.loads(self.lab.kubectl("get", "pod", name, "-o", "json"))

    def phase(self, name: str) -> str:
        """Return a Pod's phase; nothing if it is not there."""
        template = ("--ignore-not-found", "-o", "jsonpath={.status.phase}")
        return self.lab.kubectl("get", "pod", name, *template)

    def job_of(self, pod: str) -> int:
        """Return the job that the annotation of *pod* names; 0 if none."""
        claim = self.pod(pod)["metadata"]["annotations"].get(JOB)
        return json.loads(claim)["job"] if claim else 0

    def sweep(self) -> None:
        """End and remove what the scenes' people made; all nodes are idle and unlocked afterwards."""
        self.lab.kubectl("delete", "pod", "--all", "--force", "--grace-period=0")
        self.lab.kubectl("uncordon", *self.nodes)
        self.login("squeue -h -r -o %i | xargs --no-run-if-empty scancel")
        operators = [node for node, reason in self.drains().items() if not reason.startswith("k8s: ")]
        for node in operators:
            self.login(f"scontrol update nodename={node} state=resume")
        self.await_idle()
        wait_for("all Nodes to be unlocked", lambda: not any(map(self.is_locked, self.nodes)), 120)

    def lock(self, node: str) -> str:
        """Return what the annotation says of the Node's lock."""
        shown = json.loads(self.lab.kubectl("get", "node", node, "-o", "json"))
        return str(shown["metadata"]["annotations"].get(LOCK, "false"))

    def is_locked(self, node: str) -> bool:
        """Return whether the Node *node* is locked, or to be."""
        return self.lock(node) != "false"

    def submit(self, *words: str, script: str = MARK) -> str:
        """Submit a job of ada's and return its id."""
        wrap = f"sbatch --parsable --mem=100 --output=/dev/null {' '.join(words)} --wrap='{script}'"
        return self.login(f"cd /tmp; {wrap}").strip()

    def state(self, job: str) -> str:
        """Return the state of *job*; nothing if Slurm has forgotten it."""
        try:
            return self.login(f"squeue -h -t all -j {job} -o %T").strip()
        except LabError:
            return ""

    def has_run(self, job: str, slurmd: str) -> bool:
        """Return whether the first line of *job* has run there."""
        told = self.kubectl("exec", slurmd, "--", "ls", SPOOL)
        return f"ran-{job}" in told.split()

    def look_on(self) -> None:
        """See that the scheduler has gone on to what came after: a Pod of now has run."""
        self.place("later")
        wait_for("a Pod that came later", lambda: self.phase("later") == "Succeeded", 180)
        self.lab.kubectl("delete", "pod", "later")


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: f"slurm {release.version}")
def cluster(request: pytest.FixtureRequest) -> Generator[Cluster]:
    """Both releases on three Nodes, which are compute Nodes too, with a tenant who may edit Pods."""
    with reserved_lab() as lab:
        made = Cluster(lab, nodes=("node1", "node2", "node3"), slurm=request.param)
        install(made, from_environment().cache, lambda _line: None)
        invite_tenant(made)
        yield made


@pytest.fixture(autouse=True)
def _swept(cluster: Cluster) -> Generator[None]:
    """Whatever a scene leaves is gone before the next."""
    yield
    cluster.sweep()


def invite_tenant(cluster: Cluster) -> None:
    """Let the tenant edit what is in the namespace default."""
    cluster.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "tenant", "namespace": "default"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": "default"}],
        }
    )


def test_probes_leave_no_trace_in_slurmds_log_and_a_slurmd_that_is_stopped_is_not_ready(
    cluster: Cluster,
) -> None:
    slurmd = cluster.slurmd_on("node1")

    def is_ready() -> str:
        template = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
        return cluster.kubectl("get", "pod", slurmd, "-o", template)

    uid = cluster.uids("pod")[slurmd]
    (process,) = processes_of(uid, "slurmd")
    assert is_ready() == "True"
    with stopped([process]):
        wait_for("the Pod not to be ready", lambda: is_ready() == "False", 60)
    wait_for("the Pod to be ready", lambda: is_ready() == "True", 60)  # After some probes.
    cluster.await_idle()

    assert "Zero Bytes" not in cluster.kubectl("logs", slurmd, "-c", "slurmd")


def test_a_node_list_that_grows_without_bound_keeps_nobody_elses_pod_waiting(cluster: Cluster) -> None:
    cluster.place("greedy", required_nodes="a" + "[1,1]" * 200)

    for name in ("other-1", "other-2"):
        cluster.place(name)
    for name in ("other-1", "other-2"):
        wait_for(f"{name} to have run", lambda name=name: cluster.phase(name) == "Succeeded", 180)

    told = cluster.pod("greedy")["status"]["conditions"]
    assert [one["message"] for one in told if "required-nodes" in one.get("message", "")]


def test_a_tenant_who_writes_another_job_on_a_pod_of_his_own_cancels_nothing(cluster: Cluster) -> None:
    cluster.place("walker")
    wait_for("the Pod to have run", lambda: cluster.phase("walker") == "Succeeded", 180)
    wait_for("its job to be over", lambda: not cluster.login("squeue -h").strip(), 120)
    victim = cluster.submit("--uid=ada", script="sleep 600")
    wait_for("ada's job to run", lambda: cluster.state(victim) == "RUNNING", 120)
    claim = json.loads(cluster.pod("walker")["metadata"]["annotations"][JOB])
    another = json.dumps(claim | {"job": int(victim)})
    annotate = ("annotate", "--overwrite", "pod", "walker")

    with pytest.raises(LabError, match=f"{JOB}: only the pod-scheduler writes this"):
        cluster.lab.kubectl(TENANT, *annotate, f"{JOB}={another}")
    cluster.lab.kubectl(SCHEDULER, *annotate, f"{JOB}={another}")  # As if there were no policy.
    cluster.lab.kubectl(TENANT, *annotate, "sunk.coreweave.com/comment=look again")
    cluster.look_on()
    unsigned = json.dumps(
        {key: text for key, text in (claim | {"job": int(victim)}).items() if key != "job_mark"}
    )
    cluster.lab.kubectl(SCHEDULER, *annotate, f"{JOB}={unsigned}")  # As earlier versions wrote it.
    cluster.lab.kubectl(TENANT, *annotate, "sunk.coreweave.com/comment=and again")
    cluster.look_on()
    cluster.lab.kubectl(TENANT, "delete", "pod", "walker")
    cluster.look_on()

    assert cluster.state(victim) == "RUNNING"


@contextmanager
def gone(cluster: Cluster) -> Generator[None]:
    """Have no slurmrestd meanwhile: all calls of it fail at once."""
    scale = ("scale", "deployment/slurm-rest")
    cluster.kubectl(*scale, "--replicas=0")
    try:
        wait_for("slurmrestd to be gone", lambda: not rests(cluster), 120)
        yield
    finally:
        cluster.kubectl(*scale, "--replicas=1")


@contextmanager
def hanging(cluster: Cluster) -> Generator[None]:
    """Have slurmrestd answer nothing meanwhile: a list takes its time to fail, and nodes wait for it."""
    (uid,) = rests(cluster)
    with stopped(processes_of(uid, "slurmrestd")):
        yield


def rests(cluster: Cluster) -> list[str]:
    """Return the uids of slurmrestd's Pods."""
    return [uid for name, uid in cluster.uids("pod").items() if name.startswith("slurm-rest-")]


@pytest.mark.parametrize("away", [gone, hanging], ids=["slurmrestd is gone", "slurmrestd hangs"])
def test_drains_that_an_operator_sets_while_slurmrestd_is_away_stay(
    cluster: Cluster, away: Callable[[Cluster], AbstractContextManager[None]]
) -> None:
    """A list of nodes fails meanwhile, and the one before shows the operator's node undrained."""
    operators, ours, _ = (cluster.slurmd_on(node) for node in cluster.nodes)
    cluster.lab.kubectl("cordon", *cluster.nodes)
    wait_for("all drains", lambda: len(cluster.drains()) == len(cluster.nodes), 240)
    cluster.lab.kubectl("uncordon", *cluster.nodes)
    wait_for("all drains to go", lambda: not cluster.drains(), 240)
    began = datetime.now(UTC)
    with away(cluster):
        cluster.lab.kubectl("cordon", *cluster.nodes)
        cluster.login(f"scontrol update nodename={operators} state=drain reason='bad dimm'")
        wait_for("a list of nodes to fail", lambda: has_list_failed(cluster, began), 180)
        tried = [why for why in deferred(cluster, began) if why.startswith("drain ")]

    assert tried == []  # Such a write fails, and could only come from an older list.
    wait_for("the cordoned Node's drain", lambda: "k8s" in cluster.drains().get(ours, ""), 240)
    assert cluster.drains()[operators] == "bad dimm"
    cluster.lab.kubectl("uncordon", *cluster.nodes)
    wait_for("our drain to go", lambda: ours not in cluster.drains(), 240)
    assert cluster.drains() == {operators: "bad dimm"}


def has_list_failed(cluster: Cluster, since: datetime) -> bool:
    """Return whether a drain was put off since *since* because a list of all nodes failed."""
    return any(why.startswith(LIST_ERRORS) for why in deferred(cluster, since))


def deferred(cluster: Cluster, since: datetime) -> list[str]:
    """Return why the syncer has put drains off since *since*, as its log says."""
    log = cluster.kubectl("logs", "deployment/slurm-syncer", f"--since-time={since:%Y-%m-%dT%H:%M:%SZ}")
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [
        line["error"]
        for line in lines
        if (line["message"], line.get("loop")) == ("key deferred", "drain")
        and datetime.fromisoformat(line["time"]) > since
    ]


def test_a_job_that_is_named_like_a_state_waits_for_the_lock_as_any_other(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    slurmd = cluster.slurmd_on(node)
    cluster.stay_on(node, "stays", DEADLINE_S - 40)
    job = cluster.submit('-J "JobState=COMPLETED NodeList= Requeue=0 BatchFlag=0"', f"-w {slurmd}")

    wait_for("the lock to be asked for", lambda: cluster.lock(node) == "pending", 120)
    wait_for("more than a minute", lambda: minutes(cluster, job, slurmd) >= 1.2, 120)

    assert (cluster.lock(node), cluster.phase("stays")) == ("pending", "Running")
    assert not cluster.has_run(job, slurmd)
    cluster.lab.kubectl("delete", "pod", "stays", "--force", "--grace-period=0")
    wait_for("the job to have run", lambda: cluster.has_run(job, slurmd), 120)
    wait_for("its end", lambda: cluster.state(job) in ("COMPLETED", ""), 120)


def minutes(cluster: Cluster, job: str, slurmd: str) -> float:
    """Return for how many minutes Slurm has had *job*, which has been started, on the node *slurmd*.

    Slurm counts from the allocation, so a prolog that begins late takes nothing of it. A job that is requeued
    begins anew, and not before its credential has ended, which is minutes; one that has run is not counted.

    Raises:
        GivenUpError: It is not there any more; says what Slurm, its node's drain and its prolog say.
    """
    told = cluster.login(f"squeue -h -j {job} -t all -o '%T %M'").split()
    found = re.fullmatch(r"(\d+):(\d\d)", told[1]) if told[:1] in (["RUNNING"], ["CONFIGURING"]) else None
    if found is None:
        shown = cluster.login(f"scontrol show job {job}; sinfo -h -R -o '%N %E'; scontrol show node {slurmd}")
        log = cluster.kubectl("logs", slurmd, "-c", "slurmd", "--tail=40")
        raise GivenUpError(f"job {job} is not on {slurmd} any more: {told}\n{shown}\n{log}")
    return int(found[1]) + int(found[2]) / 60


def test_jobs_and_pods_whose_lock_takes_longer_than_a_minute_run(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    slurmd = cluster.slurmd_on(node)
    cluster.stay_on(node, "slow", LONG_S)
    jobs = [cluster.submit(f"-w {slurmd}"), cluster.submit("--array=1-2", f"-w {slurmd}")]
    both = cluster.submit("-N2", f"-w {slurmd}")
    for name, command in (("srun", "echo waited-for"), ("salloc", "srun echo waited-for")):
        line = f"timeout 300 {name} -n1 --mem=100 -w {slurmd} {command}; echo $?"
        cluster.login(f"({line}) </dev/null >{waited(name)} 2>&1 &")
    cluster.place("placed", required_nodes=slurmd)

    wait_for("the lock to be asked for", lambda: cluster.lock(node) == "pending", 120)
    wait_for("all seven to wait for it", lambda: on_node(cluster, slurmd) == ["RUNNING"] * 7, 60)
    wait_for("the Pod to have gone", lambda: cluster.phase("slow") == "", LONG_S + 120)

    for name in ("srun", "salloc"):
        wait_for(
            f"{name}'s end",
            lambda name=name: cluster.login(f"cat {waited(name)}").split()[-1:] == ["0"],
            120,
        )
        assert "waited-for" in cluster.login(f"cat {waited(name)}")
    wait_for("the placed Pod to have run", lambda: cluster.phase("placed") == "Succeeded", 120)
    ids = ",".join([*jobs, both])

    def ends() -> list[str]:
        return cluster.login(f"sacct -XnP -j {ids} -o state").split()

    wait_for("accounting to have all four", lambda: ends() == ["COMPLETED"] * 4, 120)


def waited(name: str) -> str:
    """Return the file in the login Pod with what the command *name* said."""
    return f"/tmp/waited-{name}"  # noqa: S108 - in the login Pod


def on_node(cluster: Cluster, slurmd: str) -> list[str]:
    """Return the state of each job that Slurm has on the node *slurmd*."""
    return cluster.login(f"squeue -h -r -w {slurmd} -o %T").split()


def test_the_refusal_of_an_arrays_last_task_changes_no_other_task(cluster: Cluster) -> None:
    node, other, _ = (cluster.slurmd_on(name) for name in cluster.nodes)
    go = f"{SPOOL}/go"
    script = f"[ $SLURM_ARRAY_TASK_ID -lt 17 ] || while [ ! -e {go} ]; do sleep 0.2; done"
    cluster.stay_on(cluster.nodes[0], "stuck", 3600)
    array = cluster.submit("--array=0-19%2", f"-w {other}", script=script)
    tasks = f"squeue -h -r -j {array} -t all -o '%K %T'"

    def states() -> dict[str, str]:
        return dict(line.split() for line in cluster.login(tasks).splitlines())

    wait_for(
        "the last two but one", lambda: [states().get(task) for task in ("17", "18")] == ["RUNNING"] * 2, 400
    )
    last = f"{array}_19"
    # Alone in the array's own record it has the array's id, by which Slurm would take all tasks.
    assert cluster.login(f"squeue -h -j {last} -o %A").strip() == array
    cluster.login(
        f"scontrol update jobid={array} arraytaskthrottle=0; scontrol update jobid={last} reqnodelist={node}"
    )
    wait_for("the refusal", lambda: node in cluster.drains(), DEADLINE_S + 120)
    wait_for("the last task to be off the node", lambda: states()["19"] == "PENDING", 120)

    assert [states()[task] for task in ("17", "18")] == ["RUNNING"] * 2
    cluster.login(f"scancel {last}")
    cluster.kubectl("exec", other, "--", "touch", go)

    def ends() -> list[str]:
        told = cluster.login(f"sacct -XnP -j {array} -o jobid,state,restarts")
        return sorted(line.partition("_")[2] for line in told.splitlines())

    wanted = sorted(f"{task}|COMPLETED|0" for task in range(19))
    wait_for(
        "accounting to have 19 that ran once",
        lambda: [one for one in ends() if not one.startswith("19")] == wanted,
        120,
    )
    cluster.kubectl("exec", other, "--", "rm", go)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Pods whose jobs are lost: those that run on one node, and those that wait for one that is drained."""

    kept: list[str]
    waiting: list[str]
    jobs: list[int]
    """The jobs that all of them had."""


def test_pods_outlive_the_loss_of_their_jobs_and_touch_no_strangers_job_that_gets_a_lost_number(
    cluster: Cluster,
) -> None:
    home, abroad, away = (cluster.slurmd_on(node) for node in cluster.nodes)
    loss = place_what_is_lost(cluster, abroad, away)
    before = {name: cluster.pod(name) for name in loss.kept}

    lose_jobs(cluster)
    jobs = take_numbers(cluster, loss.jobs, abroad)
    assert len(jobs) >= len(loss.jobs)
    assert len(set(jobs) & set(loss.jobs)) > len(loss.jobs) / 2
    wait_for("ada's jobs to run", lambda: are_held_or_running(cluster, jobs), 300)
    strangers = shown(cluster, jobs)

    def have_jobs() -> bool:
        told = cluster.login("squeue -h -u sunk -o '%A %T %N'").splitlines()
        ours = [f"{cluster.job_of(name)} RUNNING {home}" for name in loss.kept]
        return len(told) == len(loss.jobs) and set(ours) < {line.strip() for line in told}

    wait_for("all Pods to have a job, those that run on their node", have_jobs, 300)
    after = {name: cluster.pod(name) for name in loss.kept}
    for name, pod in after.items():
        assert pod["metadata"]["uid"] == before[name]["metadata"]["uid"]
        assert pod["status"]["phase"] == "Running"
        assert "deletionTimestamp" not in pod["metadata"]
    assert not {cluster.job_of(name) for name in loss.kept} & set(jobs)
    assert not any("nodeName" in cluster.pod(name)["spec"] for name in loss.waiting)
    assert shown(cluster, jobs) == strangers

    cluster.lab.kubectl("delete", "pod", *loss.kept)
    cluster.login(f"scontrol update nodename={away} state=resume")
    for name in loss.waiting:
        wait_for(f"{name} to have run", lambda name=name: cluster.phase(name) == "Succeeded", 240)
    assert not {cluster.job_of(name) for name in loss.waiting} & set(jobs)
    cluster.lab.kubectl("delete", "pod", *loss.waiting)
    cluster.look_on()
    assert shown(cluster, jobs) == strangers


def place_what_is_lost(cluster: Cluster, abroad: str, away: str) -> Loss:
    """Drain two nodes, place six Pods that run on the other, and two that wait for *away*."""
    kept, waiting = [f"kept-{index}" for index in range(6)], ["waits-1", "waits-2"]
    keep_older_jobs(cluster)
    for _ in range(len(kept) + len(waiting)):  # So that the first numbers anew are those of no Pod.
        cluster.login(f"scancel {cluster.submit('--hold')}")
    cluster.login(f"scontrol update nodename={abroad},{away} state=drain reason='bad fan'")
    for name in kept:
        cluster.place(name, "sleep", "3600")
    for name in kept:
        wait_for(f"{name} to run", lambda name=name: cluster.phase(name) == "Running", 240)
    for name in waiting:
        cluster.place(name, required_nodes=away)

    def jobs(*states: str) -> list[int]:
        return [int(job) for job in cluster.login(f"squeue -h -u sunk -t {','.join(states)} -o %A").split()]

    wait_for("the others to wait", lambda: len(jobs("pending")) == len(waiting), 120)
    return Loss(kept=kept, waiting=waiting, jobs=jobs("running", "pending"))


def take_numbers(cluster: Cluster, lost: list[int], node: str) -> list[int]:
    """Resume *node*, and have ada submit jobs until one has the last of the numbers *lost*; return them.

    Of those with such a number every other one runs there; the others are held.
    """
    submit = f"sbatch --parsable --uid=ada --mem=10 --output=/dev/null -w {node} --wrap='sleep 3600'"
    script = f"""cd /tmp; until scontrol ping | grep -q UP; do sleep 0.1; done
    scontrol update nodename={node} state=resume
    hold=--hold
    until job=$({submit} $hold) && echo "$job" && [ "$job" -ge {max(lost)} ]; do
        if [ "$hold" ] && [ "$job" -ge {min(lost) - 1} ]; then hold=; else hold=--hold; fi
    done"""
    return [int(word) for word in cluster.login(script).split()]


def are_held_or_running(cluster: Cluster, jobs: list[int]) -> bool:
    """Return whether those of *jobs* that are not held run."""
    ids = ",".join(map(str, jobs))
    told = cluster.login(f"squeue -h -j {ids} -o '%T %r'").splitlines()
    assert len(told) == len(jobs)
    return {line.strip() for line in told} == {"RUNNING None", "PENDING JobHeldUser"}


def shown(cluster: Cluster, jobs: list[int]) -> list[str]:
    """Return all that Slurm says of *jobs*, but for what changes of itself."""
    script = "; ".join(f"scontrol show -o job {job}" for job in jobs)
    return [re.sub(r" (RunTime|LastSchedEval)=\S+", "", line) for line in cluster.login(script).splitlines()]


def lose_jobs(cluster: Cluster) -> None:
    """Have slurmctld die, and start without the jobs of Pods; it gives their numbers anew.

    24.11 starts without a file of its jobs. 26.05 does not: it gets the one that `keep_older_jobs` kept.
    """
    (process,) = processes_of(cluster.uids("pod")["slurm-controller-0"], "slurmctld")
    os.kill(process, signal.SIGSTOP)  # It would write them once more.
    run = f"cd {STATE}; rm -f job_state* last_job_id"
    in_controller(cluster, run if cluster.slurm is SLURM_24_11 else f"{run}; cp -p older job_state")
    os.kill(process, signal.SIGKILL)


def keep_older_jobs(cluster: Cluster) -> None:
    """Keep a copy of the file of jobs, as a backup of the volume does."""
    wait_for("a file of jobs", lambda: "job_state" in in_controller(cluster, f"ls {STATE}").split(), 120)
    in_controller(cluster, f"cd {STATE}; cp -p job_state older")


def in_controller(cluster: Cluster, command: str) -> str:
    """Return what *command* prints beside slurmctld."""
    return cluster.kubectl("exec", "slurm-controller-0", "-c", "slurmctld", "--", "bash", "-c", command)
