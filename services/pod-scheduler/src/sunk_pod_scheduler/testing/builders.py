"""Builders with defaults that show only what matters."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from sunk_events.locks import LockHolder, LockState, LockValue
from sunk_events.placements import PlacementPhase, PlacementState
from sunk_kube.objects import ObjectMeta
from sunk_kube.pods import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from sunk_kube.resources import Resource
from sunk_pod_scheduler.placement.model import AnyJob, JobSeen, Observed, PodSeen

T0 = datetime(2026, 1, 5, 12, tzinfo=UTC)
KEY = b"k" * 32
UID = "0e1c"
JOB = 7
SLURM_NODE = "gpu-000-012"
KUBE_NODE = "node2"


def definition(resource: Resource[Any]) -> dict[str, Any]:
    """Return a definition by which the API server takes anything as *resource*."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    approved = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "annotations": {"api-approved.kubernetes.io": approved},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"kind": resource.kind, "plural": resource.plural, "singular": resource.kind.lower()},
            "versions": [version],
        },
    }


def manifest(
    *,
    uid: str = UID,
    name: str = "infer",
    requests: Mapping[str, str] | None = None,
    grace_s: int | None = 2,
    annotations: Mapping[str, str] | None = None,
    spec: PodSpec | None = None,
) -> Pod:
    """Return a Pod that waits for us, with one CPU and one GiB if nothing else is said."""
    resources = ResourceRequirements(requests={"cpu": "1", "memory": "1Gi"} if requests is None else requests)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=uid,
            resource_version="1",
            creation_timestamp=T0,
            annotations=annotations or {},
        ),
        spec=replace(
            spec or PodSpec(containers=(Container(name="main", resources=resources),)),
            scheduler_name="sunk-scheduler",
            termination_grace_period_seconds=grace_s,
        ),
        status=PodStatus(phase="Pending"),
    )


def pod(
    *,
    kube_node: str = "",
    is_terminating: bool = False,
    is_over: bool = False,
    exit_code: int = 0,
    problems: tuple[str, ...] = (),
) -> PodSeen:
    """Return a Pod as it decides."""
    return PodSeen(
        namespace="default",
        name="infer",
        created=T0,
        kube_node=kube_node,
        is_terminating=is_terminating,
        is_over=is_over,
        exit_code=exit_code,
        problems=problems,
    )


def placement(
    phase: PlacementPhase, *, job: int | None = JOB, node: str = "", attempt: int = 0, digest: str = "digest"
) -> PlacementState:
    """Return a placement in *phase*, since T0."""
    return PlacementState(
        changed=T0,
        uid=UID,
        namespace="default",
        pod="infer",
        phase=phase,
        attempt=attempt,
        job=job,
        node=node,
        kube_node=KUBE_NODE if phase in {"bound", "ending"} else "",
        token_sha256=digest,
        created=T0,
    )


def job(
    base: str = "RUNNING",
    *,
    is_completing: bool = False,
    is_over: bool | None = None,
    is_held: bool = False,
    is_marked_started: bool = False,
    reason: str = "None",
    nodes: tuple[str, ...] = (SLURM_NODE,),
    ended: datetime | None = None,
) -> JobSeen:
    """Return a job as it decides; one that runs if nothing else is said."""
    return JobSeen(
        job=JOB,
        base=base,
        is_completing=is_completing,
        is_over=base not in {"PENDING", "RUNNING", "SUSPENDED"} if is_over is None else is_over,
        is_held=is_held,
        reason=reason,
        nodes=nodes if base != "PENDING" else (),
        ended=ended,
        is_marked_started=is_marked_started,
        is_ours=True,
        extra="{}",
    )


def seen(
    pod: PodSeen | None,
    placement: PlacementState | None,
    job: AnyJob,
    *,
    announced_on: str = "",
    kube_node: str = KUBE_NODE,
    node_problem: str = "",
    is_release_requested: bool = False,
    ungranted: tuple[LockState, ...] | None = (),
) -> Observed:
    """Return all that is known of the Pod."""
    return Observed(
        uid=UID,
        pod=pod,
        placement=placement,
        job=job,
        announced_on=announced_on,
        kube_node=kube_node,
        node_problem=node_problem,
        is_release_requested=is_release_requested,
        ungranted=ungranted,
    )


def lock(
    node: str = SLURM_NODE,
    value: LockValue = "pending",
    *,
    job: int = JOB,
    requested_at: datetime = T0,
    granted: datetime | None = None,
) -> LockState:
    """Return the lock of a node for a job; with the value ``false``, of nobody."""
    holder = LockHolder(job=job, level="strict", asked=requested_at, granted=granted)
    holders = () if value == "false" else (holder,)
    return LockState(changed=T0, node=node, kube_node=KUBE_NODE, lock=value, holders=holders)
