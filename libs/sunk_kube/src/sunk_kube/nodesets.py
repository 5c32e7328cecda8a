"""The NodeSet, as its manifest spells it: a set of Slurm nodes, one Pod per Kubernetes Node.

The custom resource definition is generated from these structs (`crds`), so limits and texts stand here.
Field names are SUNK's where they are published (``replicas``, ``podNamePrefix``, ``features``, the status
counts); the others are ours, and Kubernetes' own where a DaemonSet or StatefulSet has the same.
Defaults are ours alone and are never written into an object: what is stored stays what was applied.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field

from sunk_kube.objects import Condition, KubeObject, KubeStruct

PodNamePrefix = Annotated[
    str,
    Meta(
        pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        max_length=48,
        description="Prefix of the names of Pods and Slurm nodes. Default: the NodeSet's name.",
    ),
]
ClusterName = Annotated[
    str,
    Meta(
        pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        max_length=40,
        description="The Slurm cluster's name, unique in the Kubernetes cluster.",
    ),
]
Replicas = Annotated[
    int,
    Meta(ge=0, le=1_000_000, description="How many Nodes are wanted. Default: as many as are feasible."),
]
Seconds = Annotated[int, Meta(ge=0, le=31_536_000)]
FeatureName = Annotated[str, Meta(pattern="^[A-Za-z0-9_.:=+/-]+$", max_length=63)]
"""What Slurm takes as a feature: no comma, no operator of its constraints."""
NamePart = Annotated[str, Meta(min_length=1, max_length=63)]
GpuType = Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]+$", max_length=63)]
"""What Slurm takes as the type of a GRES."""
IntOrPercent = Annotated[
    int | str,
    Meta(
        description="A number, or a share of the wanted Nodes such as 10%, rounded up. Default: 10%.",
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
                    "message": "maxUnavailable is a number from 1 on, or a share from 1% to 100%",
                }
            ],
        },
    ),
]
RevisionLimit = Annotated[
    int,
    Meta(ge=0, le=100, description="How many templates of the past are kept to go back to. Default: 10."),
]
MAX_UNAVAILABLE: Final = "10%"
REVISIONS: Final = 10


class DynamicFeature(KubeStruct, frozen=True):
    """A Slurm feature made of the value of a Node's label."""

    prefix: Annotated[
        str,
        Meta(
            max_length=63,
            pattern="^[A-Za-z0-9_.:=+/-]*$",
            description="What stands before the label's value.",
        ),
    ] = ""


class Features(KubeStruct, frozen=True):
    """The Slurm features of the set's nodes."""

    static_features: Annotated[
        tuple[FeatureName, ...],
        Meta(
            max_length=64,
            description="Features of every node.",
            extra_json_schema={"x-kubernetes-list-type": "set"},
        ),
    ] = ()
    dynamic_features: Annotated[
        Mapping[str, DynamicFeature],
        Meta(max_length=64, description="Features by the Node label whose value they take."),
    ] = field(default_factory=dict[str, DynamicFeature])


class PodTemplate(KubeStruct, frozen=True):
    """The Pod of each Node. It is passed on as it is, so all that Kubernetes knows may stand in it."""

    metadata: Annotated[Mapping[str, Any], Meta(description="Labels and annotations of the Pods.")] = field(
        default_factory=dict[str, Any]
    )
    spec: Annotated[
        Mapping[str, Any],
        Meta(
            description="A Pod's spec. Of its node affinity only what is required counts; it is then "
            "replaced by the one Node. Toleration of the lock and a DaemonSet's tolerations are added."
        ),
    ] = field(default_factory=dict[str, Any])


class RequeueRule(KubeStruct, frozen=True):
    """Which jobs on a node that is to be updated are requeued instead of waited for. One match is enough."""

    running_seconds: Annotated[
        Seconds | None, Meta(description="Jobs that have run for longer than this are requeued.")
    ] = None
    partitions: Annotated[
        tuple[NamePart, ...], Meta(max_length=64, description="Jobs of these partitions are requeued.")
    ] = ()
    qos: Annotated[
        tuple[NamePart, ...], Meta(max_length=64, description="Jobs of these QoS are requeued.")
    ] = ()


class RollingUpdate(KubeStruct, frozen=True):
    """How a new template reaches the nodes: a few at a time, each when its jobs have ended."""

    max_unavailable: IntOrPercent | None = None
    requeue: Annotated[
        RequeueRule | None, Meta(description="Jobs that are not waited for. Default: every job is.")
    ] = None
    placeholders: Annotated[
        Literal["wait", "evict"] | None,
        Meta(
            description="What happens to Pods that Slurm has placed on a node to be updated: wait for their "
            "end, or evict them as their disruption budgets allow. Default: wait."
        ),
    ] = None


class UpdateStrategy(KubeStruct, frozen=True):
    """How a new template reaches the nodes."""

    type: Annotated[
        Literal["RollingUpdate", "OnDelete"] | None,
        Meta(description="OnDelete: only a Pod that was deleted is made anew. Default: RollingUpdate."),
    ] = None
    rolling_update: Annotated[
        RollingUpdate | None, Meta(description="How; holds for type RollingUpdate only.")
    ] = None


