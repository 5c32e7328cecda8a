"""Draws what the dashboards show: a real Prometheus' answers to their queries, of a real run of the lab.

The whole stack comes up; Prometheus scrapes all five services while the story's steps are told again and
again, jobs wait, and a drain by hand stands; then each dashboard becomes an SVG file. Nothing of it is
committed: the command makes it again.
"""

import argparse
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from gen_dashboards import DASHBOARDS, restricted, slug
from panels import Line, Panel, page

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.kube.prerequisites import program
from sunk_lab.processes import wait_for
from sunk_lab.stack.services import PORTS
from sunk_lab.stack.stack import Stack
from sunk_lab.story.stage import Stage
from sunk_lab.story.steps import STEPS
from sunk_metrics_exporter.testing.prometheus import Prometheus

STEP_S: Final = 1.0
QUEUED: Final = 8
_UNNAMED: Final = {"slurm_cluster", "instance", "job"}
"""What Prometheus adds to each series alike."""


class Options(argparse.Namespace):
    """What is wanted."""

    seconds: float
    folder: Path


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextmanager
def prometheus(stack: Stack, cluster: str) -> Generator[httpx.Client]:
    """Scrape every service of *stack*; yields a client that asks."""
    host = urlsplit(stack.hooks_url).hostname
    where = program("prometheus", "prometheus", cache=from_environment().cache, report=_report)
    with TemporaryDirectory() as folder:
        targets = [f"{host}:{port}" for port in PORTS.values()]
        server = Prometheus(Path(folder) / "prometheus", str(where), targets, cluster)
        try:
            with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as http:
                wait_for("Prometheus to be up", lambda: _is_up(http), 60.0, 0.2)
                yield http
        finally:
            server.close()


def _is_up(http: httpx.Client) -> bool:
    try:
        return http.get("/-/ready").is_success
    except httpx.TransportError as error:
        raise LabError(f"Prometheus: {type(error).__name__}") from error


def live(stage: Stage, seconds: float) -> None:
    """Let something of everything happen for so many seconds; a step that does not hold is said."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, step in {"queue": queue, **STEPS}.items():
            try:
                step(stage)
                _report(f"{name}: told, {max(end - time.monotonic(), 0):.0f} s left")
            except LabError as error:
                _report(f"{name}: did not hold: {error}")


def queue(stage: Stage) -> None:
    """Have more jobs than there is room for on one node, and return when all are over."""
    do, node = stage.deeds, stage.nodes[0]
    jobs = [do.slurm.submit("#!/bin/bash\nsleep 3\n", node=node.node, name="train") for _ in range(QUEUED)]
    for job in jobs:
        do.job_left(job)
    do.unlocked(node)


def panels(http: httpx.Client, title: str, cluster: str, begin: float, end: float) -> list[Panel]:
    """Return what the panels of a dashboard show between two moments."""
    found: list[Panel] = []
    for name, unit, query in DASHBOARDS[title]:
        params = {
            "query": restricted(query).replace("$cluster", cluster),
            "start": begin,
            "end": end,
            "step": STEP_S,
        }
        answer = http.get("/api/v1/query_range", params=params).raise_for_status().json()
        series = answer["data"]["result"]
        found.append(Panel(name, unit, tuple(_line(one, name, begin) for one in series)))
    return found


def _line(series: dict[str, Any], title: str, begin: float) -> Line:  # Any: Prometheus' own JSON
    labels = {name: value for name, value in series["metric"].items() if name not in _UNNAMED}
    name = labels.pop("__name__", "")
    words = ", ".join(f"{value}" for value in labels.values())
    points = tuple((float(at) - begin, float(value)) for at, value in series["values"])
    return Line(" ".join(filter(None, (name, words))) or title, points)


def draw(http: httpx.Client, cluster: str, begin: float, end: float, folder: Path) -> list[Path]:
    """Write one picture a dashboard and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    for title in DASHBOARDS:
        file = folder / f"{slug(title)}.svg"
        file.write_text(page(f"SUNK: {title}", tuple(panels(http, title, cluster, begin, end))))
        drawn.append(file)
    return drawn


def main() -> None:
    """Bring up, let live, draw, take down."""
    parser = argparse.ArgumentParser(prog="pictures", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long the run is")
    parser.add_argument("--folder", type=Path, default=Path("build/pictures"))
    options = parser.parse_args(namespace=Options())
    cluster = "lab"
    stack = Stack(from_environment(), report=_report)
    try:
        stack.up()
        with prometheus(stack, cluster) as http:
            begin = time.time()
            live(Stage(stack), options.seconds)
            for file in draw(http, cluster, begin, time.time(), options.folder):
                print(file)
    finally:
        stack.down()


if __name__ == "__main__":
    main()
