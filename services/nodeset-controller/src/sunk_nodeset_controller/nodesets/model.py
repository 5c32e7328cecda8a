"""What a NodeSet is planned from, and what can be done for it: values only."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node, Pod


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """One NodeSet and all that concerns it. Every list is whole: who builds this has seen to that."""

    nodeset: NodeSet
    nodes: tuple[Node, ...]
    """All Nodes of the Kubernetes cluster."""
    pods: tuple[Pod, ...]
    """The set's own Pods."""
    foreign: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Nodes that belong to another NodeSet, by name, with that set's key."""
    taken: frozenset[str] = frozenset()
    """Names of Pods in the namespace that are not this set's, or that a Node of another set has."""
    refusal: str = ""
    """Why the NodeSet as a whole is not carried out; nothing if it is."""
    lock_key: str
    now: datetime
    replace_after_s: float = 10.0


class CreatePod(msgspec.Struct, frozen=True):
    """Run a slurmd on a Node."""

    name: str
    kube_node: str


class ReplacePod(msgspec.Struct, frozen=True):
    """Delete a Pod that has ended, so that another takes its place."""

    name: str
    uid: str
    phase: str


Action = CreatePod | ReplacePod


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now, and what is known of the Nodes."""

    actions: tuple[Action, ...] = ()
    again_s: float | None = None
    """When to look again though nothing changes."""
    feasible: frozenset[str] = frozenset()
    """Names of Nodes."""
    obstacles: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Why the other Nodes are not, by name."""
    invalid: str = ""
    """Why nothing can be planned; nothing if it can."""
