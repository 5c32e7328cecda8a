"""Gangs on the whole stack: Pods of one workload, one Slurm job, real kubelets."""

from collections.abc import Generator

import pytest

from sunk_lab.stack.raw import Object, dig, dig_text
from sunk_lab.stack.slurmapi import job_state
from sunk_lab.story import manifests
from sunk_lab.story.deeds import HOLDING, fresh
from sunk_lab.story.observe import is_running, until
from sunk_lab.story.stage import Stage

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

PREFIX = "sunk.coreweave.com/"
POD_GROUP = "scheduling.x-k8s.io/pod-group"


@pytest.fixture
def name(stage: Stage) -> Generator[str]:
    """A name for what the test makes, all of which goes with it."""
    name = fresh("gang")
    yield name
    if stage.deeds.kube.get("Job", name) is not None:
        stage.deeds.kube.patch("Job", name, {"spec": {"suspend": True}})
        stage.deeds.kube.delete("Job", name)
    for pod in pods(stage, name):
        stage.deeds.kube.delete("Pod", str(pod["metadata"]["name"]))
    until("the gang gone", lambda: not pods(stage, name), lambda: shown(stage, name))
    for node in stage.nodes:
        stage.deeds.unlocked(node)


def template(name: str, annotations: dict[str, str] | None = None) -> Object:
    """Return what each member is: its label tells the test, not the scheduler, which gang it is in."""
    pod = manifests.placed_pod(name, cpu="400m")
    return {"metadata": {"labels": {"app": name}, "annotations": annotations or {}}, "spec": pod["spec"]}


def kube_job(name: str, size: int) -> Object:
    spec = template(name)
    spec["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": manifests.NAMESPACE},
        "spec": {
            "parallelism": size,
            "completions": size,
            "completionMode": "Indexed",
            "backoffLimit": 100,
            "template": spec,
        },
    }


def member(group: str, name: str, **annotations: str) -> Object:
    """Return a Pod with the label of a PodGroup."""
    asked = {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()}
    pod = template(group, asked)
    labels = {"app": group, POD_GROUP: group}
    meta = {**pod["metadata"], "name": name, "namespace": manifests.NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod["spec"]}


def pods(stage: Stage, name: str) -> list[Object]:
    return stage.deeds.eyes.pods(manifests.NAMESPACE, f"app={name}")


def shown(stage: Stage, name: str) -> object:
    return [stage.deeds.story_of(str(pod["metadata"]["name"])) for pod in pods(stage, name)]


def runs(stage: Stage, name: str, size: int) -> list[Object]:
    """Wait until *size* Pods run, and return them by rank."""

    def alive() -> list[Object]:
        return [pod for pod in pods(stage, name) if is_running(pod)]

    until(f"{size} Pods of {name} running", lambda: len(alive()) == size, lambda: shown(stage, name))
    return sorted(alive(), key=lambda pod: int(noted(pod, "gang-rank")))


def noted(pod: Object, annotation: str) -> str:
    return dig_text(pod, "metadata", "annotations", PREFIX + annotation)


def name_of(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def node_of(stage: Stage, pod: Object) -> str:
    """Return the Slurm node of the Node that the Pod is bound to."""
    kube_node = dig_text(pod, "spec", "nodeName")
    return next(node.node for node in stage.nodes if node.kube_node == kube_node)


def reasons(stage: Stage, pod: str) -> set[str]:
    events = stage.deeds.kube.list("Event", manifests.NAMESPACE, fieldSelector=f"involvedObject.name={pod}")
    return {str(event["reason"]) for event in events}


def says(stage: Stage, pod: str, *expected: str) -> None:
    """Wait until Events on *pod* give all *expected* reasons: they come beside the work."""
    until(
        f"Pod {pod} says {expected}", lambda: {*expected} <= reasons(stage, pod), lambda: reasons(stage, pod)
    )


def times_led(stage: Stage) -> object:
    """Return how often the lease of the pod-scheduler has changed hands."""
    return dig(stage.deeds.kube.get("Lease", "sunk-pod-scheduler-lab", "slurm"), "spec", "leaseTransitions")


def test_a_job_with_as_many_completions_as_pods_is_one_slurm_job_and_ranks_follow_its_nodes(
    stage: Stage, name: str
) -> None:
    size, led = len(stage.nodes), times_led(stage)
    stage.deeds.kube.create(kube_job(name, size))
    members = runs(stage, name, size)
    job = stage.deeds.job_of_all(members)
    found = stage.deeds.slurm.job(job) or {}

    assert found["node_count"]["number"] == size
    assert found["tasks"]["number"] == size
    assert [noted(pod, "gang-rank") for pod in members] == [str(rank) for rank in range(size)]
    assert [node_of(stage, pod) for pod in members] == sorted(node.node for node in stage.nodes)
    assert {noted(pod, "gang-nodes") for pod in members} == {
        ",".join(sorted(node.node for node in stage.nodes))
    }
    for rank, pod in enumerate(members):
        assert dig_text(pod, "metadata", "labels", "batch.kubernetes.io/job-completion-index") == str(rank)
        if times_led(stage) == led:  # A leader that stops after a binding may not come to say it.
            says(stage, name_of(pod), "PlaceholderSubmitted", "Bound")


def test_when_a_member_dies_the_whole_gang_ends_and_the_pods_that_follow_are_another_job(
    stage: Stage, name: str
) -> None:
    for letter in "ab":
        stage.deeds.kube.create(member(name, f"{name}-{letter}", gang_size="2"))
    before = runs(stage, name, 2)
    job = stage.deeds.job_of_all(before)
    assert len({node_of(stage, pod) for pod in before}) == 2

    stage.deeds.kube.delete("Pod", name_of(before[1]))
    for letter in "cd":  # They come while the others leave, and wait for it.
        stage.deeds.kube.create(member(name, f"{name}-{letter}", gang_size="2"))
    stage.deeds.pod_gone(name_of(before[0]))
    stage.deeds.job_left(job)
    after = runs(stage, name, 2)

    assert [name_of(pod) for pod in after] == [f"{name}-c", f"{name}-d"]
    assert stage.deeds.job_of_all(after) != job
    says(stage, name_of(before[0]), "GangEnds")


def test_a_pod_group_waits_for_all_its_members_and_shares_a_node_and_a_dead_one_is_replaced_there(
    stage: Stage, name: str
) -> None:
    asked = {"gang_size": "2", "gang_members_per_node": "2", "gang_policy": "replace"}
    first, second, third = (f"{name}-{letter}" for letter in "abc")
    stage.deeds.kube.create(member(name, first, **asked))
    says(stage, first, "WaitingForGang")
    assert stage.deeds.node_of(first) == ""
    stage.deeds.kube.create(member(name, second, **asked))
    members = runs(stage, name, 2)
    job, nodes = stage.deeds.job_of_all(members), {node_of(stage, pod) for pod in members}
    assert len(nodes) == 1

    stage.deeds.kube.delete("Pod", second)
    stage.deeds.pod_gone(second)
    stage.deeds.kube.create(member(name, third, **asked))
    replaced = runs(stage, name, 2)

    assert [name_of(pod) for pod in replaced] == [first, third]
    assert stage.deeds.job_of_all(replaced) == job
    assert {node_of(stage, pod) for pod in replaced} == nodes
    assert job_state(stage.deeds.slurm.job(job)) & HOLDING == {"RUNNING"}