class NodeSetSpec(KubeStruct, frozen=True):
    """What a NodeSet is meant to be."""

    cluster: ClusterName = ""
    replicas: Replicas | None = None
    pod_name_prefix: PodNamePrefix | None = None
    features: Annotated[Features, Meta(description="The Slurm features of the set's nodes.")] = Features()
    template: Annotated[
        PodTemplate, Meta(description="The Pod of each Node: the slurmd and what it needs.")
    ] = PodTemplate()
    leave_room_for: Annotated[
        Literal["DaemonSets"] | None,
        Meta(
            description="DaemonSets: slurmd is told (SUNK_LEFT_CPUS, SUNK_LEFT_MIB) what its Node has left "
            "without the requests of its own Pod and of the DaemonSets there. Default: they are not counted."
        ),
    ] = None
    gpus: Annotated[
        Literal["FromNode"] | None,
        Meta(
            description="FromNode: slurmd is told (SUNK_NODE_GRES) the GPUs that its Node has. "
            "Default: the template says what GPUs Slurm gets."
        ),
    ] = None
    gpu_types: Annotated[
        Mapping[str, GpuType],
        Meta(
            max_length=256,
            description="GRES types by GPU model. Other models are spelled in small letters, without "
            "their vendor.",
        ),
    ] = field(default_factory=dict[str, str])
    update_strategy: Annotated[UpdateStrategy, Meta(description="How a new template reaches the nodes.")] = (
        UpdateStrategy()
    )
    min_ready_seconds: Annotated[
        Seconds | None,
        Meta(description="How long a new Pod must be ready to count as available. Default: 0."),
    ] = None
    revision_history_limit: RevisionLimit | None = None

    @property
    def is_rolling(self) -> bool:
        """A new template replaces Pods by itself."""
        return self.update_strategy.type in (None, "RollingUpdate")

    @property
    def rolling(self) -> RollingUpdate:
        """How a new template replaces Pods."""
        return self.update_strategy.rolling_update or RollingUpdate()

    def max_unavailable(self, wanted: int) -> int:
        """Return how many of *wanted* Pods an update may keep away at once; at least one."""
        given = self.rolling.max_unavailable
        value = MAX_UNAVAILABLE if given is None else given
        if isinstance(value, str):
            return max(1, -(-wanted * int(value.rstrip("%")) // 100))
        return max(1, value)


def _count(meaning: str) -> Any:  # noqa: ANN401 - msgspec's own object, for an annotation
    return Meta(ge=0, description=meaning)


AWAITED_MAX: Final = 100
"""Nodes that a status names as awaited."""


class AwaitedGpus(KubeStruct, frozen=True):
    """A Node without a Pod of the set that announces no GPUs, though a label says that it has some."""

    kube_node: Annotated[str, Meta(max_length=253, description="The Kubernetes Node's name.")]
    since: Annotated[
        datetime,
        Meta(description="Since when its Pod waits for them.", extra_json_schema={"format": "date-time"}),
    ]


class NodeSetStatus(KubeStruct, frozen=True, omit_defaults=False):
    """What a NodeSet is, zeros included. The names of the counts are SUNK's."""

    observed_generation: Annotated[
        int, Meta(description="The generation that the rest of this tells of.")
    ] = 0
    replicas: Annotated[int, _count("As currentNumberScheduled; what the scale sub-resource shows.")] = 0
    selector: Annotated[str, Meta(description="The labels of the Pods, for the scale sub-resource.")] = ""
    desired_number_scheduled: Annotated[int, _count("Nodes that are wanted.")] = 0
    number_feasible: Annotated[int, _count("Nodes that can carry a Pod of the set.")] = 0
    current_number_scheduled: Annotated[int, _count("Pods that exist and have not ended.")] = 0
    number_ready: Annotated[int, _count("Pods whose slurmd answers.")] = 0
    number_running: Annotated[int, _count("Pods whose Slurm node runs a job.")] = 0
    number_drain: Annotated[int, _count("Pods whose Slurm node is drained or draining.")] = 0
    number_misscheduled: Annotated[int, _count("Pods on Nodes that no longer fit. They stay.")] = 0
    number_unavailable: Annotated[int, _count("Wanted Nodes without a ready Pod.")] = 0
    updated_number_scheduled: Annotated[int, _count("Pods of the present template.")] = 0
    number_condemned: Annotated[int, _count("Pods that are to go as soon as their jobs have ended.")] = 0
    update_revision: Annotated[str, Meta(description="The hash of the present template.")] = ""
    gpus_awaited: Annotated[
        tuple[AwaitedGpus, ...],
        Meta(
            max_length=AWAITED_MAX,
            description="Nodes whose GPUs are not announced, those that wait longest first.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    conditions: Annotated[
        tuple[Condition, ...],
        Meta(
            description="Accepted, Scheduled, Updated, Ready, SlurmKnown.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


class NodeSet(KubeObject, frozen=True):
    """A set of Slurm nodes: one Pod per Kubernetes Node that fits, each a slurmd."""

    spec: NodeSetSpec = NodeSetSpec()
    status: NodeSetStatus = NodeSetStatus()

    @property
    def prefix(self) -> str:
        """What the names of its Pods begin with."""
        return self.spec.pod_name_prefix or self.metadata.name


class ControllerRevision(KubeObject, frozen=True):
    """A template that a NodeSet has had, of Kubernetes' own kind for that."""

    revision: int = 0
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
