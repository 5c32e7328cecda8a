"""Dashboards ask for metrics that exist, in queries that Prometheus can read."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "helm" / "slurm" / "files" / "dashboards").glob("*.json"))
QUERIES = [
    pytest.param(target["expr"], id=f"{path.stem}: {panel['title']}")
    for path in FILES
    for panel in json.loads(path.read_text())["panels"]
    for target in panel["targets"]
]
CHOICE = 'slurm_cluster=~"$cluster"'
NAMES = re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
METRICS = {name for name, _ in NAMES} | {
    f"{name}_{part}" for name, kind in NAMES if kind == "histogram" for part in ("bucket", "count", "sum")
}


def named(query: str) -> list[str]:
    """Return the metrics that *query* names, also by a choice of words: ``a_(b|c)``."""
    found: list[str] = []
    for name, words in re.findall(r"\b((?:sunk|slurm)_\w+)(?:\(([\w|]+)\))?", query.replace(CHOICE, "")):
        found += [name + word for word in words.split("|")] if words else [name]
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_a_panel_asks_for_metrics_that_exist(query: str) -> None:
    assert named(query)
    assert [name for name in named(query) if name not in METRICS] == []


@pytest.mark.parametrize("query", QUERIES)
def test_a_panel_shows_the_chosen_slurm_clusters_only(query: str) -> None:
    selectors = re.findall(r"\{[^}]*\}", query)

    assert len(selectors) == len(re.findall(r"\b(?:sunk|slurm)_", query.replace(CHOICE, "")))
    assert all(CHOICE in selector for selector in selectors)


def test_prometheus_reads_every_query(promtool: Path, tmp_path: Path) -> None:
    rules = [{"record": f"q:{at}", "expr": query.values[0]} for at, query in enumerate(QUERIES)]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))

    done = subprocess.run(
        [str(promtool), "check", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )

    assert f"{len(QUERIES)} rules found" in done.stdout, done.stdout + done.stderr


def test_each_dashboard_has_a_name_of_its_own() -> None:
    assert len(FILES) == 5
    assert len({json.loads(path.read_text())["uid"] for path in FILES}) == 5
