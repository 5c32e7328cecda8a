"""Questions and answers between services, one pair a question. No stream ever holds them.

``Later`` is an answer to every question: the answerer does not know yet, or is not able to. It is never "no".
"""

from typing import Annotated

import msgspec
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
    waited_s: Annotated[float, Meta(ge=0)] = 0.0
    """For how long that caller has waited: a lock that was granted since is its answer."""
    left_s: Annotated[float, Meta(ge=0)] | None = None
    """How long it is until the deadline, which needs no clock; None where an older version asks."""


class LockGranted(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.lock_granted"):
    """The Node is locked for the job."""


class BlockingPod(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that keeps a Node from being locked."""

    pod: str
    """``namespace/name``."""
    since: Moment | None = None
    """When it was first asked to go; None where it was not asked."""
    because: Reason = ""
    """What keeps it: a PodDisruptionBudget, a finalizer, its grace period..."""


class LockWaiting(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.lock_waiting"):
    """Not yet: these Pods are in the way. The lock goes on while the asker asks again."""

    in_the_way: tuple[str, ...]
    blocking: tuple[BlockingPod, ...] = ()
    """The first few of them with what keeps them."""
    is_drain_allowed: bool = True
    """At the deadline: drain the node. False: as many as may be are drained by failed locks already."""
    is_hold_needed: bool = False
    """At the deadline: the job is to be held, and not only requeued."""


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


class ConfirmJobs(Request, frozen=True, kw_only=True, tag="sunk.request.v1.confirm_jobs"):
    """Which of *jobs* run, by what Slurm says now? Asked by nodeset-controller, answered by syncer.

    Before *node* is locked for others beside the Pods of these jobs: what the bus says of them may be old.
    """

    node: NodeName
    jobs: Annotated[tuple[JobId, ...], Meta(max_length=4096)]
    submitted: Annotated[tuple[Moment | None, ...], Meta(max_length=4096)] = ()
    """When Slurm took each of them, in their order, where that is known: a job of that number that it took at
    another moment is none of them."""


class JobsConfirmed(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.jobs_confirmed"):
    """What a list showed that was asked for after the question had come."""

    running: Annotated[tuple[JobId, ...], Meta(max_length=4096)] = ()
    """Those of them that run or are suspended; the others have ended, complete, wait, or are not known."""


class NudgeNode(Request, frozen=True, kw_only=True, tag="sunk.request.v1.nudge_node"):
    """Look at *node* now. Any user of the bus may ask; answered by syncer with `Noted` before it looks."""

    node: NodeName


class NudgeJob(Request, frozen=True, kw_only=True, tag="sunk.request.v1.nudge_job"):
    """Look at *job* now. Any user of the bus may ask; answered by syncer with `Noted` before it looks."""

    job: JobId


class PlacementAnnounced(Request, frozen=True, kw_only=True, tag="sunk.request.v1.placement_announced"):
    """The placeholder *job*'s script runs on *node*. Asked by hook-gateway, answered by pod-scheduler."""

    job: JobId
    node: NodeName
    token: Annotated[str, Meta(max_length=128)]


class PlacementSilent(Request, frozen=True, kw_only=True, tag="sunk.request.v1.placement_silent"):
    """The poll of the placeholder *job*'s script was cut, which may be the first sign of its death.

    Asked by hook-gateway, answered by pod-scheduler. A gateway that the script calls afterwards announces it
    again.
    """

    job: JobId


class ReleasePlacement(Request, frozen=True, kw_only=True, tag="sunk.request.v1.release_placement"):
    """*job* is to end: delete its Pod. Asked by hook-gateway, answered by pod-scheduler.

    ``token`` is empty where the caller is the node's own epilog, which the gateway tells by its node token.
    """

    job: JobId
    token: Annotated[str, Meta(max_length=128)] = ""
    node: NodeName | None = None
    """Whose epilog it is, where there is no token; None where an older version asks."""


class PlacementReleased(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.placement_released"):
    """Whether the Pod of the job is gone."""

    is_pod_gone: bool
    pod: str = ""
    """``namespace/name``, empty where the job is no placeholder."""


class RebootNode(Request, frozen=True, kw_only=True, tag="sunk.request.v1.reboot_node"):
    """Have *node*'s Node rebooted. Asked by hook-gateway, answered by nodeset-controller.

    `Noted`: the Node's condition asks for it. `Refused`: the Slurm cluster may not, and what would let it.
    """

    node: NodeName
    who: Annotated[str, Meta(min_length=1, max_length=512)]
    """Who called the hook, for the record: a Pod's name or a user's."""


class RequeueJob(Request, frozen=True, kw_only=True, tag="sunk.request.v1.requeue_job"):
    """Put *job* back into the queue, because an update rule says so. Asked by nodeset-controller.

    Answered by syncer. `Noted`: it is no longer on *node*, or on its way. `Refused`: it may not be requeued.
    """

    job: JobId
    node: NodeName
    """Where it is in the way. A job that no longer runs there is left alone."""
    reason: Reason


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is as it is, and why."""

    what: Reason
    """What is so: ``drained``, ``locked for job 4711``."""
    since: Moment | None = None
    because: Reason = ""
    would_change: Reason = ""
    """What would change it: who has to do what, or what is waited for."""


class Explanation(Reply, frozen=True, kw_only=True, tag="sunk.reply.v1.explanation"):
    """Why the thing asked about is as it is, the most important first; empty if nothing is to report."""

    findings: Annotated[tuple[Finding, ...], Meta(max_length=32)] = ()


class ExplainSlurmNode(Request, frozen=True, kw_only=True, tag="sunk.request.v1.explain_slurm_node"):
    """Why is *node* as it is in Slurm: its state, its drain and whose that is? Answered by syncer."""

    node: NodeName


class ExplainJob(Request, frozen=True, kw_only=True, tag="sunk.request.v1.explain_job"):
    """Why does *job* wait, or run where it does? Answered by syncer."""

    job: JobId
    is_ahead_named: bool = True
    """Name the jobs ahead of it in the queue, with their users; an earlier syncer always does."""


class ExplainJobToOwner(Request, frozen=True, kw_only=True, tag="sunk.request.v1.explain_job_to_owner"):
    """Why does *job* of *user* wait? Asked by hook-gateway for that user, answered by syncer.

    The answer names no Pod and no job of others. `Refused` as an unknown job: there is none of that user.
    """

    job: JobId
    user: Annotated[str, Meta(min_length=1, max_length=256)]
    """Slurm's name of the user who asks, which Slurm's own token proves."""


class ExplainKubeNode(Request, frozen=True, kw_only=True, tag="sunk.request.v1.explain_kube_node"):
    """Why are *node*'s Pod, its Node and their lock as they are? Answered by nodeset-controller."""

    node: NodeName
    """Its name in Slurm, which is the Pod's."""


class ExplainPlacement(Request, frozen=True, kw_only=True, tag="sunk.request.v1.explain_placement"):
    """Why is a Pod that Slurm places not bound, or not gone? Answered by pod-scheduler."""

    pod: Annotated[str, Meta(pattern=r"^[^/]+/[^/]+$", max_length=317)]
    """``namespace/name``."""
