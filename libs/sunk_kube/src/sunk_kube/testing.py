"""Builders of Kubernetes objects for tests: defaults for all that does not matter."""

from collections.abc import Mapping
from datetime import UTC, datetime

from sunk_kube.nodesets import Features, NodeSet, NodeSetSpec, PodTemplate
from sunk_kube.objects import (
    Condition,
    Node,
    NodeAddress,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Taint,
)
from sunk_kube.pods import Container, Pod, PodSpec, PodStatus, ResourceRequirements, Toleration
from sunk_kube.reasons import Reason

T0 = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def node(
    name: str = "node1",
    *,
    ip: str = "10.0.0.11",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    conditions: tuple[Condition, ...] = (),
    allocatable: Mapping[str, str | int] | None = None,
    is_cordoned: bool = False,
) -> Node:
    """Return a Node with room for a Pod; *ip* may be empty."""
    return Node(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            resource_version="1",
            creation_timestamp=T0,
            labels={"kubernetes.io/hostname": name, **(labels or {})},
            annotations=annotations or {},
        ),
        spec=NodeSpec(unschedulable=is_cordoned, taints=taints),
        status=NodeStatus(
            conditions=conditions,
            addresses=(NodeAddress(type="InternalIP", address=ip),) if ip else (),
            allocatable=allocatable or {"cpu": "8", "memory": "32Gi", "pods": "110"},
        ),
    )


def pod(
    name: str = "web",
    *,
    namespace: str = "default",
    node: str = "node1",
    uid: str = "",
    phase: str = "Running",
    is_ready: bool = True,
    deleted: datetime | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    conditions: tuple[Condition, ...] = (),
    tolerations: tuple[Toleration, ...] = (),
    requests: Mapping[str, str] | None = None,
    owners: tuple[OwnerReference, ...] = (),
    scheduler: str = "default-scheduler",
    grace_s: int = 30,
    created: datetime = T0,
) -> Pod:
    """Return a running, ready Pod on *node*."""
    ready = Condition(type="Ready", status="True" if is_ready else "False", last_transition_time=T0)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid or f"uid-{name}",
            resource_version="1",
            creation_timestamp=created,
            deletion_timestamp=deleted,
            labels=labels or {},
            annotations=annotations or {},
            owner_references=owners,
        ),
        spec=PodSpec(
            node_name=node,
            scheduler_name=scheduler,
            tolerations=tolerations,
            termination_grace_period_seconds=grace_s,
            containers=(Container(name="main", resources=ResourceRequirements(requests=requests or {})),),
        ),
        status=PodStatus(phase=phase, conditions=(ready, *conditions)),
    )


def nodeset(
    name: str = "gpu",
    *,
    namespace: str = "slurm",
    cluster: str = "lab",
    replicas: int | None = None,
    prefix: str | None = None,
    features: Features | None = None,
    spec: Mapping[str, object] | None = None,
    generation: int = 1,
) -> NodeSet:
    """Return a NodeSet whose Pods fit everywhere, but for what *spec* says."""
    return NodeSet(
        metadata=ObjectMeta(
            name=name, namespace=namespace, uid=f"uid-{name}", resource_version="1", generation=generation
        ),
        spec=NodeSetSpec(
            cluster=cluster,
            replicas=replicas,
            pod_name_prefix=prefix,
            features=features or Features(),
            template=PodTemplate(
                spec={"containers": [{"name": "slurmd", "image": "slurm:1"}], **(spec or {})}
            ),
        ),
    )


class SampleReason(Reason):
    """What tests of the library say."""

    WAITING = ("Waiting", "Pod", "Warning", "", "A test says it.", "Nothing.")
