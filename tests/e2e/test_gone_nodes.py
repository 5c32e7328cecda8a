"""What is under a Pod that Slurm placed goes away: its Node, its kubelet, its slurmd, slurmctld."""

from collections.abc import Generator
from dataclasses import dataclass

import pytest

from sunk_lab.stack.kubeapi import condition
from sunk_lab.stack.manifests import COMPUTE_LABEL
from sunk_lab.stack.raw import Object, dig_text
from sunk_lab.stack.slurmapi import node_state
from sunk_lab.story import manifests
from sunk_lab.story.deeds import Deeds, fresh
from sunk_lab.story.observe import ComputeNode, is_running, until
from sunk_lab.story.stage import Stage

pytestmark = [
    pytest.mark.lab,
    pytest.mark.faults,
    pytest.mark.timeout(600),
    pytest.mark.nightly,
]

WITHIN_S = 240.0
UNFIT = {"DOWN", "DRAIN", "NOT_RESPONDING", "UNKNOWN", "COMPLETING"}


@dataclass(frozen=True)
class Placed:
    """A Pod that runs on a node, by Slurm's word."""

    name: str
    uid: str
    job: int
    node: ComputeNode


def place(stage: Stage, name: str) -> Placed:
    """Have Slurm place a Pod, and return once it runs."""
    do = stage.deeds
    do.kube.create(manifests.placed_pod(name, cpu="100m"))
    do.pod_runs(name)
    kube_node = do.node_of(name)
    (node,) = [node for node in stage.nodes if node.kube_node == kube_node]
    uid = dig_text(do.kube.get("Pod", name), "metadata", "uid")
    return Placed(name, uid, do.placeholder_of(name), node)


def comes_back(do: Deeds, node: ComputeNode) -> None:
    """Wait until Slurm has *node* idle and nobody has its Node locked."""
    until(
        f"{node.node} idle",
        lambda: "IDLE" in (found := node_state(do.slurm.node(node.node))) and not found & UNFIT,
        lambda: node_state(do.slurm.node(node.node)),
        patience_s=WITHIN_S,
    )
    do.unlocked(node)


def is_gone(do: Deeds, pod: Placed) -> bool:
    found = do.kube.get("Pod", pod.name)
    return dig_text(found, "metadata", "uid") != pod.uid


def ends(do: Deeds, pod: Placed) -> None:
    """Wait until Kubernetes has the Pod no longer, and Slurm its job."""
    until("its Pod gone", lambda: is_gone(do, pod), lambda: do.story_of(pod.name), patience_s=WITHIN_S)
    do.job_left(pod.job)


@pytest.fixture
def pod(stage: Stage) -> Generator[Placed]:
    """A Pod that Slurm placed; afterwards all nodes are as before."""
    nodes, made = stage.nodes, place(stage, fresh("gone"))
    yield made
    stage.stack.machines.start_node(made.node.kube_node)
    stage.stack.kubectl("delete", "pod", made.name, "--force", "--grace-period=0", "--ignore-not-found")
    for node in nodes:
        comes_back(stage.deeds, node)


def test_a_node_that_is_deleted_takes_its_pod_and_the_job_along_and_takes_pods_again_later(
    stage: Stage, pod: Placed
) -> None:
    do, kube_node = stage.deeds, pod.node.kube_node
    stage.stack.machines.stop_kubelet(kube_node)  # A machine that is switched off, and then taken out.
    do.kube.delete("Node", kube_node)
    ends(do, pod)

    stage.stack.machines.start_node(kube_node)
    until("the Node is there again", lambda: do.kube.get("Node", kube_node) is not None, lambda: kube_node)
    do.kube.patch("Node", kube_node, {"metadata": {"labels": {COMPUTE_LABEL: "true"}}})
    comes_back(do, pod.node)
    again = place(stage, fresh("again"))
    do.kube.delete("Pod", again.name)
    ends(do, again)


