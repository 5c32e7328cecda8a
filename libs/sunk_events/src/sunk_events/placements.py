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


class GangMember(msgspec.Struct, frozen=True, kw_only=True):
    """One seat of a gang, and the Pod that has it or had it last."""

    uid: str
    pod: str
    index: str = ""
    """Which of its workload's Pods it is, as the workload counts; a replacement has the same."""
    node: str = ""
    """The Slurm node of the seat."""
    has_succeeded: bool = False
    vacant: Moment | None = None
    """Since when the seat waits for another Pod, or is empty for good."""

    @property
    def is_empty(self) -> bool:
        """Nobody is expected to be there."""
        return self.has_succeeded or self.vacant is not None


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that one job places together."""

    kind: str
    """What made the Pods: ``Job``, ``JobSet``, ``LeaderWorkerSet`` or ``PodGroup``."""
    members: tuple[GangMember, ...]
    """By rank."""
    members_per_node: Annotated[int, Meta(gt=0)] = 1
    policy: Literal["fail", "replace"] = "fail"
    """What becomes of the gang when a member dies: it ends, or another Pod takes the seat."""
    min_available: Count = 0
    """With how many members it may start and go on; 0: all of them."""
    cpus: Count = 0
    """Of one seat, as are the next two."""
    memory_mib: Count = 0
    gpus: Count = 0
    shape: Annotated[str, Meta(max_length=64)] = ""
    """Digest, in hex, of what all members ask of Slurm alike, such as user and account; empty: not stored."""


class PlacementState(State, frozen=True, kw_only=True, tag="sunk.pod_scheduler.v1.placement"):
    """One Pod that Slurm places. Key: its uid. Deleted when Pod and job are both gone.

    A gang has a placement of its own beside those of its members: ``uid`` is the gang's, ``pod`` the name of
    its workload, and what is true of the one job is told there.
    """

    uid: str
    namespace: str
    pod: str
    phase: PlacementPhase
    attempt: Count = 0
    """Which placeholder job it is: later ones have higher numbers. Of a Pod: how many it had before; a gang's
    begin with its coming, as it has its key again when it is made again."""
    job: JobId | None = None
    submitted: Moment | None = None
    """When Slurm took the job that runs: its number may mean another later."""
    node: str = ""
    """The Slurm node that runs the placeholder."""
    kube_node: str = ""
    token_sha256: Annotated[str, Meta(max_length=64)] = ""
    """Hex. A caller with a token of this digest speaks for this placeholder."""
    is_pod_present: bool = True
    """The Pod's object exists and it has neither succeeded nor failed."""
    is_overdue: bool = False
    exit_code: int | None = None
    """How the placeholder's script shall end: 0 where the Pod succeeded or was deleted."""
    reason: Reason = ""
    created: Moment | None = None
    """The Pod's creation."""
    silent: Moment | None = None
    """Since when the placeholder's script has not been heard: its poll was cut, and no other has come."""
    lost: Moment | None = None
    """Since when the Pod runs without a job that Slurm knows: slurmctld has lost its state."""
    lost_job: JobId | None = None
    """The number of the job that was lost: its script may be on the node yet, for some time."""
    bound: Moment | None = None
    """When the Pod was bound for this job, which ran then."""
    gang: str = ""
    """Of a member: the key of its gang's placement, whose job this one shares."""
    rank: Count | None = None
    """Of a member: its place in the gang, from 0; known once its node is."""
    roster: Gang | None = None
    """Of a gang's own placement: who is in it."""
    start_told: Moment | None = None
    """When Slurm expects to start the job, which waits, as its Pod says; None: it says no time."""
