"""Facts and state of node locks. Owner: nodeset-controller."""

from typing import Literal

import msgspec

from sunk_events.base import Count, Event, JobId, Moment, NodeName, State

LockLevel = Literal["normal", "strict"]
"""``strict``: nothing else may be left bound to the Node, so that the kubelet admits a placeholder's Pod."""
LockValue = Literal["false", "pending", "locked", "locked_strict"]
"""The value of the annotation ``sunk.coreweave.com/lock``."""


class LockSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a fact about a lock says of it."""

    node: NodeName
    kube_node: str
    lock: LockValue
    jobs: tuple[JobId, ...] = ()
    in_the_way: tuple[str, ...] = ()
    """The first few Pods that keep it from being locked, as ``namespace/name``."""
    waited_s: float | None = None
    """From ``pending`` to ``locked``, where that is what happened."""


class LockPending(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.lock_pending"):
    """A Node is tainted for a job, and other workloads have to leave it first; else it is locked at once."""

    data: LockSnapshot


class LockLocked(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.lock_locked"):
    """No other workload is left on the Node, as its level asks."""

    data: LockSnapshot


class LockUnlocked(Event, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.lock_unlocked"):
    """The lock is gone, the taint with it."""

    data: LockSnapshot


class LockHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a Node is locked for, or being locked for."""

    job: JobId
    level: LockLevel
    granted: Moment | None = None
    """When it was told that the Node is locked; None while it waits."""
    asked: Moment | None = None
    """Since when it waits: its prolog asked, it was seen to run there, or the taint was taken off."""


class FailedLock(msgspec.Struct, frozen=True, kw_only=True):
    """That a lock was not to be had by its prolog's deadline, and its node may be drained for it."""

    at: Moment
    """When that was decided; stored before the prolog is told."""
    in_the_way: tuple[str, ...] = ()
    """The Pods that were, as ``namespace/name``; of more than a hundred the first."""


class LockState(State, frozen=True, kw_only=True, tag="sunk.nodeset_controller.v1.lock"):
    """One Node's lock as others may see it; the truth stands on the Node. Key: the Slurm node's name."""

    node: NodeName
    kube_node: str
    lock: LockValue
    holders: tuple[LockHolder, ...] = ()
    in_the_way: tuple[str, ...] = ()
    leaving: Count | None = None
    """How many Pods a waiting job waits for, of which `in_the_way` names the first; 0 where no job waits for
    one. None: an earlier nodeset-controller, which does not say."""
    leaving_until: Moment | None = None
    """When the kubelet ends the last of them; None where one was not asked to go yet, or none is there."""
    failed: FailedLock | None = None
    """The last that did, for two minutes and for as long as the node is drained for it."""
