"""The NodeSet, as its manifest spells it: a set of Slurm nodes, one Pod per Kubernetes Node.

The custom resource definition is generated from these structs (`crds`), so limits and texts stand here.
Field names are SUNK's where they are published (``replicas``, ``podNamePrefix``, ``features``, the status
counts); ``cluster`` and ``template`` are ours.
"""

from collections.abc import Mapping
from typing import Annotated, Any

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
Count = Annotated[int, Meta(ge=0)]


class DynamicFeature(KubeStruct, frozen=True):
    """A Slurm feature made of the value of a Node's label."""

    prefix: Annotated[str, Meta(max_length=63, description="Put before the label's value.")] = ""


class Features(KubeStruct, frozen=True):
    """The Slurm features of the set's nodes."""

    static_features: Annotated[tuple[str, ...], Meta(description="Features of every node.")] = ()
    dynamic_features: Annotated[
        Mapping[str, DynamicFeature], Meta(description="Features by the Node label whose value they take.")
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


class NodeSetSpec(KubeStruct, frozen=True):
    """What a NodeSet is meant to be."""

    cluster: ClusterName = ""
    replicas: Replicas | None = None
    pod_name_prefix: PodNamePrefix | None = None
    features: Features = Features()
    template: PodTemplate = PodTemplate()


class NodeSetStatus(KubeStruct, frozen=True, omit_defaults=False):
    """What a NodeSet is, zeros included. The names of the counts are SUNK's."""

    observed_generation: int = 0
    replicas: Count = 0
    """As many as ``currentNumberScheduled``; what the scale sub-resource shows."""
    selector: str = ""
    """The labels of the set's Pods, for the scale sub-resource."""
    desired_number_scheduled: Count = 0
    number_feasible: Count = 0
    current_number_scheduled: Count = 0
    number_ready: Count = 0
    number_running: Count = 0
    number_drain: Count = 0
    number_misscheduled: Count = 0
    number_unavailable: Count = 0
    updated_number_scheduled: Count = 0
    conditions: tuple[Condition, ...] = ()


class NodeSet(KubeObject, frozen=True):
    """A set of Slurm nodes: one Pod per Kubernetes Node that fits, each a slurmd."""

    spec: NodeSetSpec = NodeSetSpec()
    status: NodeSetStatus = NodeSetStatus()

    @property
    def prefix(self) -> str:
        """What the names of its Pods begin with."""
        return self.spec.pod_name_prefix or self.metadata.name
