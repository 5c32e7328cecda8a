"""Gangs that the real controllers of JobSet and LeaderWorkerSet make, and a JobSet that Kueue admits.

The controllers are compiled on first use, which takes minutes: these tests run on request.
"""

from collections.abc import Generator
from typing import Final

import pytest

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.kube.controllers import JOBSET, KUEUE, LEADER_WORKER_SET
from sunk_lab.stack.kubeapi import condition
from sunk_lab.stack.raw import Object, dig, dig_list, dig_text
from sunk_lab.stack.stack import Stack
from sunk_lab.story import manifests
from sunk_lab.story.deeds import fresh
from sunk_lab.story.observe import is_running, until
from sunk_lab.story.stage import Stage

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(3600)]

PREFIX: Final = "sunk.coreweave.com/"
LWS: Final = "leaderworkerset.sigs.k8s.io/"
GROUP: Final = f"{LWS}group-index"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
RESTART: Final = "jobset.sigs.k8s.io/restart-attempt"
JOB_RESTART: Final = "jobset.sigs.k8s.io/job-restart-attempt"
PROGRAM: Final = 'until [ -e /tmp/end ]; do sleep 0.1; done; exit "$(</tmp/end)"'


@pytest.fixture(scope="module")
def jobset(stack: Stack) -> Generator[None]:
    """The controller of JobSets runs."""
    with stack.machines.running(JOBSET):
        yield


@pytest.fixture(scope="module")
def lws(stack: Stack) -> Generator[None]:
    """The controller of LeaderWorkerSets runs."""
    with stack.machines.running(LEADER_WORKER_SET):
        yield


@pytest.fixture(scope="module")
def kueue(stack: Stack, jobset: None) -> Generator[None]:  # noqa: ARG001 - Kueue needs JobSets to be known.
    """Kueue runs, and lets JobSets with a queue's name wait in that queue."""
    with stack.machines.running(KUEUE):
        yield


@pytest.fixture
def name(stage: Stage) -> Generator[str]:
    """A name for the Pods that the test makes; they are gone afterwards."""
    name = fresh("own")
    yield name
    until("its Pods gone", lambda: not pods(stage, name), lambda: shown(stage, name))
    for node in stage.nodes:
        stage.deeds.unlocked(node)


@pytest.fixture
def job_set(stage: Stage, name: str) -> Generator[Object]:
    """A JobSet of a leader and workers, one Pod for each node; it is gone afterwards."""
    meta = {"name": name, "namespace": manifests.NAMESPACE}
    jobs = {"leader": 1, "workers": len(stage.nodes) - 1}
    replicated = [
        {"name": kind, "replicas": 1, "template": {"spec": job_spec(name, count)}}
        for kind, count in jobs.items()
    ]
    yield {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": meta,
        "spec": {"replicatedJobs": replicated, "failurePolicy": {"maxRestarts": 1}},
    }
    stage.deeds.kube.delete("JobSet", name)
    until("the JobSet gone", lambda: job_set_of(stage, name) is None, lambda: job_set_of(stage, name))


@pytest.fixture
def groups(stage: Stage, name: str) -> Generator[Object]:
    """A LeaderWorkerSet of one group with a Pod for each node; it is gone afterwards."""
    pod = {"metadata": {"labels": {"app": name}}, "spec": pod_spec(name)}
    yield {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "namespace": manifests.NAMESPACE},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": len(stage.nodes), "workerTemplate": pod}},
    }
    stage.deeds.kube.delete("LeaderWorkerSet", name)


@pytest.fixture
def closed_queue(stage: Stage, name: str) -> Generator[str]:
    """A queue of Kueue with room for all, from which nothing is admitted yet; it is gone afterwards."""
    quota = [{"name": "cpu", "nominalQuota": "100"}, {"name": "memory", "nominalQuota": "100Gi"}]
    flavors = [{"name": name, "resources": quota}]
    group = {"coveredResources": [one["name"] for one in quota], "flavors": flavors}
    queue: Object = {"namespaceSelector": {}, "resourceGroups": [group], "stopPolicy": "Hold"}
    specs: dict[str, Object] = {
        "ResourceFlavor": {},
        "ClusterQueue": queue,
        "LocalQueue": {"clusterQueue": name},
    }
    for kind, spec in specs.items():
        meta = {"name": name, **({"namespace": manifests.NAMESPACE} if kind == "LocalQueue" else {})}
        create(stage, {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta, "spec": spec})
    yield name
    for kind in reversed(specs):
        stage.deeds.kube.delete(kind, name)


