"""Facts and state of Pods that Slurm places, and of their placeholder jobs. Owner: pod-scheduler."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sunk_events.base import Count, Event, JobId, Moment, Reason, State

PlacementPhase = Literal["refused", "submitted", "released", "started", "bound", "ending", "ended"]
"""``refused``: not valid, waits for a change of the Pod; ``submitted``: its job is held; ``released``: its
job waits for Slurm; ``started``: its script has announced itself; ``bound``: the Pod is on its Node;
``ending``: the Pod or the job is over and the other follows; ``ended``: the Pod is gone or finished and the
job may go."""


class PlacementSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a fact about a placement says of it."""

    uid: str
    namespace: str
    pod: str
    job: JobId | None = None
    node: str = ""
    kube_node: str = ""
    reason: Reason = ""
    waited_s: float | None = None
    """From the Pod's creation to this fact."""


class PlacementRefused(Event, frozen=True, kw_only=True, tag="sunk.pod_scheduler.v1.placement_refused"):
    """A Pod asks for something that cannot be passed to Slurm."""

    data: PlacementSnapshot


class PlacementSubmitted(Event, frozen=True, kw_only=True, tag="sunk.pod_scheduler.v1.placement_submitted"):
    """A Pod has a placeholder job."""

    data: PlacementSnapshot


class PlacementStarted(Event, frozen=True, kw_only=True, tag="sunk.pod_scheduler.v1.placement_started"):
    """The placeholder's script runs: the Node is locked for the Pod."""

    data: PlacementSnapshot


class PlacementBound(Event, frozen=True, kw_only=True, tag="sunk.pod_scheduler.v1.placement_bound"):
    """The Pod is bound to the Node that Slurm chose."""

    data: PlacementSnapshot


class PlacementOverdue(Event, frozen=True, kw_only=True, tag="sunk.pod_scheduler.v1.placement_overdue"):
    """The job is about to go, or gone, and its Pod is still there."""

    data: PlacementSnapshot


class PlacementEnded(Event, frozen=True, kw_only=True, tag="sunk.pod_scheduler.v1.placement_ended"):
    """The Pod is gone or finished and its job need not stay."""

    data: PlacementSnapshot


class PlacementState(State, frozen=True, kw_only=True, tag="sunk.pod_scheduler.v1.placement"):
    """One Pod that Slurm places. Key: its uid. Deleted when Pod and job are both gone."""

    uid: str
    namespace: str
    pod: str
    phase: PlacementPhase
    attempt: Count = 0
    """How many placeholder jobs it had before this one."""
    job: JobId | None = None
    node: str = ""
    """The Slurm node that runs the placeholder."""
    kube_node: str = ""
    token_sha256: Annotated[str, Meta(max_length=64)] = ""
    """Hex. Who knows a token with this digest speaks for this placeholder."""
    is_pod_present: bool = True
    """The Pod's object exists and it has neither succeeded nor failed."""
    is_overdue: bool = False
    exit_code: int | None = None
    """How the placeholder's script shall end: 0 where the Pod succeeded or was deleted."""
    reason: Reason = ""
    created: Moment | None = None
    """The Pod's creation."""
    lost: Moment | None = None
    """Since when the Pod runs without a job that Slurm knows: slurmctld has lost its state."""
