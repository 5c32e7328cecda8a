"""Locks that fail, on the whole stack: real kubelets, a real Slurm, our scripts as slurmd starts them."""

import re
import time
from collections.abc import Generator
from threading import Event, Thread
from typing import Self

import pytest

from sunk_lab.errors import LabError
from sunk_lab.stack.raw import Object
from sunk_lab.story import manifests
from sunk_lab.story.deeds import fresh
from sunk_lab.story.observe import ComputeNode, until
from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import JOB_SCRIPT, SPOOL
from sunk_lab.story.witness import Witness

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

NEVER = "test.example/never"
SHORT_JOB = f"""#!/bin/bash
date +%s.%N > {SPOOL}/began-$SLURM_JOB_ID
sleep 1
date +%s.%N > {SPOOL}/ended-$SLURM_JOB_ID
"""
STAYS_S = 8
"""For how long a lock is seen to stay: one that nobody held would go after 5 s."""
WAVES = 3
IN_A_WAVE = 7


def kept_pod(name: str, kube_node: str) -> Object:
    """Return a Pod that a finalizer keeps, and whose container takes ten minutes to end."""
    container = {
        "name": "main",
        "image": manifests.PAUSE,
        "lifecycle": {"preStop": {"sleep": {"seconds": 600}}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": manifests.NAMESPACE, "finalizers": [NEVER]},
        "spec": {"nodeName": kube_node, "terminationGracePeriodSeconds": 600, "containers": [container]},
    }


@pytest.fixture
def pod(stage: Stage) -> Generator[str]:
    """A Pod that does not leave the first node, until the test ends."""
    kube, name = stage.deeds.kube, fresh("kept")
    kube.create(kept_pod(name, stage.nodes[0].kube_node))
    until(f"{name} running", lambda: phase(stage, name) == "Running", lambda: phase(stage, name))
    yield name
    if kube.get("Pod", name) is not None:
        let_go(stage, name)
    until(f"{name} gone", lambda: kube.get("Pod", name) is None, lambda: phase(stage, name))
    stage.deeds.unlocked(stage.nodes[0])
    stage.deeds.undrained(stage.nodes[0])


def phase(stage: Stage, name: str) -> str:
    found = stage.deeds.kube.get("Pod", name)
    return str(found["status"].get("phase")) if found else ""


def let_go(stage: Stage, name: str) -> None:
    """Have the Pod go at once."""
    stage.deeds.kube.patch("Pod", name, {"metadata": {"finalizers": None}})
    stage.stack.kubectl(
        "delete", "pod", name, "--namespace", manifests.NAMESPACE, "--force", "--grace-period=0"
    )


@pytest.mark.nightly
def test_a_pod_that_never_goes_keeps_the_job_off_its_node_which_is_drained_with_its_name_until_it_is_gone(
    stage: Stage, pod: str
) -> None:
    do, node = stage.deeds, stage.nodes[0]
    job = do.slurm.submit(JOB_SCRIPT, node=node.node, name="kept-off")
    try:
        do.job_reaches(job, "RUNNING")
        until(
            f"{node.node} drained for {pod}",
            lambda: f"{manifests.NAMESPACE}/{pod}" in (do.eyes.drain_reason(node.node) or ""),
            lambda: do.eyes.drain_reason(node.node),
            patience_s=180,
        )
        reason = do.eyes.drain_reason(node.node) or ""
        do.job_reaches(job, "PENDING")
        has_run = stage.in_slurmd(node, "ls", SPOOL).split()

        stays_drained(stage, node, for_s=60)  # The job has left the node, and the Pod has not.
        let_go(stage, pod)
        do.undrained(node)
    finally:
        do.slurm.cancel(job)

    assert reason.startswith("k8s: prolog pre-hook failed: ")
    assert "(sunk:verify-undrain)" in reason
    assert "grace period of 600 s" in reason
    assert f"started-{job}" not in has_run


def stays_drained(stage: Stage, node: ComputeNode, *, for_s: float) -> None:
    """See that the node is drained for that long."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        assert stage.deeds.eyes.drain_reason(node.node)
        time.sleep(1)


def test_an_srun_that_waits_for_a_pod_says_at_its_terminal_which_node_that_leaves_and_by_when(
    stage: Stage, request: pytest.FixtureRequest
) -> None:
    do, name, (node, terminal, *_) = stage.deeds, fresh("leaves"), stage.nodes
    do.kube.create(manifests.slow_pod(name, node.kube_node, leaves_after_s=199))
    until(f"{name} running", lambda: phase(stage, name) == "Running", lambda: phase(stage, name))
    file = f"{SPOOL}/{name}"
    line = f"(srun -w {node.node} echo ran; echo ended=$?) >{file} 2>&1 </dev/null &"

    def shown() -> list[str]:
        return stage.in_slurmd(terminal, "cat", file).splitlines()

    began = time.monotonic()
    stage.in_slurmd(terminal, "bash", "-c", line)
    said = rf"srun: job \d+ waits: 1 Pod has to leave node {node.node}, the last by \d\d:\d\d:\d\d UTC"
    until("what it waits for", lambda: any(re.fullmatch(said, one) for one in shown()), shown)
    # A JUnit file of the run has it (--junitxml).
    request.node.user_properties.append(("seconds until srun says why it waits", time.monotonic() - began))
    # It is said while the job waits: the Pod is still there, and the Node is not locked yet.
    assert phase(stage, name) == "Running"
    do.locked(node, "pending")
    assert "ran" not in shown()
    let_go(stage, name)
    until("its end", lambda: {"ran", "ended=0"} <= {*shown()}, shown)
    do.unlocked(node)


def tolerating_daemonset(name: str, kube_node: str) -> Object:
    """Return a DaemonSet whose Pod stays on a locked Node."""
    made = manifests.deployment(name, kube_node)
    made["kind"] = "DaemonSet"
    del made["spec"]["replicas"]
    made["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    return made


def first_line(stage: Stage, node: ComputeNode, job: int) -> float:
    """Return when the job's first line ran, as soon as it has."""
    until(f"first line of job {job}", lambda: job in times(stage, node, "started"), lambda: job)
    return times(stage, node, "started")[job]


def end_job(stage: Stage, node: ComputeNode, job: int) -> None:
    """Have the job end well, and wait until it has left."""
    stage.in_slurmd(node, "touch", f"{SPOOL}/end-{job}")
    stage.deeds.job_left(job)


@pytest.fixture
def running(stage: Stage) -> Generator[int]:
    """A job that runs on the first node, whose lock it holds."""
    do, node = stage.deeds, stage.nodes[0]
    job = do.slurm.submit(JOB_SCRIPT, node=node.node, name="holds")
    try:
        first_line(stage, node, job)
        yield job
    finally:
        do.slurm.cancel(job)
        do.job_left(job)
        do.unlocked(node)


@pytest.mark.nightly
def test_a_pod_that_takes_its_grace_period_of_20_s_holds_the_job_up_and_a_daemonset_that_tolerates_stays(
    stage: Stage,
) -> None:
    do, node, name, slow = stage.deeds, stage.nodes[0], fresh("agent"), fresh("slow")
    do.kube.apply(tolerating_daemonset(name, node.kube_node))
    try:
        agent = do.deployment_runs(name)
        do.kube.create(manifests.slow_pod(slow, node.kube_node, leaves_after_s=19))
        until(f"{slow} running", lambda: phase(stage, slow) == "Running", lambda: phase(stage, slow))
        with Witness(lambda: phase(stage, slow) == "Running") as witness:
            job = do.slurm.submit(JOB_SCRIPT, node=node.node, name="held-up")
            do.locked(node, "pending")
            started = first_line(stage, node, job)
        stays = do.kube.get("Pod", agent) or {}
        end_job(stage, node, job)
        do.unlocked(node)
    finally:
        do.kube.delete("DaemonSet", name, manifests.NAMESPACE)
    until("the agent gone", lambda: not do.eyes.pods("default", f"app={name}"), lambda: name)

    assert witness.last_seen < started
    assert stays["status"]["phase"] == "Running"
    assert "deletionTimestamp" not in stays["metadata"]


def test_of_two_jobs_on_one_node_the_last_one_to_leave_unlocks_it(stage: Stage, running: int) -> None:
    do, node = stage.deeds, stage.nodes[0]
    second = do.slurm.submit(JOB_SCRIPT, node=node.node, name="shares")
    first_line(stage, node, second)
    end_job(stage, node, second)

    stays_locked(stage, node)
    assert do.eyes.job_words(running) == {"RUNNING"}


def test_a_suspended_job_keeps_its_lock(stage: Stage, running: int) -> None:
    node = stage.nodes[0]
    stage.stack.slurm_command("scontrol", "suspend", str(running))
    stage.deeds.job_reaches(running, "SUSPENDED")
    try:
        stays_locked(stage, node)
    finally:
        stage.stack.slurm_command("scontrol", "resume", str(running))


@pytest.mark.nightly
def test_a_lock_that_is_asked_for_while_nobody_tells_of_slurm_is_granted_and_kept(stage: Stage) -> None:
    do, node = stage.deeds, stage.nodes[0]
    stage.stack.services.kill("syncer")
    job = do.slurm.submit(JOB_SCRIPT, node=node.node, name="unseen")
    try:
        first_line(stage, node, job)
        stays_locked(stage, node)
        stage.stack.services.start_all()
        stays_locked(stage, node)
        end_job(stage, node, job)
        do.unlocked(node)
    finally:
        stage.stack.services.start_all()
        do.slurm.cancel(job)


def stays_locked(stage: Stage, node: ComputeNode) -> None:
    """See that the node is locked, taint included, and stays so."""
    end = time.monotonic() + STAYS_S
    while time.monotonic() < end:
        assert stage.deeds.eyes.lock(node) == ("locked", True)
        time.sleep(0.2)


class Recorder:
    """Writes down which Nodes a Pod of *name* runs on, all the time, as the API server has it."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage, self._name = stage, name
        self._end = Event()
        self._thread = Thread(target=self._record)
        self.seen: list[tuple[float, float, frozenset[str]]] = []
        """When it was asked, when it was answered, and what was said."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _record(self) -> None:
        while not self._end.wait(0.05):
            asked = time.time()
            try:
                pods = self._stage.deeds.eyes.pods(manifests.NAMESPACE, f"app={self._name}")
            except (LabError, OSError):
                continue  # A question that failed proves nothing either way.
            running = frozenset(str(pod["spec"]["nodeName"]) for pod in pods if has_container(pod))
            self.seen.append((asked, time.time(), running))

    def overlaps(self, kube_node: str, began: float, ended: float) -> int:
        """Return how often a Pod was seen on the Node within that time."""
        return sum(
            kube_node in running and began <= asked and answered <= ended
            for asked, answered, running in self.seen
        )


def has_container(pod: Object) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return any("running" in status.get("state", {}) for status in statuses)


def spread(name: str, nodes: list[ComputeNode]) -> Object:
    """Return a Deployment with a Pod on each of *nodes*."""
    made = manifests.deployment(name, "")
    made["spec"]["replicas"] = len(nodes)
    spec = made["spec"]["template"]["spec"]
    del spec["nodeSelector"]
    names = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.kube_node for node in nodes]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [names]}]}
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}
    spec["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]},
    }
    return made