def pod_spec(name: str) -> Object:
    """Return the spec of a Pod through Slurm that ends when a test says so, as it says."""
    spec: Object = manifests.placed_pod(name, cpu="400m")["spec"]
    (container,) = spec["containers"]
    container |= {"image": from_environment().slurm.image, "command": ["/bin/bash", "-c", PROGRAM]}
    return spec


def job_spec(name: str, pods: int) -> Object:
    """Return the spec of a Job of such Pods."""
    template = {"metadata": {"labels": {"app": name}}, "spec": {**pod_spec(name), "restartPolicy": "Never"}}
    return {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}


def create(stage: Stage, manifest: Object) -> None:
    """Create the object, once the API server knows its kind and its controller's webhooks answer."""
    refusals: list[str] = []

    def make() -> bool:
        try:
            stage.deeds.kube.create(manifest)
        except LabError as error:
            refusals.append(str(error))
            return False
        return True

    until(f"{manifest['kind']} made", make, lambda: refusals[-1:])


def pods(stage: Stage, name: str) -> list[Object]:
    return stage.deeds.eyes.pods(manifests.NAMESPACE, f"app={name}")


def jobs_of(stage: Stage, name: str) -> list[Object]:
    return stage.deeds.kube.list("Job", labelSelector=f"jobset.sigs.k8s.io/jobset-name={name}")


def job_set_of(stage: Stage, name: str) -> Object | None:
    return stage.deeds.kube.get("JobSet", name)


def shown(stage: Stage, name: str) -> object:
    return [(name_of(pod), stage.deeds.story_of(name_of(pod))) for pod in pods(stage, name)]


