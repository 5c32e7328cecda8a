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
        description="Prefix of the names of Pods and Slurm nodes. Default: the NodeSet's name. Cannot "
        "be changed.",
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
    Meta(ge=0, le=1_000_000, description="Number of Nodes. Default: all Nodes that fit the template."),
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
        description="How many Pods an update may make unavailable at a time: a number, or a share of "
        "the wanted Nodes such as 10%, rounded up. Default: 10%.",
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",
                    "message": "maxUnavailable is a number from 1, or a share from 1% to 100%",
                }
            ],
        },
    ),
]
RevisionLimit = Annotated[
    int,
    Meta(ge=0, le=100, description="Old template revisions kept for rollback. Default: 10."),
]
MAX_UNAVAILABLE: Final = "10%"
REVISIONS: Final = 10


class DynamicFeature(KubeStruct, frozen=True):
    """A Slurm feature that is the value of a Node label."""

    prefix: Annotated[
        str,
        Meta(
            max_length=63,
            pattern="^[A-Za-z0-9_.:=+/-]*$",
            description="Prefix of the feature, before the label's value.",
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
        Meta(max_length=64, description="Features by Node label: each is the value of that label."),
    ] = field(default_factory=dict[str, DynamicFeature])


class PodTemplate(KubeStruct, frozen=True):
    """The Pod of each Node. It is passed on as it is, so all that Kubernetes knows may stand in it."""

    metadata: Annotated[Mapping[str, Any], Meta(description="Labels and annotations of the Pods.")] = field(
        default_factory=dict[str, Any]
    )
    spec: Annotated[
        Mapping[str, Any],
        Meta(
            description="The spec of the Pods. Of node affinity only the required terms count. The "
            "nodeset-controller adds the Node, a toleration of the lock, and a DaemonSet's tolerations."
        ),
    ] = field(default_factory=dict[str, Any])


class RequeueRule(KubeStruct, frozen=True):
    """Which jobs on a node that is to be updated are requeued instead of waited for. One match is enough."""

    running_seconds: Annotated[
        Seconds | None, Meta(description="Requeue jobs that have run for longer than this, in seconds.")
    ] = None
    partitions: Annotated[
        tuple[NamePart, ...], Meta(max_length=64, description="Requeue jobs of these partitions.")
    ] = ()
    qos: Annotated[tuple[NamePart, ...], Meta(max_length=64, description="Requeue jobs of these QoS.")] = ()


class RollingUpdate(KubeStruct, frozen=True):
    """How a new template reaches the nodes: a few at a time, each when its jobs have ended."""

    max_unavailable: IntOrPercent | None = None
    requeue: Annotated[
        RequeueRule | None,
        Meta(description="Jobs that the update requeues instead of waiting for their end. Default: none."),
    ] = None
    placeholders: Annotated[
        Literal["wait", "evict"] | None,
        Meta(
            description="What an update does about Pods that Slurm has placed on the node: wait for their "
            "end, or evict them as their PodDisruptionBudgets allow. Default: wait."
        ),
    ] = None


class UpdateStrategy(KubeStruct, frozen=True):
    """How a new template reaches the nodes."""

    type: Annotated[
        Literal["RollingUpdate", "OnDelete"] | None,
        Meta(
            description="RollingUpdate: the nodeset-controller replaces Pods of an old template. "
            "OnDelete: a Pod gets the new template only after a user has deleted it. Default: "
            "RollingUpdate."
        ),
    ] = None
    rolling_update: Annotated[RollingUpdate | None, Meta(description="Settings for type RollingUpdate.")] = (
        None
    )


class NodeSetSpec(KubeStruct, frozen=True):
    """The wanted state of a NodeSet."""

    cluster: ClusterName = ""
    replicas: Replicas | None = None
    pod_name_prefix: PodNamePrefix | None = None
    features: Annotated[Features, Meta(description="The Slurm features of the set's nodes.")] = Features()
    template: Annotated[PodTemplate, Meta(description="The Pod that runs slurmd on each Node.")] = (
        PodTemplate()
    )
    leave_room_for: Annotated[
        Literal["DaemonSets"] | None,
        Meta(
            description="DaemonSets: slurmd gets (in SUNK_LEFT_CPUS and SUNK_LEFT_MIB) what its Node can "
            "allocate minus "
            "the requests of its own Pod and of the DaemonSets there. Default: nothing is subtracted."
        ),
    ] = None
    gpus: Annotated[
        Literal["FromNode"] | None,
        Meta(
            description="FromNode: slurmd gets (in SUNK_NODE_GRES) the GPUs that its Node has. "
            "Default: the template says which GPUs slurmd announces."
        ),
    ] = None
    gpu_types: Annotated[
        Mapping[str, GpuType],
        Meta(
            max_length=256,
            description="GRES types by GPU model. The type of any other model is its name in small "
            "letters, without the vendor.",
        ),
    ] = field(default_factory=dict[str, str])
    update_strategy: Annotated[UpdateStrategy, Meta(description="How a new template reaches the nodes.")] = (
        UpdateStrategy()
    )
    min_ready_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Seconds for which a new Pod must be ready until it counts as available. Default: 0."
        ),
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
    """A Node whose label names GPUs, but whose device plugin announces none. Its Pod waits for that."""

    kube_node: Annotated[str, Meta(max_length=253, description="The Kubernetes Node's name.")]
    since: Annotated[
        datetime,
        Meta(description="When the wait began.", extra_json_schema={"format": "date-time"}),
    ]


class NodeSetStatus(KubeStruct, frozen=True, omit_defaults=False):
    """The observed state of a NodeSet."""

    observed_generation: Annotated[
        int, Meta(description="The generation of the NodeSet that this status describes.")
    ] = 0
    replicas: Annotated[int, _count("The same as currentNumberScheduled, for the scale subresource.")] = 0
    selector: Annotated[str, Meta(description="Selector of the Pods, for the scale subresource.")] = ""
    desired_number_scheduled: Annotated[int, _count("Number of wanted Nodes.")] = 0
    number_feasible: Annotated[int, _count("Number of Nodes that fit the template.")] = 0
    current_number_scheduled: Annotated[int, _count("Pods that exist and have not ended.")] = 0
    number_ready: Annotated[int, _count("Pods whose slurmd answers.")] = 0
    number_running: Annotated[int, _count("Pods whose Slurm node runs a job.")] = 0
    number_drain: Annotated[int, _count("Pods whose Slurm node is drained or draining.")] = 0
    number_misscheduled: Annotated[int, _count("Pods on Nodes that no longer fit. They stay.")] = 0
    number_unavailable: Annotated[int, _count("Wanted Nodes without a ready Pod.")] = 0
    updated_number_scheduled: Annotated[int, _count("Pods of the current template.")] = 0
    number_condemned: Annotated[int, _count("Pods that are deleted as soon as their jobs have ended.")] = 0
    update_revision: Annotated[str, Meta(description="Hash of the current template.")] = ""
    gpus_awaited: Annotated[
        tuple[AwaitedGpus, ...],
        Meta(
            max_length=AWAITED_MAX,
            description="Nodes whose Pods wait for GPUs, longest wait first.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    conditions: Annotated[
        tuple[Condition, ...],
        Meta(
            description="Conditions: Accepted, Scheduled, Updated, Ready, SlurmKnown. "
            "docs/kubernetes-events.md explains their reasons.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()


class NodeSet(KubeObject, frozen=True):
    """A set of Slurm nodes: one Pod with slurmd on each Kubernetes Node that fits."""

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
