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
    """Who made an object, and whose end is its end."""

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


class Toleration(KubeStruct, frozen=True):
    """A taint that a Pod bears."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Taint(KubeStruct, frozen=True):
    """What keeps Pods off a Node, or drives them away."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSelectorRequirement(KubeStruct, frozen=True):
    """One comparison with a label or a field."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(KubeStruct, frozen=True):
    """Comparisons that must all hold. An empty term matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(KubeStruct, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(KubeStruct, frozen=True):
    """Which Nodes a Pod may run on; what it merely prefers is not read."""

    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinity(KubeStruct, frozen=True):
    """Beside which Pods a Pod may run, or may not; only whether it says anything is read."""

    required: tuple[Mapping[str, object], ...] = field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[Mapping[str, object], ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class TopologySpread(KubeStruct, frozen=True):
    """How a Pod wants its like to be spread; only that it does is read."""

    topology_key: str = ""
    when_unsatisfiable: str = ""
    """``DoNotSchedule`` or ``ScheduleAnyway``."""


class Affinity(KubeStruct, frozen=True):
    """Where a Pod may run."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class ResourceRequirements(KubeStruct, frozen=True):
    """What a container asks for and may use at most."""

    requests: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity])
    limits: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity])


class ContainerPort(KubeStruct, frozen=True):
    """A port that a container listens on."""

    host_port: int = 0
    """The Node's own; 0: none."""
    protocol: str = "TCP"


class Container(KubeStruct, frozen=True):
    """A container as it is asked for."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    """``Always`` on an init container: a sidecar, which counts as a container."""


class PodResourceClaim(KubeStruct, frozen=True):
    """Devices that a Pod asks for by a claim (dynamic resource allocation), by the Pod's name for them."""

    name: str = ""


class PodSpec(KubeStruct, frozen=True):
    """What a Pod asks for."""

    node_name: str = ""
    scheduler_name: str = ""
    service_account_name: str = ""
    priority_class_name: str = ""
    host_network: bool = False
    priority: int | None = None
    restart_policy: str = ""
    node_selector: Texts = field(default_factory=dict[str, str])
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[TopologySpread, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Mapping[str, Quantity] = field(default_factory=dict[str, Quantity])
    resources: ResourceRequirements | None = None
    """Of the Pod as a whole, where its containers share them."""
    scheduling_gates: tuple[Mapping[str, str], ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()


class ContainerTerminated(KubeStruct, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None


class ContainerWaiting(KubeStruct, frozen=True):
    """Why a container does not run yet, or not again."""

    reason: str = ""


class ContainerState(KubeStruct, frozen=True):
    """What a container does; of one that runs nobody needs to know more."""

    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(KubeStruct, frozen=True):
    """What became of a container."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class PodStatus(KubeStruct, frozen=True):
    """What a Pod is."""

    phase: str = ""
    """``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``."""
    reason: str = ""
    message: str = ""
    pod_ip: str = field(default="", name="podIP")
    host_ip: str = field(default="", name="hostIP")
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(KubeObject, frozen=True):
    """A Pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_ready(self) -> bool:
        """The Pod's condition ``Ready`` is True."""
        found = condition(self.status.conditions, "Ready")
        return found is not None and found.status == "True"

    @property
    def is_terminating(self) -> bool:
        """It has a deletion timestamp."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_over(self) -> bool:
        """It has succeeded or failed: nothing of it runs, or will."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def still_runs(self) -> bool:
        """It is over, and yet a container of it is shown that neither waits nor has ended.

        Nor has one left that no finalizer keeps: its object goes a moment later, with the last of it.
        """
        status = self.status
        shown = (*status.container_statuses, *status.init_container_statuses)
        may_run = any(one.state == ContainerState() for one in shown)
        return self.is_over and (may_run or not self.metadata.finalizers)

    @property
    def has_left(self) -> bool:
        """Its Node has no more of it, though a finalizer may keep its object."""
        return self.is_over and not (self.is_terminating and self.still_runs)


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
    """Who holds a lease, since when, and how often it changed hands."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True):
    """A lease of coordination.k8s.io."""

    spec: LeaseSpec = LeaseSpec()
