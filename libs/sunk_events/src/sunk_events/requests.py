"""Questions and answers between services, one pair a question. No stream ever holds them.

``Later`` is an answer to every question: the answerer does not know yet, or is not able to. It is never "no".
"""

from typing import Annotated

from msgspec import Meta

from sunk_events.base import JobId, Moment, NodeName, Reason, Reply, Request
from sunk_events.locks import LockLevel


class Later(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.later"):
    """Ask again: views are incomplete, or a server behind does not answer."""

    reason: Reason
    retry_after_s: Annotated[float, Meta(ge=0)] = 1.0


class Refused(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.refused"):
    """Asking again will not help. ``code``: ``unknown_node``, ``unknown_job`` or ``forbidden``."""

    code: str
    reason: Reason


class Noted(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.noted"):
    """Done, or already so."""


class AcquireLock(Request, frozen=True, kw_only=True, tag="sunk.request.v1.acquire_lock"):
    """Lock *node* for *job*. Asked by hook-gateway, answered by nodeset-controller."""

    node: NodeName
    job: JobId
    level: LockLevel
    deadline: Moment
    """When the asker's own caller gives up."""


class LockGranted(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.lock_granted"):
    """The Node is locked for the job."""


class LockWaiting(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.lock_waiting"):
    """Not yet: these Pods are in the way. The lock goes on while the asker asks again."""

    in_the_way: tuple[str, ...]


class JobNotRunning(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.job_not_running"):
    """The job no longer runs on the node: nothing to lock for, and the prolog must not fail."""

    state: str


class ReleaseLock(Request, frozen=True, kw_only=True, tag="sunk.request.v1.release_lock"):
    """*job* has left *node*. Asked by hook-gateway, answered by nodeset-controller with `Noted`."""

    node: NodeName
    job: JobId


class ConfirmNode(Request, frozen=True, kw_only=True, tag="sunk.request.v1.confirm_node"):
    """Is *node* drained and idle, from a fresh look? Asked by nodeset-controller, answered by syncer."""

    node: NodeName


class NodeConfirmed(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.node_confirmed"):
    """What a fresh look at the one node showed."""

    node: NodeName
    is_known: bool
    """False: Slurm has no such node."""
    is_drained_and_idle: bool
    state: str = ""
    reason: Reason = ""


class NudgeNode(Request, frozen=True, kw_only=True, tag="sunk.request.v1.nudge_node"):
    """Look at *node* now. Asked by anyone, answered by syncer with `Noted` before it looks."""

    node: NodeName


class NudgeJob(Request, frozen=True, kw_only=True, tag="sunk.request.v1.nudge_job"):
    """Look at *job* now. Asked by anyone, answered by syncer with `Noted` before it looks."""

    job: JobId


class PlacementAnnounced(Request, frozen=True, kw_only=True, tag="sunk.request.v1.placement_announced"):
    """The placeholder *job*'s script runs on *node*. Asked by hook-gateway, answered by pod-scheduler."""

    job: JobId
    node: NodeName
    token: Annotated[str, Meta(max_length=128)]


class ReleasePlacement(Request, frozen=True, kw_only=True, tag="sunk.request.v1.release_placement"):
    """*job* is to end: delete its Pod. Asked by hook-gateway, answered by pod-scheduler.

    ``token`` is empty where the caller is the node's own epilog, which the gateway tells by its node token.
    """

    job: JobId
    token: Annotated[str, Meta(max_length=128)] = ""


class PlacementReleased(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.placement_released"):
    """Whether the Pod of the job is gone."""

    is_pod_gone: bool
    pod: str = ""
    """``namespace/name``, empty where the job is no placeholder."""
