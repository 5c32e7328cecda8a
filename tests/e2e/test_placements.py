# pyright: reportUnknownMemberType=false
"""Pods through Slurm on real kubelets, when the bus forgets, a kubelet refuses, or a crowd comes and goes."""

import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import nats
import pytest
from nats.js.errors import NoKeysError

from sunk_events import subjects
from sunk_events.placements import PlacementState
from sunk_lab.kube.cgroups import processes_of
from sunk_lab.processes import stopped
from sunk_lab.stack.raw import Object, dig_text
from sunk_lab.stack.slurmapi import job_state
from sunk_lab.stack.stack import CLUSTER
from sunk_lab.stack.users import PEOPLE
from sunk_lab.story import manifests
from sunk_lab.story.deeds import Deeds, fresh
from sunk_lab.story.observe import is_running, until
from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import JOB_SCRIPT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]

BUCKET = subjects.bucket(CLUSTER, PlacementState)
OVER = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL"}
SLURM_CPUS = 8
"""Of each of the lab's nodes, in Slurm's eyes: more than the machine has."""


@pytest.fixture
def name(stage: Stage) -> Generator[str]:
    """A name and label for what the test makes, all of which goes with it."""
    name = fresh("placed")
    yield name
    for kind in ("Deployment", "Job"):
        if stage.deeds.kube.get(kind, name) is not None:
            stage.deeds.kube.delete(kind, name)
    stage.stack.kubectl("delete", "pods", "-l", f"app={name}", "--wait=false")
    until("its Pods gone", lambda: not pods(stage, name), lambda: len(pods(stage, name)))
    for node in stage.nodes:
        stage.deeds.unlocked(node)


def pods(stage: Stage, name: str) -> list[Object]:
    return stage.deeds.eyes.pods(manifests.NAMESPACE, f"app={name}")


def placed(name: str, label: str, *, cpu: str = "1") -> Object:
    pod = manifests.placed_pod(name, cpu=cpu)
    return {**pod, "metadata": {**pod["metadata"], "labels": {"app": label}}}


async def lose(url: str, uid: str) -> None:
    """Purge the placement of the Pod *uid*, and return when it is stored anew."""
    subject = subjects.key_subject(BUCKET, uid)
    client = await nats.connect(url)
    try:
        heard = await client.subscribe(subject)
        await client.flush()
        await client.publish(subject, b"", headers={"KV-Operation": "PURGE", "Nats-Rollup": "sub"})
        while not (await heard.next_msg(timeout=60)).data:
            pass
    finally:
        await client.close()


def test_a_placement_that_the_bus_has_lost_ends_neither_pod_nor_job(stage: Stage, name: str) -> None:
    do = stage.deeds
    do.kube.create(placed(name, name))
    do.pod_runs(name)
    job, uid = do.placeholder_of(name), dig_text(do.kube.get("Pod", name), "metadata", "uid")

    anyio.run(lose, stage.stack.nats_url_of(PEOPLE), uid)
    time.sleep(3)  # Longer than a script needs that was told to end.

    found = do.kube.get("Pod", name)
    assert is_running(found)
    assert dig_text(found, "metadata", "deletionTimestamp") == ""
    assert do.eyes.job_words(job) == {"RUNNING"}
    do.kube.delete("Pod", name)
    do.pod_gone(name)
    do.job_left(job)


