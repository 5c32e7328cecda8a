"""What a NodeSet is planned from, and what can be done for it: values only."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_events.placements import PlacementState
from sunk_kube.node_slices import NodeSlice
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_nodeset_controller.slurm_health import StaleReason

Why = Literal["update", "scale-down", "deletion"]
"""Why a Pod is condemned."""


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """Which Nodes can carry a Pod of a NodeSet, other NodeSets left aside."""

    invalid: str = ""
    """Why no Node can: the template is no Pod's."""
    obstacles: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Why a Node cannot, by name; a Node that can is not here."""


class UnreadGpus(msgspec.Struct, frozen=True):
    """A Node has GPUs by a label, and announces none yet."""

    why: str
    wait_s: float
    """For how long a Pod there still waits for them; 0: it has waited long enough, and is made without."""
    since: datetime
    """Since when it waits."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """One NodeSet and all that concerns it. Every list is whole: the observer makes sure of that."""

    nodeset: NodeSet
    nodes: Mapping[str, Node]
    """All Nodes of the Kubernetes cluster, by name."""
    fits: Fits
    pods: tuple[Pod, ...]
    """The set's own Pods."""
    slices: tuple[NodeSlice, ...] = ()
    """The set's own slices: which Nodes it has, under which names."""
    foreign: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Nodes that belong, or are left, to another NodeSet, by name, with that set's key."""
    let_go: frozenset[str] = frozenset()
    """Names of Nodes that the set had, and that another NodeSet has now, whether or not they fit."""
    taken: frozenset[str] = frozenset()
    """Names of Pods and Slurm nodes in the namespace that are not this set's."""
    name_conflicts: frozenset[str] = frozenset()
    """Those of them that Pods of no NodeSet have."""
    slurm: Mapping[str, SlurmNodeState] | None = None
    """What Slurm says of the set's nodes, by name; None: it is not known."""
    doubt: StaleReason | None = None
    """Why that is not to be relied upon, if it is not."""
    jobs: Mapping[str, tuple[SlurmJobState, ...]] = msgspec.field(
        default_factory=dict[str, tuple[SlurmJobState, ...]]
    )
    """The jobs that run on those nodes which an update waits for, where a rule asks for them."""
    placed_pods: Mapping[str, tuple[PlacementState, ...]] = msgspec.field(
        default_factory=dict[str, tuple[PlacementState, ...]]
    )
    """The Pods that Slurm has placed on those nodes."""
    failures: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    """How often in a row the Pod of a name has ended by itself, as the slices have it."""
    failed: frozenset[str] = frozenset()
    """The uids of Pods that count there already."""
    unread: Mapping[str, UnreadGpus] = msgspec.field(default_factory=dict[str, UnreadGpus])
    """Nodes without a Pod of the set whose GPUs are not known yet, by name: their Pods wait, or have."""
    refusal: str = ""
    """Why the NodeSet as a whole is not carried out; nothing if it is."""
    now: datetime
    replace_after_s: float = 10.0


class CreatePod(msgspec.Struct, frozen=True):
    """Run a slurmd on a Node."""

    name: str
    kube_node: str


class ReplacePod(msgspec.Struct, frozen=True):
    """Delete a Pod that has ended, so that another takes its place, or that waits for a Node that is gone."""

    name: str
    uid: str
    phase: str


class CondemnPod(msgspec.Struct, frozen=True):
    """Mark a Pod as one that is to go: its Slurm node is drained, and nothing is deleted yet."""

    name: str
    uid: str
    why: Why


class ReleasePod(msgspec.Struct, frozen=True):
    """Take the mark back: the Pod stays."""

    name: str
    uid: str


class DeletePod(msgspec.Struct, frozen=True):
    """Delete a condemned Pod whose Slurm node was seen drained and idle. To be confirmed before.

    ``is_unknown_fine``: it may also go if Slurm does not know its node.
    """

    name: str
    uid: str
    is_unknown_fine: bool = False


class RequeueJobOn(msgspec.Struct, frozen=True):
    """Put a job back into the queue that an update does not wait for."""

    job: int
    node: str


class EvictPlacedPod(msgspec.Struct, frozen=True):
    """Evict a Pod that Slurm has placed on a node to be updated, as its disruption budgets allow."""

    namespace: str
    name: str
    uid: str
    node: str
    """The Slurm node."""
    job: int | None = None
    """Its placeholder job."""


Action = CreatePod | ReplacePod | CondemnPod | ReleasePod | DeletePod | RequeueJobOn | EvictPlacedPod


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now, and what is known of the Nodes."""

    actions: tuple[Action, ...] = ()
    again_s: float | None = None
    """When to look again though nothing changes."""
    feasible: frozenset[str] = frozenset()
    """Names of Nodes."""
    obstacles: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Why the other Nodes are not, by name."""
    failed: frozenset[str] = frozenset()
    """Those of them that became not ready during the update, and whose Pods it counts as away."""
    invalid: str = ""
    """Why nothing can be made; nothing if it can."""
    refused: str = ""
    """What the API server would not have of it; nothing if it took all."""
    stuck: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Pods that could not be evicted when this was carried out, and why."""
    is_over: bool = False
    """The NodeSet is being deleted and nothing of it is left: it may go."""
