"""Dashboards ask for metrics that exist, in queries that Prometheus can read."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "helm" / "sunk" / "files" / "dashboards").glob("*.json"))
QUERIES = [
    pytest.param(target["expr"], id=f"{path.stem}: {panel['title']}")
    for path in FILES
    for panel in json.loads(path.read_text())["panels"]
    for target in panel["targets"]
]
CHOICE = 'slurm_cluster=~"$cluster"'
METRIC = r"\b((?:sunk|slurm)_(?!cluster\b)\w+)"
NAMES = re.findall(r"^\| `(\w+)` \| (\w+) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
METRICS = {name for name, _ in NAMES} | {
    f"{name}_{part}" for name, kind in NAMES if kind == "histogram" for part in ("bucket", "count", "sum")
}


def named(query: str) -> list[str]:
    """Return the metrics that *query* names, also by a choice of words: ``a_(b|c)``."""
    found: list[str] = []
    for name, words in re.findall(rf"{METRIC}(?:\(([\w|]+)\))?", query.replace(CHOICE, "")):
        found += [name + word for word in words.split("|")] if words else [name]
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_a_panel_asks_for_metrics_that_exist(query: str) -> None:
    assert named(query)
    assert [name for name in named(query) if name not in METRICS] == []


@pytest.mark.parametrize("query", QUERIES)
def test_a_panel_shows_the_chosen_slurm_clusters_only(query: str) -> None:
    selectors = re.findall(r"\{[^}]*\}", query)

    assert len(selectors) == len(re.findall(METRIC, query.replace(CHOICE, "")))
    assert all(CHOICE in selector for selector in selectors)


def test_prometheus_reads_every_query(promtool: Path, tmp_path: Path) -> None:
    rules = [{"record": f"q:{at}", "expr": query.values[0]} for at, query in enumerate(QUERIES)]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))

    done = subprocess.run(
        [str(promtool), "check", "rules", str(file)], capture_output=True, text=True, timeout=240, check=False
    )

    assert f"{len(QUERIES)} rules found" in done.stdout, done.stdout + done.stderr


def test_each_dashboard_has_a_name_of_its_own() -> None:
    assert len(FILES) == 5
    assert len({json.loads(path.read_text())["uid"] for path in FILES}) == 5


def test_two_exporters_that_say_the_same_count_once(promtool: Path, tmp_path: Path) -> None:
    """An exporter's own histograms and counters are summed; what it tells of the cluster is not."""
    metrics = {
        "Drained nodes, by owner and cause": ("sunk_drained_nodes", {"owner": "person", "cause": "other"}),
        "Running, by account": ("slurm_jobs_running", {"account": "ml"}),
        "Pods by phase": ("sunk_placements", {"phase": "bound"}),
        "Locks by value": ("sunk_locks", {"lock": "locked"}),
        "Jobs by state": ("slurm_queue_running", {"slurm_cluster": "c"}),
        "Nodes that do not respond": ("slurm_nodes_not_responding", {"slurm_cluster": "c"}),
        "GPUs, by user": ("slurm_job_gpus_allocated", {"user": "ada"}),
    }
    queries = {
        panel["title"]: panel["targets"][0]["expr"].replace("$cluster", ".*")
        for path in FILES
        for panel in json.loads(path.read_text())["panels"]
    }

    def series(name: str, labels: dict[str, str]) -> str:
        pairs = ",".join(f'{key}="{value}"' for key, value in labels.items())
        return f"{name}{{{pairs}}}"

    def told(title: str) -> str:
        name, labels = metrics[title]
        return series(name if title == "Jobs by state" else "", labels)

    replicas = [{"instance": f"10.0.0.{at}:8080", "pod": f"exporter-{at}"} for at in (1, 2)]
    case = {
        "interval": "1m",
        "input_series": [
            {"series": series(name, {"slurm_cluster": "c", **labels, **replica}), "values": "3x5"}
            for name, labels in metrics.values()
            for replica in replicas
        ],
        "promql_expr_test": [
            {
                "expr": queries[title],
                "eval_time": "5m",
                "exp_samples": [{"labels": told(title), "value": 3}],
            }
            for title in metrics
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(json.dumps({"rule_files": [], "tests": [case]}))

    done = subprocess.run(
        [str(promtool), "test", "rules", str(file)], capture_output=True, text=True, timeout=240, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
