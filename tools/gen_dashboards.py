"""Writes Grafana's dashboards to helm/sunk/files/dashboards from one table of panels.

``--check`` writes nothing and fails if a file is not what the code says.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from generated import settle

FOLDER: Final = Path("helm/sunk/files/dashboards")
WIDTH: Final = 12
HEIGHT: Final = 8
COLUMNS: Final = 24
CLUSTER: Final = 'slurm_cluster=~"$cluster"'
"""The PodMonitor's label; where nobody sets it, every cluster's pattern matches its absence."""

Panel = tuple[str, str, str]
"""Title, unit as Grafana spells it, query; what a series is called follows from its labels.

``{}`` in a query restricts it to the chosen Slurm clusters.
"""


def _once(metric: str) -> str:
    """Return what any replica of the metrics-exporter says: each tells all of it."""
    return f"max without (instance, pod) ({metric}{{}})"


def _sum(metric: str, by: str) -> str:
    return f"sum({_once(metric)}) by ({by})"


def _share(what: str) -> str:
    alloc, total = (_sum(f"slurm_partition_{what}_{which}", "partition") for which in ("alloc", "total"))
    return f"{alloc} / {total}"


def _named(pattern: str) -> str:
    return f'max by (__name__, slurm_cluster) ({{__name__=~"{pattern}",{CLUSTER}}})'


def _quantile(metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile(0.9, sum(rate({metric}_bucket{{}}[15m])) by ({labels}))"


DASHBOARDS: Final[dict[str, tuple[Panel, ...]]] = {
    "Cluster": (
        ("GPUs in use, by partition", "percentunit", _share("gpu")),
        ("CPUs in use, by partition", "percentunit", _share("cpu")),
        ("Memory in use, by partition", "percentunit", _share("mem")),
        (
            "Nodes by state",
            "short",
            _named("slurm_nodes_(alloc|comp|down|drain|err|fail|idle|maint|mix|resv)"),
        ),
        ("Nodes that do not respond", "short", _once("slurm_nodes_not_responding")),
        ("Scheduler cycle, mean", "s", _once("slurm_scheduler_cycle_mean_seconds")),
    ),
    "Nodes and drains": (
        ("Drained nodes, by owner and cause", "short", _sum("sunk_drained_nodes", "owner, cause")),
        ("Oldest drain, by owner and cause", "s", "max(sunk_drain_oldest_age_seconds{}) by (owner, cause)"),
        (
            "Drains of ours that outlive their cause",
            "s",
            "max(sunk_drain_without_cause_oldest_age_seconds{}) by (cause)",
        ),
        ("Length of drains, p90", "s", _quantile("sunk_drain_duration_seconds", "owner")),
        ("GPUs that are idle on each node", "short", f"topk(20, {_once('slurm_node_gpu_idle')})"),
    ),
    "Jobs and queue": (
        ("Jobs by state", "short", _named("slurm_queue_(pending|running|suspended|completing)")),
        ("Pending for a dependency", "short", _once("slurm_queue_pending_dependency")),
        ("Wait before the start, p90", "s", _quantile("sunk_job_wait_seconds", "partition")),
        ("Pending, by account", "short", _sum("slurm_jobs_pending", "account")),
        ("Running, by account", "short", _sum("slurm_jobs_running", "account")),
        ("GPUs, by user", "short", f"topk(20, {_sum('slurm_job_gpus_allocated', 'user')})"),
    ),
    "Pods through Slurm": (
        ("Pods by phase", "short", _sum("sunk_placements", "phase")),
        ("Oldest Pod that waits", "s", "max(sunk_placement_waiting_oldest_age_seconds{})"),
        ("From Pod to binding, p90", "s", _quantile("sunk_placement_bind_seconds")),
        ("Locks by value", "short", _sum("sunk_locks", "lock")),
        ("Oldest pending lock", "s", "max(sunk_lock_pending_oldest_age_seconds{})"),
        ("Lock pending, p90", "s", _quantile("sunk_lock_pending_duration_seconds")),
    ),
    "SUNK itself": (
        ("Age of Slurm's state, by kind", "s", "max(sunk_state_age_seconds{}) by (kind)"),
        ("Delay of facts, p90", "s", _quantile("sunk_fact_delay_seconds")),
        ("Dead letters", "short", "sum(sunk_dead_letters_total{}) by (reason)"),
        ("Facts that wait, by consumer", "short", "max(sunk_event_lag{}) by (consumer)"),
        (
            "Calls to slurmrestd",
            "reqps",
            "sum(rate(sunk_slurm_call_duration_seconds_count{}[5m])) by (call, outcome)",
        ),
        ("Time of a scrape, p90", "s", _quantile("sunk_scrape_duration_seconds")),
    ),
}


def restricted(query: str) -> str:
    """Return *query* for the chosen Slurm clusters."""
    return query.replace("{}", f"{{{CLUSTER}}}")


def panel(number: int, what: Panel) -> dict[str, Any]:
    """Return the *number*-th panel of a dashboard, two in a row."""
    title, unit, query = what
    per_row = COLUMNS // WIDTH
    at = {"h": HEIGHT, "w": WIDTH, "x": number % per_row * WIDTH, "y": number // per_row * HEIGHT}
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": source,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": "A", "datasource": source, "expr": restricted(query), "legendFormat": "__auto"}
        ],
    }


def dashboard(title: str) -> dict[str, Any]:
    """Return a dashboard in Grafana's JSON."""
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    cluster = {
        "name": "cluster",
        "label": "Slurm cluster",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": "label_values(sunk_state_age_seconds, slurm_cluster)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    return {
        "uid": f"sunk-{slug(title)}",
        "title": f"SUNK: {title}",
        "tags": ["sunk", "slurm"],
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source, cluster]},
        "panels": [panel(number, what) for number, what in enumerate(DASHBOARDS[title])],
    }


def slug(title: str) -> str:
    """Return *title* as a file is called."""
    return title.lower().replace(" ", "-")


def files() -> dict[Path, str]:
    """Return what each file must hold."""
    return {
        FOLDER / f"{slug(title)}.json": json.dumps(dashboard(title), indent=2) + "\n" for title in DASHBOARDS
    }


def main(arguments: list[str]) -> int:
    """Write, or only look; return the exit status."""
    return settle(files(), arguments, FOLDER)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
