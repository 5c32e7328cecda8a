"""A Kubernetes cluster with another SUNK, whose definitions have the same names, is refused with a reason."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

import helm_python as helm
import pytest
import yaml

from sunk_lab.charts import render

CHART: Final = Path(__file__).parents[2] / "helm/sunk"
VALUES: Final[dict[str, Any]] = {"clusters": [{"name": "prod", "namespace": "slurm"}]}
PROBE: Final = """
{{- include "sunk.otherDefinitions" (.Files.Get "found.json" | fromJson) }}
"""
OURS: Final[dict[str, Any]] = yaml.safe_load((CHART / "files/crds/nodeset.yaml").read_text())


def definition(plural: str) -> dict[str, Any]:
    """Return a definition of the API group that is none of this chart's."""
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
    }
    return {
        "metadata": {"name": f"{plural}.sunk.coreweave.com"},
        "spec": {"versions": [version]},
    }


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chart = tmp_path_factory.mktemp("charts") / "sunk"
    shutil.copytree(CHART, chart)
    (chart / "templates/probe.yaml").write_text(PROBE)
    return chart


@pytest.mark.parametrize("plural", ["nodesets", "sunkclusters", "slurmclusters"])
def test_a_cluster_that_has_another_sunk_is_refused_with_what_to_do(probed: Path, plural: str) -> None:
    found = {"nodesets": OURS} | {plural: definition(plural)}
    (probed / "found.json").write_text(json.dumps({"found": found}))

    with pytest.raises(helm.HelmError, match=rf"has another SUNK.* {plural}\.sunk.*Use another Kubernetes"):
        render(helm.Chart.load(probed), VALUES, name="sunk", namespace="sunk")


@pytest.mark.parametrize("found", [{}, {"nodesets": {}, "sunkclusters": {}}, {"nodesets": OURS}])
def test_a_cluster_without_definitions_or_with_those_of_this_chart_is_not(
    probed: Path, found: dict[str, Any]
) -> None:
    (probed / "found.json").write_text(json.dumps({"found": found}))

    render(helm.Chart.load(probed), VALUES, name="sunk", namespace="sunk")