def test_a_pod_that_a_kubelet_refuses_is_followed_by_one_on_another_node(stage: Stage, name: str) -> None:
    do = stage.deeds
    nodes = [do.kube.get("Node", node.kube_node) for node in stage.nodes]
    if any(int(dig_text(node, "status", "allocatable", "cpu")) > SLURM_CPUS for node in nodes):
        pytest.skip("this machine's kubelets take every Pod that Slurm does")
    pod = placed(name, name, cpu=str(SLURM_CPUS))
    template = {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}
    do.kube.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": manifests.NAMESPACE},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template},
        }
    )

    def refused() -> list[Object]:
        return [pod for pod in pods(stage, name) if dig_text(pod, "status", "phase") == "Failed"]

    def shown() -> object:
        return [do.story_of(pod["metadata"]["name"]) for pod in pods(stage, name)]

    everywhere = {node.kube_node for node in stage.nodes}
    until(
        "every kubelet has refused one",
        lambda: {dig_text(pod, "spec", "nodeName") for pod in refused()} == everywhere,
        shown,
    )
    for pod in refused():
        until("it says so", partial(has_said, stage, pod, "KubeletRefused"), shown)
    waits = {"NoNodeFits", "KubeletRefuses"}  # Nodes are left out, or refused too many.
    until("the next waits", lambda: any(said(stage, pod) & waits for pod in pods(stage, name)), shown)


def said(stage: Stage, pod: Object) -> set[str]:
    about = f"involvedObject.name={pod['metadata']['name']}"
    found = stage.deeds.kube.list("Event", manifests.NAMESPACE, fieldSelector=about)
    return {str(event["reason"]) for event in found}


def has_said(stage: Stage, pod: Object, reason: str) -> bool:
    return reason in said(stage, pod)


async def stored(url: str) -> set[str]:
    """Return the uids of all Pods that have a placement."""
    client = await nats.connect(url)
    try:
        bucket = await client.jetstream().key_value(BUCKET.removeprefix("KV_"))
        return set(await bucket.keys())
    except NoKeysError:
        return set()
    finally:
        await client.close()


def test_a_pod_whose_object_a_finalizer_keeps_keeps_neither_its_job_nor_its_node(
    stage: Stage, name: str
) -> None:
    do = stage.deeds
    pod = placed(name, name)
    pod["metadata"]["finalizers"] = ["test.example/keeps"]
    uid = dig_text(do.kube.create(pod), "metadata", "uid")
    try:
        do.pod_runs(name)
        job, bound = do.placeholder_of(name), do.node_of(name)
        node = next(one.node for one in stage.nodes if one.kube_node == bound)
        do.slurm.cancel(job)
        do.job_left(job)
        people = stage.stack.nats_url_of(PEOPLE)
        until("its placement gone", lambda: uid not in anyio.run(stored, people), lambda: do.story_of(name))

        kept = do.kube.get("Pod", name)
        assert dig_text(kept, "metadata", "deletionTimestamp")
        assert dig_text(kept, "status", "phase") in {"Succeeded", "Failed"}
        until(f"{node} not drained", lambda: not do.eyes.drain_reason(node), lambda: do.story_of(name))
    finally:
        do.kube.patch("Pod", name, {"metadata": {"finalizers": None}})
    do.pod_gone(name)


@contextmanager
def unkillable(stage: Stage, name: str) -> Generator[None]:
    """Have nobody be able to end the containers of the Pod *name*: who does it for the kubelet is stopped."""
    processes = processes_of(dig_text(stage.deeds.kube.get("Pod", name), "metadata", "uid"))
    shims = {int(Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[1]) for one in processes}
    with stopped(shims):
        yield


def test_a_pod_that_outlives_kill_wait_has_its_node_drained_until_it_is_gone(stage: Stage, name: str) -> None:
    do = stage.deeds
    do.kube.create(placed(name, name))
    do.pod_runs(name)
    job, bound = do.placeholder_of(name), do.node_of(name)
    node = next(one for one in stage.nodes if one.kube_node == bound)
    with unkillable(stage, name):
        do.slurm.cancel(job)
        do.drained(node, "k8s: pod deletion timeout")
        waits = do.slurm.submit(JOB_SCRIPT, node=node.node, name="waits")
        until("it waits for the node", lambda: is_kept_off(do, waits), lambda: do.slurm.job(waits))

        assert "COMPLETING" in do.eyes.job_words(job)
        assert dig_text(do.kube.get("Pod", name), "status", "phase") == "Running"
        assert do.eyes.job_words(waits) == {"PENDING"}
    do.pod_gone(name)
    do.job_left(job)
    do.undrained(node)
    do.job_reaches(waits, "RUNNING")
    do.slurm.cancel(waits)
    do.job_left(waits)


