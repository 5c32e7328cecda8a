"""A real Prometheus scrapes every service of the whole stack: it refuses nothing, and all is there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from sunk_lab.errors import LabError
from sunk_lab.stack.services import PORTS
from sunk_lab.story.observe import until
from sunk_lab.story.stage import Stage
from sunk_metrics_exporter.testing.prometheus import Prometheus
from sunk_runtime.testing import WITHIN_S

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

LOOPS = {"syncer", "nodeset-controller", "pod-scheduler"}
"""The services that have control loops."""
OF_A_PROCESS = ("process_cpu_seconds_total", "python_gc_collections_total")
OF_A_LOOP = ("sunk_keys_waiting", "sunk_key_duration_seconds_count", "sunk_keys_handled_total")
REFUSED = 'sum({__name__=~"prometheus_target_scrapes_(sample|exceeded).*_total"})'
LEFT_OUT = 'sum(scrape_samples_scraped{job="sunk"}) - sum(scrape_samples_post_metric_relabeling{job="sunk"})'


@pytest.fixture
def http(stage: Stage, prometheus: Path, tmp_path: Path) -> Iterator[httpx.Client]:
    host = urlsplit(stage.stack.hooks_url).hostname
    targets = [f"{host}:{port}" for port in PORTS.values()]
    server = Prometheus(tmp_path / "prometheus", str(prometheus), targets, "lab")
    try:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=120) as client:
            yield client
    finally:
        server.close()


def ask(http: httpx.Client, query: str) -> list[dict[str, Any]]:  # Any: Prometheus' own JSON
    """Return what Prometheus answers; while it is not up, nothing."""
    try:
        answer = http.get("/api/v1/query", params={"query": query})
    except httpx.TransportError:
        return []
    return answer.raise_for_status().json()["data"]["result"] if answer.is_success else []


def services(http: httpx.Client, query: str) -> set[str]:
    """Return the services of which there is a series that *query* selects."""
    names = {str(port): service for service, port in PORTS.items()}
    return {names[one["metric"]["instance"].rpartition(":")[2]] for one in ask(http, query)}


def told(stage: Stage) -> set[str]:
    """Return the names of all samples that the exporter tells now."""
    try:
        lines = stage.stack.scrape().splitlines()
    except LabError:
        return set()
    return {line.partition(" ")[0].partition("{")[0] for line in lines if not line.startswith("#")}


def test_prometheus_takes_everything_that_every_service_tells(stage: Stage, http: httpx.Client) -> None:
    def up() -> set[str]:
        return services(http, 'up{job="sunk"} == 1')

    def lacking() -> list[str]:
        there = {one["metric"]["__name__"] for one in ask(http, '{job="sunk"}')}
        return sorted(told(stage) - there) or ([] if there else ["everything"])

    def tell() -> dict[str, set[str]]:
        return {name: services(http, f'{name}{{job="sunk"}}') for name in (*OF_A_PROCESS, *OF_A_LOOP)}

    wanted = {name: set(PORTS) for name in OF_A_PROCESS} | dict.fromkeys(OF_A_LOOP, LOOPS)
    until("Prometheus to scrape every service", lambda: up() == set(PORTS), up, patience_s=WITHIN_S)
    until("every series of the exporter to be there", lambda: not lacking(), lacking, patience_s=WITHIN_S)
    until(
        "Prometheus to have scraped itself", lambda: bool(ask(http, REFUSED)), lambda: "", patience_s=WITHIN_S
    )
    # A scrape that takes longer than it may leaves out a service for a moment.
    until("every service to tell what it is to", lambda: tell() == wanted, tell, patience_s=WITHIN_S)

    assert {one["value"][1] for one in (*ask(http, REFUSED), *ask(http, LEFT_OUT))} == {"0"}
    assert {one["metric"]["slurm_cluster"] for one in ask(http, '{job="sunk"}')} == {"lab"}
