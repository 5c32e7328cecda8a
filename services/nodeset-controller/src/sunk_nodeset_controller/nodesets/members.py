"""The Pods of a NodeSet, each with what Slurm says of its node; pure.

What must stay true: what Slurm does not say is never taken for "idle".

Source: SUNK's documents, NodeSet, "Safe deletion": not ready, idle, draining, running; the newest first.
"""

from datetime import timedelta
from enum import IntEnum

import msgspec

from sunk_events.nodes import SlurmNodeState
from sunk_kube import wellknown as wk
from sunk_kube.objects import Pod, condition
from sunk_nodeset_controller.nodesets.model import Observed
from sunk_nodeset_controller.nodesets.template import template_hash


class Cost(IntEnum):
    """What losing a Pod costs, the cheapest first."""

    NOT_READY = 0
    IDLE = 1
    DRAINING = 2
    RUNNING = 3


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that lives: it has neither ended nor is it being deleted."""

    pod: Pod
    is_updated: bool
    """It was made of the present template."""
    is_available: bool
    """It is ready, and has been for long enough."""
    available_in_s: float | None = None
    """When it becomes available if it stays ready."""
    slurm: SlurmNodeState | None
    is_known: bool
    """Slurm was heard: that it says nothing of the node then means that it does not know it."""

    @property
    def name(self) -> str:
        """The Pod's name, which is the Slurm node's."""
        return self.pod.metadata.name

    @property
    def condemned(self) -> str:
        """Why it is condemned; nothing if it is not."""
        return condemned(self.pod)

    @property
    def is_absent(self) -> bool:
        """Slurm does not know its node."""
        return self.is_known and self.slurm is None

    @property
    def cost(self) -> Cost:
        """What losing it costs. A node that Slurm says nothing of may run anything."""
        if not self.pod.is_ready:
            return Cost.NOT_READY
        if self.slurm is None:
            return Cost.IDLE if self.is_known else Cost.RUNNING
        if not self.slurm.is_busy:
            return Cost.IDLE
        return Cost.DRAINING if self.slurm.is_drain else Cost.RUNNING

    @property
    def order(self) -> tuple[Cost, float, str]:
        """Sorts Pods by what losing them costs, the newest first."""
        created = self.pod.metadata.creation_timestamp
        return self.cost, -created.timestamp() if created else 0.0, self.name


def condemned(pod: Pod) -> str:
    """Return why *pod* is condemned; nothing if it is not."""
    return pod.metadata.annotations.get(wk.ANNOTATION_CONDEMNED, "")


def members(seen: Observed) -> list[Member]:
    """Return the Pods of the set that live, in no order."""
    revision = template_hash(seen.nodeset)
    return [_member(pod, seen, revision) for pod in seen.pods if not pod.is_over and not pod.is_terminating]


def _member(pod: Pod, seen: Observed, revision: str) -> Member:
    left_s = _left_s(pod, seen)
    return Member(
        pod=pod,
        is_updated=pod.metadata.annotations.get(wk.ANNOTATION_TEMPLATE_HASH) == revision,
        is_available=left_s is not None and left_s <= 0,
        available_in_s=left_s if left_s is not None and left_s > 0 else None,
        slurm=None if seen.slurm is None else seen.slurm.get(pod.metadata.name),
        is_known=seen.slurm is not None,
    )


def _left_s(pod: Pod, seen: Observed) -> float | None:
    """Return how many seconds *pod* still has to stay ready to be available; None: it is not ready."""
    ready = condition(pod.status.conditions, wk.CONDITION_READY)
    if ready is None or ready.status != "True":
        return None
    wanted_s = seen.nodeset.spec.min_ready_seconds or 0
    since = ready.last_transition_time or seen.now
    if since > seen.now:  # The kubelet's clock is ahead; the API server's is not.
        since = min(pod.metadata.creation_timestamp or seen.now, seen.now)
    return (since + timedelta(seconds=wanted_s) - seen.now).total_seconds() if wanted_s else 0.0


def is_loss(found: list[Member]) -> bool:
    """Whether Slurm does not know more than half of the nodes whose slurmd answers: no reason to act."""
    ready = [member for member in found if member.pod.is_ready]
    return sum(member.is_absent for member in ready) * 2 > len(ready)
