"""What both sides show, and how long it took to show: the eyes of the story."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.processes import PATIENCE_S
from sunk_lab.stack.kubeapi import KubeApi, condition
from sunk_lab.stack.raw import Object, dig_list, dig_text
from sunk_lab.stack.slurmapi import SlurmApi, job_state, node_state

PAUSE_S: Final = 0.005
TAINT: Final = "sunk.coreweave.com/lock"
CORDON_REASON: Final = "node.coreweave.cloud/cordonReason"


class StoryError(LabError):
    """A step did not hold: what was expected, and what was seen instead."""


@dataclass(frozen=True, kw_only=True)
class ComputeNode:
    """One Node with its NodeSet Pod, whose name is the Slurm node's."""

    kube_node: str
    node: str
    namespace: str


def until(
    what: str, test: Callable[[], bool], seen: Callable[[], object], *, patience_s: float = PATIENCE_S
) -> float:
    """Wait until *test* holds and return the seconds that it took.

    Raises:
        StoryError: it did not within *patience_s*; says what was *seen* instead.
    """
    began = time.monotonic()
    while True:
        try:
            if test():
                return time.monotonic() - began
        except (LabError, OSError) as error:
            if time.monotonic() - began > patience_s:
                raise StoryError(f"{what}: {error}") from error
        if time.monotonic() - began > patience_s:
            raise StoryError(f"{what}: not within {patience_s:.0f} s; seen: {seen()}")
        time.sleep(PAUSE_S)


class Eyes:
    """Looks at both sides."""

    def __init__(self, kube: KubeApi, slurm: SlurmApi) -> None:
        self.kube = kube
        self.slurm = slurm

    def drain_reason(self, node: str) -> str | None:
        """Return why Slurm drains *node*; None if it does not."""
        found = self.slurm.node(node)
        return dig_text(found, "reason") if "DRAIN" in node_state(found) else None

    def pod_condition(self, node: ComputeNode, kind: str) -> tuple[str, str]:
        """Return status and message of a condition of the NodeSet Pod."""
        return _status(condition(self.kube.get("Pod", node.node, node.namespace), kind))

    def node_condition(self, node: ComputeNode, kind: str) -> tuple[str, str]:
        """Return status and message of a condition of the Node."""
        return _status(condition(self.kube.get("Node", node.kube_node), kind))

    def lock(self, node: ComputeNode) -> tuple[str, bool]:
        """Return the lock annotation of the Node, and whether the taint is on."""
        found = self.kube.get("Node", node.kube_node)
        value = dig_text(found, "metadata", "annotations", TAINT) or "false"
        return value, any(taint["key"] == TAINT for taint in dig_list(found, "spec", "taints"))

    def pods(self, namespace: str, label: str) -> list[Object]:
        """Return the Pods that *label* selects."""
        return self.kube.list("Pod", namespace, labelSelector=label)

    def job_words(self, job: int) -> set[str]:
        """Return the words of the job's state; empty once slurmctld has forgotten it."""
        return job_state(self.slurm.job(job))


def is_running(pod: Object | None) -> bool:
    """Whether the Pod runs and is not on its way out."""
    return bool(
        pod and pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    )


def _status(found: Object | None) -> tuple[str, str]:
    return (str(found["status"]), str(found.get("message", ""))) if found else ("absent", "")
