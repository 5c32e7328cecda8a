"""What the story's users apply: a Deployment, a Pod that Slurm places. Pure."""

from typing import Any, Final

Object = dict[str, Any]

NAMESPACE: Final = "default"
PAUSE: Final = "localhost/sunk-pause:1"
SCHEDULER: Final = "sunk-scheduler"
GRACE_S: Final = 2


def deployment(name: str, kube_node: str, *, leaves_after_s: int = 1) -> Object:
    """Return an ordinary Deployment of one Pod on *kube_node* that takes a moment to leave."""
    container = {
        "name": "serve",
        "image": PAUSE,
        "lifecycle": {"preStop": {"sleep": {"seconds": leaves_after_s}}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": kube_node},
                    "terminationGracePeriodSeconds": leaves_after_s + 2,
                    "containers": [container],
                },
            },
        },
    }


def slow_pod(name: str, kube_node: str, *, leaves_after_s: int) -> Object:
    """Return a Pod on *kube_node* whose container takes all but a second of its grace period to end."""
    container = {
        "name": "main",
        "image": PAUSE,
        "lifecycle": {"preStop": {"sleep": {"seconds": leaves_after_s}}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeName": kube_node,
            "terminationGracePeriodSeconds": leaves_after_s + 1,
            "containers": [container],
        },
    }


def placed_pod(name: str, *, grace_s: int = GRACE_S, cpu: str = "1", memory: str = "100Mi") -> Object:
    """Return a Pod that names the scheduler, with requests and a grace period that Slurm can keep."""
    resources: Object = {"requests": {"cpu": cpu, "memory": memory}} if cpu else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": SCHEDULER,
            "terminationGracePeriodSeconds": grace_s,
            "containers": [{"name": "serve", "image": PAUSE, "resources": resources}],
        },
    }