def is_kept_off(do: Deeds, job: int) -> bool:
    """Whether Slurm says that it has looked at *job*, and that its node takes none."""
    return "ReqNodeNotAvail" in str((do.slurm.job(job) or {}).get("state_reason"))


def owned(kind: str, name: str) -> Object:
    """Return a Deployment or a Job of one Pod that Slurm places."""
    pod = placed(name, name)
    template = {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}
    meta = {"name": name, "namespace": manifests.NAMESPACE}
    if kind == "Job":
        pod["spec"]["restartPolicy"] = "Never"
        return {"apiVersion": "batch/v1", "kind": kind, "metadata": meta, "spec": {"template": template}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}


@pytest.mark.parametrize(("kind", "controller"), [("Deployment", "ReplicaSet"), ("Job", "Job")])
def test_a_cancelled_job_is_told_on_its_pod_and_on_what_made_the_pod_before_the_pod_is_deleted(
    stage: Stage, name: str, kind: str, controller: str
) -> None:
    do, told = stage.deeds, dict[str, Object]()
    do.kube.create(owned(kind, name))
    wanted, its_name, uid, job = set[str](), "", "", 0
    for _ in range(3):  # A Pod waits two seconds for its Events, and not for an API server that takes longer.
        until("a Pod", lambda: len(pods(stage, name)) == 1, lambda: pods(stage, name))
        (pod,) = pods(stage, name)
        its_name, uid = dig_text(pod, "metadata", "name"), dig_text(pod, "metadata", "uid")
        (owner,) = pod["metadata"]["ownerReferences"]
        do.pod_runs(its_name)
        job = do.placeholder_of(its_name)
        do.slurm.cancel(job)
        do.pod_gone(its_name)
        ends = do.kube.list("Event", manifests.NAMESPACE, fieldSelector="reason=PodEnds")
        wanted = {uid, owner["uid"]}
        told = {about: event for event in ends if (about := event["involvedObject"]["uid"]) in wanted}
        if told.keys() == wanted:
            break

    assert {event["involvedObject"]["kind"] for event in told.values()} == {"Pod", controller}
    cause = f"Pod {manifests.NAMESPACE}/{its_name} ends: job {job} was cancelled (scancel): it is CANCELLED"
    for event in told.values():
        assert event["message"] == cause
        when = {
            "resourceVersion": dig_text(event, "metadata", "resourceVersion"),
            "resourceVersionMatch": "Exact",
        }
        about = f"metadata.name={its_name}"
        (then,) = do.kube.list("Pod", manifests.NAMESPACE, fieldSelector=about, **when)
        assert dig_text(then, "metadata", "uid") == uid
        assert dig_text(then, "metadata", "deletionTimestamp") == ""


@pytest.mark.parametrize("crowd", [50, pytest.param(500, marks=pytest.mark.nightly)])
def test_a_crowd_of_pods_that_comes_and_goes_leaves_nothing_behind(
    stage: Stage, name: str, crowd: int
) -> None:
    do = stage.deeds
    names = [f"{name}-{index}" for index in range(crowd)]
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(do.kube.create, [placed(one, name, cpu="1") for one in names]))
    uids = {dig_text(pod, "metadata", "uid") for pod in made}
    stage.stack.kubectl("delete", "pods", "-l", f"app={name}", "--wait=false")

    def alive() -> list[Object]:
        return [
            job
            for job in do.slurm.jobs()
            if str(job["name"]).startswith(f"default/{name}-") and not job_state(job) & OVER
        ]

    def is_over() -> bool:
        url = stage.stack.nats_url_of(PEOPLE)
        return not pods(stage, name) and not alive() and not uids & anyio.run(stored, url)

    def shown() -> object:
        return len(pods(stage, name)), [job["name"] for job in alive()][:9]

    until("no Pod, job or placement left", is_over, shown, patience_s=240)
