"""The Pods and jobs that the pod-scheduler is measured with."""

from importlib import resources
from typing import Any

from msgspec.structs import replace
from nodesets_stage import ROLE
from syncer_stage import JOB

from sunk_kube.wellknown import ANNOTATION_GANG_MEMBERS_PER_NODE, ANNOTATION_GANG_SIZE
from sunk_pod_scheduler.placement.gang_membership import LABEL_POD_GROUP
from sunk_pod_scheduler.placement.job_description import PATH
from sunk_slurm.submission import JobDescription
from sunk_slurm.wire import Number


def member(name: str, group: str, *, size: int, per_node: int) -> dict[str, Any]:
    """Return a Pod of one CPU in the gang *group*."""
    made = manifest(name)
    made["metadata"] |= {
        "labels": {LABEL_POD_GROUP: group},
        "annotations": {
            ANNOTATION_GANG_SIZE: str(size),
            ANNOTATION_GANG_MEMBERS_PER_NODE: str(per_node),
        },
    }
    return made


def manifest(name: str, scheduler: str = "sunk-scheduler") -> dict[str, Any]:
    """Return a Pod of one CPU."""
    requests = {"cpu": "1", "memory": "100Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "nodeSelector": {ROLE: "bench"},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}],
        },
    }


def placeholder(url: str) -> JobDescription:
    """Return the job that a Pod of `manifest` would get, not held, whose script calls *url*."""
    environment = {
        "PATH": PATH,
        "SUNK_HOOKS_URL": url,
        "SUNK_PLACEHOLDER_TOKEN": "t" * 64,
    }
    return replace(
        JOB,
        script=resources.files("sunk_pod_scheduler").joinpath("placeholder.sh").read_text(),
        environment=tuple(f"{name}={value}" for name, value in environment.items()),
        tasks=1,
        cpus_per_task=1,
        memory_per_node=Number.of(100),
        minimum_nodes=1,
        maximum_nodes=1,
        requeue=False,
    )