def name_of(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def runs(stage: Stage, name: str, size: int, *, without: frozenset[str] = frozenset()) -> list[Object]:
    """Wait until *size* Pods run whose uids are not those of *without*, and return them by rank."""

    def alive() -> list[Object]:
        found = pods(stage, name)
        return [pod for pod in found if is_running(pod) and pod["metadata"]["uid"] not in without]

    until(f"{size} Pods of {name} running", lambda: len(alive()) == size, lambda: shown(stage, name))
    return sorted(
        alive(), key=lambda pod: int(dig_text(pod, "metadata", "annotations", f"{PREFIX}gang-rank"))
    )


def uids(members: list[Object]) -> frozenset[str]:
    return frozenset(str(pod["metadata"]["uid"]) for pod in members)


def is_completed(stage: Stage, name: str) -> bool:
    found = condition(job_set_of(stage, name), "Completed")
    return found is not None and found["status"] == "True"


def completes(stage: Stage, name: str, number: int, members: list[Object]) -> None:
    """Have all of *members* succeed, and wait until both the JobSet and its Slurm job are completed."""
    for pod in members:
        stage.end_program(pod, 0)
    until("completed", lambda: is_completed(stage, name), lambda: job_set_of(stage, name))
    stage.deeds.job_reaches(number, "COMPLETED")


def leader_succeeds(stage: Stage, name: str, leader: Object) -> None:
    """Have the leader end, and wait until its JobSet knows."""

    def succeeded() -> list[Object]:
        found = dig_list(job_set_of(stage, name), "status", "replicatedJobsStatus")
        return [one for one in found if one["name"] == "leader" and one.get("succeeded")]

    stage.end_program(leader, 0)
    until("the leader done", lambda: bool(succeeded()), lambda: job_set_of(stage, name))


def restart_attempts(members: list[Object]) -> set[str]:
    return {dig_text(pod, "metadata", "labels", RESTART) for pod in members}


@pytest.mark.usefixtures("jobset")
def test_a_job_set_is_one_slurm_job_that_is_completed_when_the_job_set_is(
    stage: Stage, name: str, job_set: Object
) -> None:
    size = len(stage.nodes)
    create(stage, job_set)

    members = runs(stage, name, size)
    number = stage.deeds.job_of_all(members)
    nodes = dig(stage.deeds.slurm.job(number), "node_count", "number")
    leader_succeeds(stage, name, members[0])
    others = runs(stage, name, size - 1)
    words = stage.deeds.eyes.job_words(number)
    completes(stage, name, number, others)

    assert nodes == size
    assert words == {"RUNNING"}
    assert uids(others) == uids(members[1:])
    assert [name_of(pod).rpartition("-")[0] for pod in members] == [
        f"{name}-leader-0-0",
        *(f"{name}-workers-0-{index}" for index in range(size - 1)),
    ]


@pytest.mark.usefixtures("jobset")
def test_a_job_set_that_its_controller_restarts_gets_another_slurm_job_for_all_its_pods(
    stage: Stage, name: str, job_set: Object
) -> None:
    size = len(stage.nodes)
    create(stage, job_set)
    before = runs(stage, name, size)
    first = stage.deeds.job_of_all(before)
    leader_succeeds(stage, name, before[0])

    stage.end_program(before[-1], 3)
    after = runs(stage, name, size, without=uids(before))
    second = stage.deeds.job_of_all(after)
    completes(stage, name, second, after)

    assert first != second
    assert stage.deeds.eyes.job_words(first) == {"FAILED"}
    assert restart_attempts(before) == {"0"}
    assert restart_attempts(after) == {"1"}


@pytest.mark.usefixtures("jobset")
def test_a_job_that_its_job_set_restarts_alone_takes_its_seat_again_in_the_same_slurm_job(
    stage: Stage, name: str, job_set: Object
) -> None:
    size = len(stage.nodes)
    leader, workers = job_set["spec"]["replicatedJobs"]
    for one in (leader, workers):
        meta = one["template"]["spec"]["template"]["metadata"]
        meta["annotations"] = {f"{PREFIX}gang-policy": "replace"}
    rule = {"action": "RestartJob", "targetReplicatedJobs": ["leader"]}
    create(
        stage, {**job_set, "spec": {**job_set["spec"], "failurePolicy": {"maxRestarts": 1, "rules": [rule]}}}
    )
    before = runs(stage, name, size)
    number = stage.deeds.job_of_all(before)

    stage.end_program(before[0], 3)
    new, *others = runs(stage, name, size, without=uids(before[:1]))
    again = stage.deeds.job_of_all([new, *others])
    completes(stage, name, number, [new, *others])

    assert again == number
    assert uids(others) == uids(before[1:])
    assert dig_text(new, "metadata", "labels", JOB_RESTART) == "1"
    assert dig_text(new, "spec", "nodeName") == dig_text(before[0], "spec", "nodeName")
    assert restart_attempts([new, *others]) == {"0"}


@pytest.mark.usefixtures("jobset")
def test_a_job_set_that_is_done_with_its_leader_ends_its_slurm_job_as_completed(
    stage: Stage, name: str, job_set: Object
) -> None:
    policy = {"operator": "Any", "targetReplicatedJobs": ["leader"]}
    create(stage, {**job_set, "spec": {**job_set["spec"], "successPolicy": policy}})
    members = runs(stage, name, len(stage.nodes))
    number = stage.deeds.job_of_all(members)

    stage.end_program(members[0], 0)
    until("completed", lambda: is_completed(stage, name), lambda: job_set_of(stage, name))
    stage.deeds.job_left(number)

    assert stage.deeds.eyes.job_words(number) == {"COMPLETED"}


@pytest.mark.usefixtures("jobset")
def test_a_job_set_has_no_slurm_job_while_it_is_suspended_and_another_one_when_it_is_resumed(
    stage: Stage, name: str, job_set: Object
) -> None:
    size = len(stage.nodes)
    create(stage, {**job_set, "spec": {**job_set["spec"], "suspend": True}})
    until("its Jobs made", lambda: len(jobs_of(stage, name)) == len(job_set["spec"]["replicatedJobs"]), list)
    stage.deeds.kube.patch("JobSet", name, {"spec": {"suspend": False}})
    before = runs(stage, name, size)
    first = stage.deeds.job_of_all(before)

    stage.deeds.kube.patch("JobSet", name, {"spec": {"suspend": True}})
    stage.deeds.job_left(first)
    until("its Pods gone", lambda: not pods(stage, name), lambda: shown(stage, name))
    stage.deeds.kube.patch("JobSet", name, {"spec": {"suspend": False}})
    after = runs(stage, name, size)
    second = stage.deeds.job_of_all(after)
    completes(stage, name, second, after)

    assert first != second
    assert stage.deeds.eyes.job_words(first) == {"COMPLETED"}
    assert restart_attempts([*before, *after]) == {"0"}


@pytest.mark.usefixtures("lws")
@pytest.mark.parametrize("death", ["deleted", "failed"])
def test_a_group_of_a_leader_worker_set_is_one_slurm_job_and_another_one_after_a_worker_dies(
    stage: Stage, name: str, groups: Object, death: str
) -> None:
    size = len(stage.nodes)
    create(stage, groups)
    before = runs(stage, name, size)
    first = stage.deeds.job_of_all(before)
    nodes = dig(stage.deeds.slurm.job(first), "node_count", "number")

    if death == "deleted":
        stage.deeds.kube.delete("Pod", name_of(before[-1]))
    else:
        stage.end_program(before[-1], 3)
    stage.deeds.job_left(first)
    after = runs(stage, name, size, without=uids(before))

    assert nodes == size
    for members in (before, after):
        assert [name_of(pod) for pod in members] == [
            f"{name}-0",
            *(f"{name}-0-{worker}" for worker in range(1, size)),
        ]
        assert {dig_text(pod, "metadata", "annotations", f"{LWS}size") for pod in members} == {str(size)}
    assert stage.deeds.job_of_all(after) != first


@pytest.mark.usefixtures("lws")
def test_each_group_of_a_leader_worker_set_is_a_slurm_job_of_its_own(
    stage: Stage, name: str, groups: Object
) -> None:
    size = len(stage.nodes)
    create(stage, {**groups, "spec": {**groups["spec"], "replicas": 2}})

    members = runs(stage, name, 2 * size)
    jobs = [
        stage.deeds.job_of_all(
            [pod for pod in members if dig_text(pod, "metadata", "labels", GROUP) == group]
        )
        for group in ("0", "1")
    ]
    stage.deeds.kube.patch("LeaderWorkerSet", name, {"spec": {"replicas": 1}})
    stage.deeds.job_left(jobs[1])

    assert jobs[0] != jobs[1]
    assert stage.deeds.eyes.job_words(jobs[0]) == {"RUNNING"}


@pytest.mark.usefixtures("kueue")
def test_a_job_set_has_a_slurm_job_while_kueue_admits_it(
    stage: Stage, name: str, job_set: Object, closed_queue: str
) -> None:
    size = len(stage.nodes)
    create(stage, {**job_set, "metadata": {**job_set["metadata"], "labels": {QUEUE: closed_queue}}})

    def queued() -> list[Object]:
        found = stage.deeds.kube.list("Workload")
        return [one for one in found if dig(one, "spec", "queueName") == closed_queue]

    until("a Workload in the queue", lambda: len(queued()) == 1, queued)
    jobs = jobs_of(stage, name)
    assert dig(job_set_of(stage, name), "spec", "suspend") is True
    assert all(dig(one, "spec", "suspend") for one in jobs)
    assert pods(stage, name) == []

    stage.deeds.kube.patch("ClusterQueue", closed_queue, {"spec": {"stopPolicy": "None"}})
    before = runs(stage, name, size)
    first = stage.deeds.job_of_all(before)

    (workload,) = queued()
    stage.deeds.kube.patch("Workload", name_of(workload), {"spec": {"active": False}})
    stage.deeds.job_left(first)
    until("its Pods gone", lambda: not pods(stage, name), lambda: shown(stage, name))
    words = stage.deeds.eyes.job_words(first)

    stage.deeds.kube.patch("Workload", name_of(workload), {"spec": {"active": True}})
    after = runs(stage, name, size)
    second = stage.deeds.job_of_all(after)
    completes(stage, name, second, after)

    assert first != second
    assert words == {"COMPLETED"}
    assert restart_attempts([*before, *after]) == {"0"}
