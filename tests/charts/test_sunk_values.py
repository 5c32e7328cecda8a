"""What the chart that a Kubernetes cluster has once refuses, and how it says so."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

import helm_python as helm
import pytest

from sunk_lab.charts import render

CHART: Final = Path(__file__).parents[2] / "helm/sunk"
VALUES: Final[dict[str, Any]] = {
    "clusters": [{"name": name, "namespace": "slurm"} for name in ("prod", "stage-2")]
}


@pytest.fixture(scope="module")
def chart() -> helm.Chart:
    return helm.Chart.load(CHART)


WRONG: Final[list[tuple[dict[str, Any], str, str]]] = [
    ({"clusters": []}, "at '/clusters'", "minItems: got 0, want 1"),
    ({"nodesetControler": {}}, "at ''", "additional properties 'nodesetControler' not allowed"),
    ({"nodesetController": {"replica": 3}}, "at '/nodesetController'", "'replica' not allowed"),
    (
        {"nodesetController": {"resources": {"limit": {}}}},
        "at '/nodesetController/resources'",
        "'limit' not",
    ),
    ({"nats": {"replicas": 2}}, "at '/nats/replicas'", "must be one of 1, 3"),
    ({"nats": {"persistence": {"size": "ten"}}}, "at '/nats/persistence/size'", "does not match pattern"),
    ({"podDefaults": {"tolerations": [{"keys": "x"}]}}, "at '/podDefaults/tolerations/0'", "'keys' not"),
    ({"clusters": [{"name": "A", "namespace": "slurm"}]}, "at '/clusters/0/name'", "does not match"),
    (
        {"nodesetController": {"lock": {"effect": "PreferNoSchedule"}}},
        "/lock/effect'",
        "must be one of 'NoExecute', 'NoSchedule'",
    ),
    ({"networkPolicy": {"natsFrom": [{}]}}, "at '/networkPolicy/natsFrom/0'", "minProperties"),
]


@pytest.mark.parametrize(
    ("values", "where", "why"),
    WRONG,
    ids=[
        "no Slurm cluster",
        "a typo at the top",
        "a typo in a component",
        "a typo in resources",
        "two servers",
        "a size in words",
        "a typo in a list",
        "a name in capitals",
        "a lock that evicts nobody",
        "a peer that is everybody",
    ],
)
def test_a_wrong_value_is_refused_with_its_path(
    chart: helm.Chart, values: dict[str, Any], where: str, why: str
) -> None:
    with pytest.raises(helm.HelmValuesError) as refused:
        chart.validate_schema(VALUES | values)

    assert where in refused.value.detail
    assert why in refused.value.detail


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (
            {"clusters": [{"name": "prod", "namespace": name} for name in ("a", "b")]},
            "clusters: prod, prod: a name appears twice",
        ),
        (
            {"nats": {"persistence": {"maxFileStore": "2GiB"}}},
            "maxFileStore: 2GiB is too small for 2 Slurm clusters: set at least 2560MiB",
        ),
        (
            {"nats": {"persistence": {"maxFileStore": "11GiB"}}},
            "maxFileStore: 11GiB is more than the volume of 10Gi",
        ),
        (
            {"nats": {"subscribers": ["billing"], "teams": {"persistence": {"maxFileStore": "2GiB"}}}},
            "nats.teams.persistence.maxFileStore: 2GiB is too small for 2 Slurm clusters: set at least 2304",
        ),
        (
            {"nodesetController": {"topology": {"kind": "tree"}}},
            "nodesetController.topology.labels: a tree needs the labels of Nodes",
        ),
        (
            {"nodesetController": {"lock": {"exemptNamespaces": ["kube-system"]}}},
            "nodesetController.lock.exemptNamespaces: with effect NoExecute Kubernetes removes all",
        ),
        (
            {"nats": {"growing": True}},
            "nats.growing: there is only one server to grow to: set nats.replicas to 3",
        ),
        ({"nats": {"enabled": False}}, "nats.url: name the address of the bus, or set nats.enabled"),
    ],
    ids=[
        "one name twice",
        "store too small",
        "store larger than its volume",
        "store of other teams too small",
        "a tree of nothing",
        "Pods that Kubernetes does not spare",
        "growing to one",
        "no bus at all",
    ],
)
def test_values_that_do_not_go_together_are_refused_with_the_reason(
    chart: helm.Chart, values: dict[str, Any], why: str
) -> None:
    with pytest.raises(helm.HelmRenderError) as refused:
        render(chart, VALUES | values, name="sunk", namespace="sunk")

    assert why in refused.value.detail


def test_every_level_of_the_schema_refuses_what_it_does_not_know(chart: helm.Chart) -> None:
    def open_levels(level: object, path: str) -> Iterator[str]:
        if isinstance(level, dict):
            named = cast("dict[str, object]", level)  # A JSON Schema.
            if "properties" in named and named.get("additionalProperties") is not False:
                yield path
            for key, below in named.items():
                yield from open_levels(below, f"{path}/{key}")

    # A volume has one of dozens of sources: Kubernetes refuses the wrong ones itself.
    assert list(open_levels(chart.schema, "")) == ["/definitions/volume"]


def test_the_chart_is_well_formed_by_helms_own_lint() -> None:
    found = helm.lint(CHART, VALUES, strict=True)

    assert [message for message in found["messages"] if message["severity"] > 1] == []


def test_every_value_is_described_where_it_stands_and_in_the_readme() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    readme = (CHART / "README.md").read_text()
    path: list[str] = []
    undescribed: list[str] = []
    for above, line in pairwise(lines):
        if found := re.match(r"^( *)([A-Za-z]\w*):(.*)", line):
            path[len(found[1]) // 2 :] = [found[2]]
            key = ".".join(path)
            is_described = above.lstrip().startswith("# ") and f"| `{key}` |" in readme
            is_leaf = bool(found[3].strip()) and path[-2:-1] != ["resources"]
            undescribed += [key] * (is_leaf and not is_described)

    assert undescribed == []
