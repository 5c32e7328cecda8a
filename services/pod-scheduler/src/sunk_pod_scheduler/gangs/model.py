"""What the scheduler sees of one gang, and what it can do about it. Values only."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from sunk_events.placements import Gang, PlacementState
from sunk_pod_scheduler.placement.actions import (
    CancelJob,
    ExcludeNodes,
    Forget,
    GiveUp,
    MarkStarted,
    Record,
    RecordReason,
    Refuse,
    ReleaseJob,
    ReportLoss,
    Resume,
    Wait,
)
from sunk_pod_scheduler.placement.gang_membership import GangOptions
from sunk_pod_scheduler.placement.model import PodSeen, Seen
from sunk_pod_scheduler.podspec.validation import ValidatedPod
from sunk_pod_scheduler.reasons import PodReason


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How many members a workload is to have, or why nobody can say."""

    count: int | None = None
    declared: int | None = None
    """How many there are of it in all, those that have succeeded included; None: as many."""
    problem: str = ""


class MemberSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that belongs to the gang, whether or not it has a seat."""

    uid: str
    pod: PodSeen
    """Its claim is that of the gang's job."""
    index: str = ""
    terms: GangOptions = GangOptions()
    wanted: ValidatedPod | None = None
    """What it asks of Slurm; None where something is wrong with it."""
    node: str = ""
    """The Slurm node of the Node that it is bound to, where no seat says which it is to have."""
    wish: bytes = b""
    """Digest of what it asks of its Node."""
    host_ports: frozenset[tuple[str, int]] = frozenset()
    """Protocol and number of each."""
    owner: str = ""
    """The uid of its controller."""
    published_size: int | None = None
    """How many its gang were told to be when it was bound: no wish of its user."""
    place: tuple[tuple[int, ...], str] = ((), "")
    """By what members are sorted: as of `gang_membership.order`."""
    rank: int | None = None
    """As its annotation says: believed only where nothing else is left."""
    node_problem: str = ""
    """Why it may not be bound to its seat's Node."""

    @property
    def is_free(self) -> bool:
        """It waits for a seat, or could take one."""
        pod = self.pod
        return not (pod.is_over or pod.is_terminating or pod.kube_node or pod.is_gated)

    @property
    def is_well(self) -> bool:
        """It lives and is meant to go on living."""
        return not (self.pod.is_over or self.pod.is_terminating)

    @property
    def has_succeeded(self) -> bool:
        """It has done its work. One that was deleted has not, whatever its containers say to that."""
        return self.pod.is_over and not self.pod.is_terminating and self.pod.exit_code == 0

    @property
    def is_able(self) -> bool:
        """It lives, or has done its work: its gang does not lack it."""
        return self.is_well or self.has_succeeded

    @property
    def is_on_node(self) -> bool:
        """A kubelet may still run something of it."""
        return bool(self.pod.kube_node) and not self.pod.is_finished


class GangSeen(Seen, frozen=True, kw_only=True):
    """All that is known of one gang."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    size: int | None = None
    """How many members it is to have; None while nobody could say."""
    declared: int | None = None
    """How many the workload has in all, those that have succeeded included; None: as many."""
    size_problem: str = ""
    """Why nobody ever will."""
    members: Mapping[str, MemberSeen] = {}
    """Its Pods by uid, in the order of ranks. A member with a seat that is not here is certainly gone."""
    seats: Mapping[str, PlacementState] = {}
    """The placements of members that are stored, by uid."""
    kube_nodes: Mapping[str, str] = {}
    """The Node of each of the job's Slurm nodes, where it is known."""
    switches: Mapping[str, tuple[str, ...]] = {}
    """What each of the job's Slurm nodes is below, from the top down."""


class SubmitGang(msgspec.Struct, frozen=True, kw_only=True):
    """Store the intent with its members, then submit a held job, write its id on the Pods, store it."""

    attempt: int
    gang: Gang


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is said on one Pod, by Event and condition."""

    reason: PodReason
    text: str
    is_warning: bool = False
    is_quiet: bool = False
    """Said by condition alone."""


class Notify(msgspec.Struct, frozen=True, kw_only=True):
    """Say on Pods, by uid, what they wait for or what is wrong; said already, it is not said again.

    Then there is nothing to do until something changes, or for *after_s* seconds.
    """

    notes: Mapping[str, Message]
    after_s: float | None = None


class SyncMemberStates(msgspec.Struct, frozen=True, kw_only=True):
    """Store the placements of members as the gang's says they are, and delete those of nobody."""

    states: tuple[PlacementState, ...] = ()
    gone: tuple[str, ...] = ()


class BindMembers(msgspec.Struct, frozen=True, kw_only=True):
    """Write rank and nodes on Pods, by uid, and bind each to the Node of its seat."""

    gang: Gang
    kube_nodes: Mapping[str, str]


class DeleteMembers(msgspec.Struct, frozen=True):
    """Delete Pods, by uid, with the grace that they ask for."""

    uids: tuple[str, ...]


GangAction = (
    Wait
    | Record
    | Refuse
    | RecordReason
    | ReportLoss
    | SubmitGang
    | Resume
    | ExcludeNodes
    | GiveUp
    | ReleaseJob
    | MarkStarted
    | CancelJob
    | Forget
    | Notify
    | SyncMemberStates
    | BindMembers
    | DeleteMembers
)


def on_its_node(found: MemberSeen, nodes: Mapping[str, str]) -> MemberSeen:
    """Return *found* with the Slurm node of its Node, where no seat says which it is to have."""
    return replace(found, node=nodes.get(found.pod.kube_node, ""), node_problem="")