def test_a_pod_whose_kubelet_is_dead_keeps_its_job_and_its_node_until_it_is_removed(
    stage: Stage, pod: Placed
) -> None:
    do, kube_node = stage.deeds, pod.node.kube_node

    def ready() -> str:
        return str((condition(do.kube.get("Node", kube_node), "Ready") or {}).get("status"))

    stage.stack.machines.stop_kubelet(kube_node)
    do.kube.delete("Pod", pod.name)
    until("Kubernetes notices", lambda: ready() == "Unknown", ready, patience_s=WITHIN_S)
    lock, _ = do.eyes.lock(pod.node)
    job = do.eyes.job_words(pod.job)

    assert not is_gone(do, pod)
    assert (lock, job) == ("locked_strict", {"RUNNING"})

    stage.stack.kubectl("delete", "pod", pod.name, "--force", "--grace-period=0")
    ends(do, pod)


def test_a_slurmd_that_is_replaced_takes_the_pod_along_and_its_node_takes_work_again(
    stage: Stage, pod: Placed
) -> None:
    do = stage.deeds
    do.kube.delete("Pod", pod.node.node, pod.node.namespace)
    ends(do, pod)

    comes_back(do, pod.node)


@pytest.mark.parametrize("service", ["syncer", "nodeset-controller"])
def test_a_slurmd_that_goes_while_a_service_is_dead_has_its_job_requeued_and_its_node_takes_work_again(
    stage: Stage, service: str
) -> None:
    do, node = stage.deeds, stage.nodes[0]
    job = do.slurm.submit("#!/bin/bash\nsleep 600\n", node=node.node, name="on-a-slurmd-that-goes")

    def slurmd() -> Object:
        return do.kube.get("Pod", node.node, node.namespace) or {}

    def requeues() -> object:
        return (do.slurm.job(job) or {}).get("restart_cnt")

    try:
        do.job_reaches(job, "RUNNING")
        before = dig_text(slurmd(), "metadata", "uid")
        stage.stack.services.kill(service)
        stage.stack.kubectl(
            "delete", "pod", node.node, "--namespace", node.namespace, "--force", "--grace-period=0"
        )
        if service == "syncer":  # The other one makes the next Pod meanwhile.
            until(
                "another slurmd",
                lambda: is_running(slurmd()) and dig_text(slurmd(), "metadata", "uid") != before,
                slurmd,
                patience_s=WITHIN_S,
            )
        stage.stack.services.start_all()
        until("the job requeued", lambda: requeues() == 1, lambda: do.slurm.job(job), patience_s=WITHIN_S)

        assert dig_text(slurmd(), "metadata", "uid") != before
    finally:
        stage.stack.services.start_all()
        do.slurm.cancel(job)
        comes_back(do, node)
    assert requeues() == 1


def test_a_slurmctld_that_is_replaced_ends_no_pod(stage: Stage, pod: Placed) -> None:
    do, before = stage.deeds, dig_text(stage.deeds.kube.get("Pod", "slurmctld-0", "slurm"), "metadata", "uid")

    def is_another() -> bool:
        found = do.kube.get("Pod", "slurmctld-0", "slurm")
        return is_running(found) and dig_text(found, "metadata", "uid") != before

    do.kube.delete("Pod", "slurmctld-0", "slurm")
    until(
        "another slurmctld",
        is_another,
        lambda: do.kube.get("Pod", "slurmctld-0", "slurm"),
        patience_s=WITHIN_S,
    )
    until(
        "the Pod's job runs",
        lambda: "RUNNING" in do.eyes.job_words(do.placeholder_of(pod.name)),
        lambda: do.story_of(pod.name),
        patience_s=WITHIN_S,
    )
    comes = place(stage, fresh("after"))  # Slurm places Pods again: it has looked at its nodes.

    assert is_running(do.kube.get("Pod", pod.name, manifests.NAMESPACE))
    assert not is_gone(do, pod)
    for one in (comes, pod):
        do.kube.delete("Pod", one.name)
        do.pod_gone(one.name)
