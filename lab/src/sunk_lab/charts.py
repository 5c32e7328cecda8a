"""Charts: what Helm's own engine makes of them, and what that means."""

from collections.abc import Iterable
from typing import Any, Final

import helm_python as helm
import yaml

from sunk_lab import nats_image, service_images
from sunk_lab.kube.images import PAUSE
from sunk_lab.kube.lab import KubeLab

Objects = dict[tuple[str, str], dict[str, Any]]
"""What a chart makes, by kind and name. Kubernetes' own schema is the objects' type."""


def render(chart: helm.Chart, values: dict[str, Any], *, name: str, namespace: str) -> Objects:
    """Return what *chart* makes of *values* as release *name* in *namespace*, without a cluster.

    Raises:
        HelmError: The values are refused, or a template is wrong.
    """
    made: Objects = {}
    for path, text in chart.render(values, name=name, namespace=namespace).items():
        if not path.endswith("NOTES.txt"):
            for found in filter(None, yaml.safe_load_all(text)):
                made[found["kind"], found["metadata"]["name"]] = found
    return made


def pod_specs(made: Objects) -> dict[str, dict[str, Any]]:
    """Return the spec of each Pod, by the name of what makes it."""
    specs = {
        name: found["spec"]["template"]["spec"]
        for (kind, name), found in made.items()
        if kind in ("Deployment", "StatefulSet", "DaemonSet", "Job")
    }
    return specs | {name: found["spec"] for (kind, name), found in made.items() if kind == "Pod"}


def env_of(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the environment of the first container of a Pod: values, or where they come from."""
    env = spec["containers"][0].get("env", [])
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in env}


def rights(rules: Iterable[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """Return every right that *rules* of roles grant: API group, resource, verb."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def helm_of(lab: KubeLab, namespace: str) -> helm.Config:
    """Return Helm for *lab*, by a kubeconfig that names no files.

    Within a process Helm remembers an authority by its file, and the next lab has another one in the same.
    """
    whole = lab.kubeconfig.with_name("whole.kubeconfig")
    whole.touch(mode=0o600)
    whole.write_text(lab.kubectl("config", "view", "--flatten", "--raw", "--output=json"))
    return helm.Config(kubeconfig_path=whole, namespace=namespace)


NODESET: Final[dict[str, Any]] = {
    "apiVersion": "sunk.coreweave.com/v1alpha1",
    "kind": "NodeSet",
    "metadata": {"name": "cpu", "namespace": "slurm"},
    "spec": {
        "cluster": "prod",
        "replicas": 1,
        "template": {"spec": {"containers": [{"name": "slurmd", "image": PAUSE}]}},
    },
}
"""One compute node of the Slurm cluster of `sunk_values`, without a slurmd."""


def sunk_values(**controller: Any) -> dict[str, Any]:  # noqa: ANN401 - values are free-form.
    """Return values of helm/sunk: the code as it is now, small requests, the Slurm cluster ``prod``."""
    controllers = {
        "registry": service_images.REGISTRY,
        "repository": service_images.repository("nodeset-controller"),
        "tag": service_images.version(),
    }
    bus = {
        "registry": nats_image.REGISTRY,
        "repository": nats_image.REPOSITORY,
        "tag": nats_image.release(),
    }
    small = {"requests": {"cpu": "10m"}}
    return {
        "clusters": [{"name": "prod", "namespace": "slurm"}],
        "nodesetController": {"image": controllers, "resources": small, **controller},
        "nats": {"image": bus, "resources": small},
    }
