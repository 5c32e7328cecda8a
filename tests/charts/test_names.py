"""Names and labels are such as Kubernetes takes, whatever a release and its parts are called."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import helm_python as helm
import pytest

from sunk_lab.charts import Objects, render

CHARTS: Final = Path(__file__).parents[2] / "helm"
SLURM: Final[dict[str, Any]] = {
    "clusterName": "123",
    "nats": {"existingSecret": "passwords"},
    "compute": {"nodes": {"7": {"gresGpu": "8"}}},
    "login": {"replicas": 11},
    "scheduler": {"name": "42", "alias": False},
}
SUNK: Final[dict[str, Any]] = {"clusters": [{"name": "123", "namespace": "hpc"}]}
LABEL: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
SERVICE: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
LONGEST: Final = {"Service": 63, "Job": 63, "Pod": 63, "StatefulSet": 52, "NodeSet": 48}
"""A StatefulSet's Pods bear its name and a hash of ten letters in a label."""
TEXT_ONLY: Final = ("labels", "matchLabels", "annotations", "nodeSelector", "data")


def texts(found: object, path: str = "") -> Iterator[tuple[str, str, object]]:
    """Yield what must be text and nothing else: the map's name, the path and the value."""
    if isinstance(found, dict):
        for key, below in cast("dict[str, object]", found).items():
            if key in TEXT_ONLY and isinstance(below, dict):
                yield from (
                    (key, f"{path}/{key}/{name}", value)
                    for name, value in cast("dict[str, object]", below).items()
                )
            elif key in ("podNamePrefix", "cluster", "value", "effect"):
                yield key, f"{path}/{key}", below
            elif key != "openAPIV3Schema":
                yield from texts(below, f"{path}/{key}")
    elif isinstance(found, list):
        for index, below in enumerate(cast("list[object]", found)):
            yield from texts(below, f"{path}[{index}]")


def faults(objects: Objects) -> list[str]:
    """Return what Kubernetes would refuse of the names and labels of *objects*."""
    wrong: list[str] = []
    for (kind, name), found in objects.items():
        pattern = SERVICE if kind == "Service" else NAME
        if not pattern.fullmatch(name) or len(name) > LONGEST.get(kind, 253):
            wrong.append(f"{kind} {name}")
        named = found["metadata"] if kind == "PriorityClass" else found  # The class' own value is a number.
        for key, path, value in texts(named):
            is_label = key in ("labels", "matchLabels")
            if not isinstance(value, str):
                wrong.append(f"{kind} {name}{path}: {value!r} is no text")
            elif is_label and value and (len(value) > 63 or not LABEL.fullmatch(value)):
                wrong.append(f"{kind} {name}{path}: {value}")
    return wrong


@pytest.mark.parametrize("name", ["prod", "true", "a" * 53, f"{'b' * 39}-cd"])
def test_whatever_a_slurm_cluster_is_called_kubernetes_takes_its_names(name: str) -> None:
    objects = render(helm.Chart.load(CHARTS / "slurm"), SLURM, name=name, namespace="n" * 63)

    assert faults(objects) == []


@pytest.mark.parametrize("name", ["123", "my.release", "a" * 53])
def test_whatever_the_sunk_release_is_called_kubernetes_takes_its_names(name: str) -> None:
    objects = render(helm.Chart.load(CHARTS / "sunk"), SUNK, name=name, namespace="n" * 63)

    assert faults(objects) == []


@pytest.mark.parametrize("name", ["my.release", "1st", f"{'a' * 39}.b"])
def test_a_release_whose_name_no_service_may_have_is_refused_with_the_way_out(name: str) -> None:
    chart = helm.Chart.load(CHARTS / "slurm")

    with pytest.raises(helm.HelmRenderError, match="fullnameOverride: no Service may have a name"):
        render(chart, SLURM, name=name, namespace="hpc")

    assert faults(render(chart, SLURM | {"fullnameOverride": "first"}, name=name, namespace="hpc")) == []
