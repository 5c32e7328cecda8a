"""The parts of Kubernetes' objects that we read, as structs. Whatever is not named here is not even decoded.

All fields have defaults: an object that lacks one decodes, and so does a bookmark. The structs hold no
cycles, so the collector need not track them (measured: 41 us a Node, a third of it saved).
What we create is never built from these: they would lose the fields that they do not know.

Source: Kubernetes API 1.31 to 1.36, core/v1, coordination.k8s.io/v1.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import field

from sunk_kube.quantity import Quantity

Texts = Mapping[str, str]


class KubeStruct(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The base of all: JSON's camelCase outside, snake_case inside."""


class OwnerReference(KubeStruct, frozen=True):
    """The object that made another one, and with which that one ends."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(KubeStruct, frozen=True):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Texts = field(default_factory=dict[str, str])
    annotations: Texts = field(default_factory=dict[str, str])
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class KubeObject(KubeStruct, frozen=True):
    """Any object; on its own, one whose metadata is all that matters."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def key(self) -> str:
        """``namespace/name``, or ``name`` where there is no namespace."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class ConfigMap(KubeObject, frozen=True):
    """Files by name, as text."""

    data: Texts = field(default_factory=dict[str, str])


class Secret(KubeObject, frozen=True):
    """Files by name, in base64."""

    data: Texts = field(default_factory=dict[str, str])


class Condition(KubeStruct, frozen=True):
    """A condition of a Pod, a Node or a NodeSet."""

    type: str = ""
    status: str = ""
    """``True``, ``False`` or ``Unknown``."""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None
    """Of a Node's condition: when it was last looked at."""
    last_probe_time: datetime | None = None
    """Of a Pod's condition: the same."""
    observed_generation: int = 0


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """Return the condition of type *kind*, if it is there."""
    for found in conditions:  # Asked for every Pod at every turn: a generator costs three times as much.
        if found.type == kind:
            return found
    return None


class Taint(KubeStruct, frozen=True):
    """What keeps Pods off a Node, or drives them away."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(KubeStruct, frozen=True):
    """What a Node is meant to be."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeAddress(KubeStruct, frozen=True):
    """One of a Node's addresses."""

    type: str = ""
    address: str = ""


class NodeStatus(KubeStruct, frozen=True):
    """What a Node is."""

    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    allocatable: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity])
    capacity: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity])


class Node(KubeObject, frozen=True):
    """A Kubernetes Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def internal_ip(self) -> str:
        """The first InternalIP, or nothing."""
        return next((found.address for found in self.status.addresses if found.type == "InternalIP"), "")


class LeaseSpec(KubeStruct, frozen=True):
    """The holder of a lease, since when, and how often it changed hands."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True):
    """A lease of coordination.k8s.io."""

    spec: LeaseSpec = LeaseSpec()
