"""JobSets and PodGroups on real kubelets: the Pods of several Jobs are one Slurm job, from start to end.

The test does what JobSet's controller does: it makes the Jobs, with its labels and annotations on them and
on their Pods, and makes them anew when one has failed. All objects are real.

Source: JobSet, `labelAndAnnotateObject` of its controller.
"""

import hashlib
from collections.abc import Generator
from functools import partial
from typing import Final

import pytest

from sunk_lab.config import from_environment
from sunk_lab.stack.kubeapi import condition
from sunk_lab.stack.raw import Object, dig, dig_list, dig_text
from sunk_lab.stack.stack import Stack
from sunk_lab.story import manifests
from sunk_lab.story.deeds import fresh
from sunk_lab.story.observe import is_running, until
from sunk_lab.story.stage import Stage
from sunk_pod_scheduler.adapters.workload_client import JOB_SETS, POD_GROUPS
from sunk_pod_scheduler.testing.builders import definition

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400), pytest.mark.usefixtures("known")]

PREFIX: Final = "sunk.coreweave.com/"
JOBSET: Final = "jobset.sigs.k8s.io/"
POD_GROUP: Final = "scheduling.x-k8s.io/pod-group"
PROGRAM: Final = """
echo -n "$RANK of $SIZE, led by $LEADER, on $NODES" >/dev/termination-log
until [ -e /tmp/end ]; do sleep 0.1; done
exit "$(</tmp/end)"
"""
TOLD: Final = ("rank", "size", "leader", "nodes")


@pytest.fixture(scope="module")
def known(stack: Stack) -> Generator[None]:
    """The API server knows JobSets and PodGroups."""
    definitions = [definition(resource) for resource in (JOB_SETS, POD_GROUPS)]
    for one in definitions:
        stack.kube.apply(one)
    yield
    for one in definitions:
        stack.kube.delete("CustomResourceDefinition", one["metadata"]["name"])


@pytest.fixture
def name(stage: Stage) -> Generator[str]:
    """A name for what the test makes, all of which goes with it."""
    name = fresh("set")
    yield name
    stage.stack.kubectl("delete", "jobs", "-l", f"app={name}", "--wait=false")
    for kind in ("JobSet", "PodGroup"):
        stage.deeds.kube.delete(kind, name)
    until("its Pods gone", lambda: not pods(stage, name), lambda: shown(stage, name))
    for node in stage.nodes:
        stage.deeds.unlocked(node)


def made(stage: Stage, kind: str, name: str, spec: Object) -> Object:
    """Make the object behind a gang, once the API server has learnt of its kind."""
    resource = JOB_SETS if kind == "JobSet" else POD_GROUPS
    meta = {"name": name, "namespace": manifests.NAMESPACE}
    body = {"apiVersion": resource.api_version, "kind": kind, "metadata": meta, "spec": spec}
    found: list[Object] = []

    def make() -> bool:
        found.append(stage.deeds.kube.create(body))
        return True

    until(f"{kind} {name} made", make, lambda: found)
    return found[0]


def job(app: str, name: str, pods: int, marks: dict[str, str]) -> Object:
    """Return a Job whose Pods tell what they know, and end when they are told to, as they are told to."""
    field = "metadata.annotations['{}gang-{}']"
    told = [
        {"name": what.upper(), "valueFrom": {"fieldRef": {"fieldPath": field.format(PREFIX, what)}}}
        for what in TOLD
    ]
    spec = manifests.placed_pod(app, cpu="400m")["spec"]
    (container,) = spec["containers"]
    container |= {
        "image": from_environment().slurm.image,
        "command": ["/bin/bash", "-c", PROGRAM],
        "env": told,
    }
    meta = {"labels": {"app": app, **marks}, "annotations": {k: v for k, v in marks.items() if JOBSET in k}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": manifests.NAMESPACE, **meta},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"metadata": meta, "spec": {**spec, "restartPolicy": "Never"}},
        },
    }


def kinds_of_jobs(workers: int) -> dict[str, int]:
    """Return how many Pods each kind of the Jobs has, one Job of each kind."""
    return {"leader": 1, "workers": workers}


def job_set(workers: int) -> Object:
    """Return the spec of a JobSet."""
    replicated = [
        {"name": kind, "replicas": 1, "template": {"spec": {"parallelism": pods, "completions": pods}}}
        for kind, pods in kinds_of_jobs(workers).items()
    ]
    return {"replicatedJobs": replicated, "failurePolicy": {"maxRestarts": 1}}


