"""The Pods of a NodeSet, each with what Slurm says of its node; pure.

What must stay true: what Slurm does not say is never taken for "idle".

Source: SUNK's documents, NodeSet, "Safe deletion": not ready, idle, draining, running; the newest first.
"""

from datetime import timedelta
from enum import IntEnum
from typing import Final

import msgspec

from sunk_events.nodes import SlurmNodeState
from sunk_kube import wellknown as wk
from sunk_kube.objects import condition
from sunk_kube.pods import Pod
from sunk_nodeset_controller.nodesets.model import Observed
from sunk_nodeset_controller.nodesets.template import pinned_node, template_hash
from sunk_nodeset_controller.nodesets.usable import unusable
from sunk_nodeset_controller.slurm_health import was_known
from sunk_runtime.losses import is_mass_loss

AWAY_S: Final = 60.0
"""A Pod that was not ready for so long is away: losing it costs nothing more. A moment is no reason."""


class Cost(IntEnum):
    """What losing a Pod costs, the cheapest first."""

    NOT_READY = 0
    """Or of no use to Slurm."""
    IDLE = 1
    DRAINING = 2
    RUNNING = 3


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that lives: it has neither ended nor is it being deleted."""

    pod: Pod
    is_updated: bool
    """It was made of the present template."""
    is_available: bool
    """It is ready, and has been for long enough; an updated one also has a node that Slurm can use."""
    available_in_s: float | None = None
    """When it becomes available if it stays ready."""
    unusable: str = ""
    """Why Slurm, which is heard, cannot use its node; nothing if it can."""
    away_in_s: float | None = None
    """When it has been not ready for so long that it is away; None: it is ready, or will be by itself."""
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
    def is_away(self) -> bool:
        """It is not ready, and was not for so long, or never: losing it costs nothing more."""
        return self.away_in_s is not None and self.away_in_s <= 0

    @property
    def is_lost(self) -> bool:
        """It is not ready because its Node is not: another one there would not be either."""
        return not self.pod.is_ready and self.away_in_s is None

    @property
    def is_missed(self) -> bool:
        """It does not serve, and that is no update's choice that is still to go."""
        if self.is_available:
            return False
        return self.is_updated or self.is_away or self.condemned != "update"

    @property
    def is_absent(self) -> bool:
        """Slurm does not know its node."""
        return self.is_known and self.slurm is None

    @property
    def cost(self) -> Cost:
        """What losing it costs. A node that Slurm says nothing of may run anything."""
        if not self.pod.is_ready:
            return Cost.NOT_READY
        if not self.is_known:
            return Cost.RUNNING
        if self.slurm is None or not self.slurm.is_busy:
            return Cost.NOT_READY if self.unusable else Cost.IDLE
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
    is_updated = pod.metadata.annotations.get(wk.ANNOTATION_TEMPLATE_HASH) == revision
    slurm = None if seen.slurm is None else seen.slurm.get(pod.metadata.name)
    of_no_use = unusable(pod, slurm) if seen.slurm is not None else ""
    return Member(
        pod=pod,
        is_updated=is_updated,
        is_available=left_s is not None and left_s <= 0 and not (is_updated and of_no_use),
        available_in_s=left_s if left_s is not None and left_s > 0 else None,
        unusable=of_no_use,
        away_in_s=_away_in_s(pod, seen),
        slurm=slurm,
        is_known=seen.slurm is not None,
    )


def _away_in_s(pod: Pod, seen: Observed) -> float | None:
    """Return when *pod* is away if it stays as it is.

    Where the kubelet is cut off, Kubernetes calls its Pods not ready, and their jobs run on. Back again, it
    tells of its Node first: from then on it has time to tell of its Pods.
    """
    if pod.is_ready:
        return None
    if not was_known(pod):
        return 0.0
    node = seen.nodes.get(pinned_node(pod))
    alive = condition(node.status.conditions, wk.CONDITION_READY) if node is not None else None
    if alive is not None and alive.status != "True":
        return None
    ready = condition(pod.status.conditions, wk.CONDITION_READY)
    since = (ready.last_transition_time if ready is not None else None) or pod.metadata.creation_timestamp
    known = [one for one in (since, alive.last_transition_time if alive is not None else None) if one]
    return max(AWAY_S - (seen.now - max(known, default=seen.now)).total_seconds(), 0.0)


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
    return is_mass_loss(sum(member.is_absent for member in ready), len(ready), percent=50)
