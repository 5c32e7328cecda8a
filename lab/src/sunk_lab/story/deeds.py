"""What the story's people do, each with how long the other side took to show it."""

import itertools
import time
from typing import Final

import msgspec

from sunk_lab.stack.raw import Object, dig, dig_text
from sunk_lab.stack.slurmapi import job_state, node_state
from sunk_lab.story import manifests
from sunk_lab.story.observe import CORDON_REASON, ComputeNode, Eyes, StoryError, is_running, until

PREFIX: Final = "k8s:"
JOB: Final = "sunk.coreweave.com/job"
HOLDING: Final = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING"})

_names = itertools.count(int(time.time()) % 100_000)


def fresh(prefix: str) -> str:
    """Return a name that no earlier run has used."""
    return f"{prefix}-{next(_names)}"


class Deeds:
    """Cordon, drain, submit, delete: done, and waited for."""

    def __init__(self, eyes: Eyes) -> None:
        self.eyes = eyes
        self.kube = eyes.kube
        self.slurm = eyes.slurm

    def set_cordon(self, node: ComputeNode, reason: str) -> None:
        """Cordon the Node as ``kubectl cordon`` does, with the platform's reason."""
        self.kube.patch(
            "Node",
            node.kube_node,
            {"metadata": {"annotations": {CORDON_REASON: reason}}, "spec": {"unschedulable": True}},
        )

    def set_uncordon(self, node: ComputeNode) -> None:
        """Uncordon the Node."""
        self.kube.patch(
            "Node",
            node.kube_node,
            {"metadata": {"annotations": {CORDON_REASON: None}}, "spec": {"unschedulable": None}},
        )

    def drained(self, node: ComputeNode, reason: str) -> float:
        """Wait until Slurm drains *node* with exactly *reason*."""
        return until(
            f"{node.node} drained with {reason!r}",
            lambda: self.eyes.drain_reason(node.node) == reason,
            lambda: self.eyes.drain_reason(node.node),
        )

    def undrained(self, node: ComputeNode) -> float:
        """Wait until Slurm no longer drains *node*."""
        return until(
            f"{node.node} undrained",
            lambda: self.eyes.drain_reason(node.node) is None,
            lambda: self.eyes.drain_reason(node.node),
        )

    def drain_by_hand(self, node: ComputeNode, reason: str) -> None:
        """Drain *node* in Slurm, as an operator does."""
        self.slurm.update_node(node.node, state=["DRAIN"], reason=reason)

    def resume_by_hand(self, node: ComputeNode) -> None:
        """Resume *node* in Slurm; it not being drained is success."""
        if self.eyes.drain_reason(node.node) is not None:
            self.slurm.update_node(node.node, state=["RESUME"])

    def pod_shows(self, node: ComputeNode, status: str, message: str = "") -> float:
        """Wait until the NodeSet Pod's SlurmDrain condition says so."""
        return until(
            f"SlurmDrain={status} {message!r} on Pod {node.node}",
            lambda: _matches(self.eyes.pod_condition(node, "SlurmDrain"), status, message),
            lambda: self.eyes.pod_condition(node, "SlurmDrain"),
        )

    def node_shows(self, node: ComputeNode, status: str) -> float:
        """Wait until the Node's SlurmCordon condition says so."""
        return until(
            f"SlurmCordon={status} on Node {node.kube_node}",
            lambda: self.eyes.node_condition(node, "SlurmCordon")[0] == status,
            lambda: self.eyes.node_condition(node, "SlurmCordon"),
        )

    def locked(self, node: ComputeNode, value: str = "locked") -> float:
        """Wait until the Node's lock has *value*."""
        return until(
            f"lock={value} on Node {node.kube_node}",
            lambda: self.eyes.lock(node)[0] == value,
            lambda: self.eyes.lock(node),
        )

    def unlocked(self, node: ComputeNode) -> float:
        """Wait until annotation and taint say that the Node is free."""
        return until(
            f"no lock on Node {node.kube_node}",
            lambda: self.eyes.lock(node) == ("false", False),
            lambda: self.eyes.lock(node),
        )

    def no_job_holds(self, node: ComputeNode) -> float:
        """Wait until no job runs on the node, and none is still leaving it."""
        return until(
            f"no job on {node.node}",
            lambda: not node_state(self.slurm.node(node.node)) & {"ALLOCATED", "MIXED", "COMPLETING"},
            lambda: [
                (job["job_id"], job["name"], sorted(words))
                for job in self.slurm.jobs()
                if (words := job_state(job)) & HOLDING
            ],
        )

    def job_reaches(self, job: int, *words: str) -> float:
        """Wait until the job's state has one of *words* and the job holds no node any more, if it is over."""
        return until(
            f"job {job} {' or '.join(words)}",
            lambda: bool(self.eyes.job_words(job) & set(words)),
            lambda: self.eyes.job_words(job),
        )

    def job_left(self, job: int) -> float:
        """Wait until the job holds no node."""
        return until(
            f"job {job} over",
            lambda: not self.eyes.job_words(job) & HOLDING,
            lambda: self.eyes.job_words(job),
        )

    def deploy(self, name: str, node: ComputeNode) -> str:
        """Make an ordinary Deployment and return its Pod's name once that runs on *node*."""
        self.kube.apply(manifests.deployment(name, node.kube_node))
        return self.deployment_runs(name)

    def deployment_runs(self, name: str) -> str:
        """Wait until a Pod of the Deployment runs and return its name."""

        def running() -> list[Object]:
            return [pod for pod in self._pods_of(name) if is_running(pod)]

        until(f"a Pod of Deployment {name} running", lambda: bool(running()), lambda: self._phases(name))
        return str(running()[0]["metadata"]["name"])

    def place(self, name: str) -> tuple[str, float]:
        """Make a Pod that Slurm places; return its Node once it is bound, and the seconds that took."""
        self.kube.create(manifests.placed_pod(name))
        took = until(f"Pod {name} bound", lambda: bool(self.node_of(name)), lambda: self.story_of(name))
        return self.node_of(name), took

    def node_of(self, pod: str) -> str:
        """Return the Node that the Pod is bound to; empty while it is not."""
        return dig_text(self.kube.get("Pod", pod, manifests.NAMESPACE), "spec", "nodeName")

    def pod_runs(self, pod: str) -> float:
        """Wait until the Pod runs."""
        return until(
            f"Pod {pod} running",
            lambda: is_running(self.kube.get("Pod", pod, manifests.NAMESPACE)),
            lambda: self.story_of(pod),
        )

    def pod_gone(self, pod: str) -> float:
        """Wait until the Pod's object is gone."""
        return until(
            f"Pod {pod} gone",
            lambda: self.kube.get("Pod", pod, manifests.NAMESPACE) is None,
            lambda: self.story_of(pod),
        )

    def placeholder_of(self, pod: str) -> int:
        """Return the id of the placeholder job that is the Pod's."""
        found = self.kube.get("Pod", pod, manifests.NAMESPACE)
        mark = dig_text(found, "metadata", "annotations", JOB)
        if not mark:
            raise StoryError(f"Pod {pod} names no placeholder job: it has no annotation {JOB}")
        return int(msgspec.json.decode(mark)["job"])

    def job_of_all(self, pods: list[Object]) -> int:
        """Return the id of the one placeholder job that all of *pods* name."""
        found = {self.placeholder_of(dig_text(pod, "metadata", "name")) for pod in pods}
        if len(found) != 1:
            raise StoryError(f"the Pods name the jobs {sorted(found)}, and not one")
        return found.pop()

    def story_of(self, pod: str) -> object:
        """Return what an operator would look at when a Pod does not get on: Events, its jobs, the taints."""
        found = self.kube.get("Pod", pod, manifests.NAMESPACE)
        events = self.kube.list("Event", manifests.NAMESPACE, fieldSelector=f"involvedObject.name={pod}")
        return {
            "phase": dig(found, "status", "phase") if found else "no such Pod",
            "annotations": dig(found, "metadata", "annotations"),
            "events": [f"{event['reason']}: {event.get('message', '')}" for event in events],
            "jobs": [
                {name: job.get(name) for name in ("job_id", "job_state", "state_reason", "nodes")}
                for job in self.slurm.jobs()
                if str(job["name"]).endswith(f"/{pod}")
            ],
            "taints": {
                node["metadata"]["name"]: [taint["key"] for taint in dig(node, "spec", "taints") or ()]
                for node in self.kube.list("Node")
            },
        }

    def _pods_of(self, name: str) -> list[Object]:
        return self.eyes.pods(manifests.NAMESPACE, f"app={name}")

    def _phases(self, name: str) -> list[str]:
        return [f"{pod['metadata']['name']}: {pod['status'].get('phase')}" for pod in self._pods_of(name)]


def _matches(found: tuple[str, str], status: str, message: str) -> bool:
    return found[0] == status and (not message or found[1] == message)