def times(stage: Stage, node: ComputeNode, which: str) -> dict[int, float]:
    """Return when each job of the node began or ended."""
    line = f"cd {SPOOL}; for f in {which}-*; do [ -s $f ] && echo ${{f#*-}} $(cat $f); done; true"
    told = stage.in_slurmd(node, "bash", "-c", line).split()
    return dict(zip(map(int, told[::2]), map(float, told[1::2]), strict=True))


@pytest.mark.nightly
def test_no_job_of_an_array_ever_runs_beside_pods_that_come_back_in_between(stage: Stage) -> None:
    do, name = stage.deeds, fresh("between")
    nodes = stage.nodes[:3]
    do.kube.apply(spread(name, nodes))
    jobs: set[int] = set()

    def are_back() -> bool:
        everywhere = frozenset(node.kube_node for node in nodes)
        return bool(recorder.seen) and recorder.seen[-1][2] == everywhere

    def ended() -> dict[int, float]:
        return {job: at for node in nodes for job, at in times(stage, node, "ended").items()}

    before = set(ended())
    try:
        with Recorder(stage, name) as recorder:
            for wave in range(1, WAVES + 1):
                until("the Pods back", are_back, lambda: recorder.seen[-1:], patience_s=180)
                line = f"cat > /tmp/short.sh <<'E'\n{SHORT_JOB}E\n"
                array = f"sbatch --exclusive --array=1-{IN_A_WAVE} -D / -o /dev/null /tmp/short.sh"
                stage.stack.slurm_command("bash", "-c", f"{line}{array}")
                wanted = len(before) + wave * IN_A_WAVE
                until(
                    f"{wanted} jobs over", lambda wanted=wanted: len(ended()) >= wanted, ended, patience_s=240
                )
            jobs = set(ended()) - before
    finally:
        do.kube.delete("Deployment", name, manifests.NAMESPACE)
    until("the Pods gone", lambda: not do.eyes.pods("default", f"app={name}"), lambda: name)
    beside = {
        job: recorder.overlaps(node.kube_node, began, times(stage, node, "ended")[job])
        for node in nodes
        for job, began in times(stage, node, "began").items()
        if job in jobs
    }
    for node in nodes:
        do.unlocked(node)

    assert len(beside) == WAVES * IN_A_WAVE
    assert not any(beside.values()), beside
