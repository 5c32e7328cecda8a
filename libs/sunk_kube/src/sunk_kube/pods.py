"""The parts of a Pod that we read, as structs; `objects` has what other objects share with it.

Source: Kubernetes API 1.31 to 1.36, core/v1.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import field

from sunk_kube.objects import Condition, KubeObject, KubeStruct, Texts, condition
from sunk_kube.quantity import Quantity


class Toleration(KubeStruct, frozen=True):
    """A taint that a Pod bears."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


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
    def deletion_requested(self) -> datetime | None:
        """When its deletion was asked for; None: it is not being deleted, or that moment is not known.

        Kubernetes stores when the grace period ends, and has no upper bound for the latter: of centuries its
        64-bit nanoseconds overflow, and what is left lies before the Pod was made, or outside of all times.
        """
        meta = self.metadata
        if meta.deletion_timestamp is None:
            return None
        try:
            found = meta.deletion_timestamp - timedelta(seconds=meta.deletion_grace_period_seconds or 0)
        except OverflowError:
            return None
        return None if meta.creation_timestamp is not None and found < meta.creation_timestamp else found

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
