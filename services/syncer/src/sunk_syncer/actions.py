"""What the syncer can do to a Slurm node, and the node's two sides that it decides upon."""

import msgspec

from sunk_events.base import UNKNOWN, Cause
from sunk_events.locks import LockState
from sunk_events.nodesets import KubePodState
from sunk_slurm.states import NodeState
from sunk_slurm.wire import Features


class DrainNode(msgspec.Struct, frozen=True):
    """Set DRAIN, or change the reason of a drain that is ours."""

    node: str
    reason: str
    cause: Cause = UNKNOWN


class UndrainNode(msgspec.Struct, frozen=True):
    """Take a drain of ours away."""

    node: str
    cause: Cause = UNKNOWN


class DownNode(msgspec.Struct, frozen=True):
    """Set DOWN so that jobs are requeued at once; None keeps the reason that stands there."""

    node: str
    reason: str | None
    cause: Cause = UNKNOWN


class ResumeNode(msgspec.Struct, frozen=True):
    """Take a node out of DOWN that we have set down for no fault of its own."""

    node: str
    cause: Cause = UNKNOWN


class DescribeNode(msgspec.Struct, frozen=True):
    """Replace a node's Extra, its features, or both; None stays as it is."""

    node: str
    extra: str | None = None
    features: Features | None = None
    cause: Cause = UNKNOWN


class PlaceNode(msgspec.Struct, frozen=True):
    """Set a node's place in Slurm's topologies."""

    node: str
    topology: str
    cause: Cause = UNKNOWN


class DeleteNode(msgspec.Struct, frozen=True):
    """Delete the record of a node that registered itself."""

    node: str
    cause: Cause = UNKNOWN


Action = DrainNode | UndrainNode | DownNode | ResumeNode
"""What the table of drains asks for."""
NodeAction = Action | DescribeNode | PlaceNode | DeleteNode
"""Everything that the syncer does to a Slurm node."""


class SlurmInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What counts of a Slurm node."""

    node: str
    state: NodeState
    reason: str = ""
    reason_age_s: float = float("inf")
    """How long the reason stands there, on slurmctld's clock; infinite where Slurm does not say, and less
    than any age while that clock was not compared with ours yet."""
    clock_ahead_s: float = 0.0
    """By how much slurmctld's clock seems to be ahead of ours: one of the two is wrong."""


class KubeInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What Kubernetes' side says of the same node."""

    pod: KubePodState | None = None
    """None: no NodeSet knows it."""
    is_overdue: bool = False
    """A placeholder's Pod is still there although its job is over or about to be."""
    is_pod_leaving: bool = False
    """The same from what we know of the job: enough to keep the drain of one that was overdue."""
    are_placements_known: bool = True
    """False: the bus may have lost them, and no Pod is known not to be overdue."""
    verified_age_s: float = float("inf")
    """How long ago the Node passed its verification; infinite where it never did."""
    lock: LockState | None = None
    is_downed: bool = False
    """It was set down for the Pod that is gone already; once is enough."""
    pod_event: Cause = UNKNOWN
    """What made the Pod and its Node what they are here."""
    placement_event: Cause = UNKNOWN
    """The same of the placement that counts: one that is overdue before the others, else the newest."""
    lock_event: Cause = UNKNOWN
    """The same of the lock."""


def gone_uid(pod: KubePodState | None) -> str:
    """Return the Pod that is gone, and its slurmd with it, while no new one has started; empty: none is."""
    if pod is None:
        return ""
    return pod.uid if pod.phase == "gone" else pod.gone_uid