def make_jobs(stage: Stage, owner: Object, workers: int, *, restart: int = 0) -> None:
    """Make the Jobs of a JobSet, as its controller does: each as soon as no other has its name."""
    name, uid = str(owner["metadata"]["name"]), str(owner["metadata"]["uid"])
    kinds = kinds_of_jobs(workers)
    for number, (kind, count) in enumerate(kinds.items()):
        job_name = f"{name}-{kind}-0"
        digest = hashlib.sha1(f"{manifests.NAMESPACE}/{job_name}".encode(), usedforsecurity=False)
        marks = {
            "jobset-name": name,
            "jobset-uid": uid,
            "replicatedjob-name": kind,
            "replicatedjob-replicas": "1",
            "global-replicas": str(len(kinds)),
            "restart-attempt": str(restart),
            "job-index": "0",
            "job-key": digest.hexdigest(),
            "job-global-index": str(number),
            "group-name": "default",
            "group-replicas": str(len(kinds)),
            "job-group-index": str(number),
        }
        body = job(name, job_name, count, {JOBSET + key: value for key, value in marks.items()})
        body["metadata"]["ownerReferences"] = [
            {
                "apiVersion": JOB_SETS.api_version,
                "kind": "JobSet",
                "name": name,
                "uid": uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        until(f"no Job {job_name}", partial(is_free, stage, job_name), lambda: jobs_of(stage, name))
        stage.deeds.kube.create(body)


def is_free(stage: Stage, job_name: str) -> bool:
    return stage.deeds.kube.get("Job", job_name) is None


def pods(stage: Stage, name: str) -> list[Object]:
    return stage.deeds.eyes.pods(manifests.NAMESPACE, f"app={name}")


def shown(stage: Stage, name: str) -> object:
    return [stage.deeds.story_of(name_of(pod)) for pod in pods(stage, name)]


def name_of(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def runs(stage: Stage, name: str, size: int) -> list[Object]:
    """Wait until *size* Pods run, and return them by the names that their Jobs gave them."""

    def alive() -> list[Object]:
        return [pod for pod in pods(stage, name) if is_running(pod)]

    until(f"{size} Pods of {name} running", lambda: len(alive()) == size, lambda: shown(stage, name))
    return sorted(alive(), key=name_of)


def said(stage: Stage, pod: Object) -> str:
    """Return what the Pod's program has said."""
    found = stage.deeds.kube.get("Pod", name_of(pod), manifests.NAMESPACE)
    (status,) = dig_list(found, "status", "containerStatuses")
    return dig_text(status, "state", "terminated", "message")


@pytest.mark.parametrize("kind", ["JobSet", "PodGroup"])
def test_the_pods_of_several_jobs_are_one_slurm_job_that_is_completed_when_all_of_them_have_done_their_work(
    stage: Stage, name: str, kind: str
) -> None:
    size, nodes = len(stage.nodes), sorted(node.node for node in stage.nodes)
    if kind == "JobSet":
        make_jobs(stage, made(stage, kind, name, job_set(size - 1)), size - 1)
    else:
        made(stage, kind, name, {"minMember": size})
        for what, count in kinds_of_jobs(size - 1).items():
            stage.deeds.kube.create(job(name, f"{name}-{what}", count, {POD_GROUP: name}))

    members = runs(stage, name, size)
    number = stage.deeds.job_of_all(members)
    found = stage.deeds.slurm.job(number)
    for pod in members:
        stage.end_program(pod, 0)
    stage.deeds.job_reaches(number, "COMPLETED")
    until(
        "all Jobs complete",
        lambda: all(dig(one, "status", "completionTime") for one in jobs_of(stage, name)),
        lambda: jobs_of(stage, name),
    )

    leader, on = name_of(members[0]), ",".join(nodes)
    assert (dig(found, "node_count", "number"), dig(found, "tasks", "number")) == (size, size)
    assert [said(stage, pod) for pod in members] == [
        f"{rank} of {size}, led by {leader}, on {on}" for rank in range(size)
    ]
    assert [dig_text(pod, "spec", "nodeName") for pod in members] == [
        node.kube_node for node in sorted(stage.nodes, key=lambda node: node.node)
    ]
    until(
        "its epilogs to be through",
        lambda: stage.deeds.eyes.job_words(number) == {"COMPLETED"},
        lambda: stage.deeds.eyes.job_words(number),
    )
    assert dig(stage.deeds.slurm.job(number), "exit_code", "return_code", "number") == 0


def jobs_of(stage: Stage, name: str) -> list[Object]:
    return stage.deeds.kube.list("Job", manifests.NAMESPACE, labelSelector=f"app={name}")


def has_failed(stage: Stage, name: str) -> bool:
    return any(condition(one, "Failed") for one in jobs_of(stage, name))


def test_a_job_set_that_starts_again_after_a_failure_is_another_slurm_job(stage: Stage, name: str) -> None:
    size = len(stage.nodes)
    owner = made(stage, "JobSet", name, job_set(size - 1))
    make_jobs(stage, owner, size - 1)
    before = runs(stage, name, size)
    first = stage.deeds.job_of_all(before)

    stage.end_program(before[-1], 3)
    until("a Job failed", lambda: has_failed(stage, name), lambda: jobs_of(stage, name))
    stage.stack.kubectl("delete", "jobs", "-l", f"app={name}", "--cascade=foreground", "--wait=false")
    make_jobs(stage, owner, size - 1, restart=1)
    after = runs(stage, name, size)
    second = stage.deeds.job_of_all(after)
    for pod in after:
        stage.end_program(pod, 0)
    stage.deeds.job_reaches(second, "COMPLETED")

    leader = name_of(after[0])
    assert stage.deeds.eyes.job_words(first) == {"FAILED"}
    assert first != second
    assert not {name_of(pod) for pod in before} & {name_of(pod) for pod in pods(stage, name)}
    assert [said(stage, pod).split(", on")[0] for pod in after] == [
        f"{rank} of {size}, led by {leader}" for rank in range(size)
    ]
