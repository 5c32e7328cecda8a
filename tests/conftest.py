"""Programs that tests of several folders run: those of Prometheus, and our benchmarks."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.kube.prerequisites import program
from sunk_lab.processes import environment


def of_prometheus(name: str) -> Path:
    """Return one of the programs of Debian's package, or skip."""
    try:
        return program(name, "prometheus", cache=from_environment().cache, report=print)
    except LabError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own reader of rules."""
    return of_prometheus("promtool")


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """Prometheus itself."""
    return of_prometheus("prometheus")


@pytest.fixture(scope="session")
def run_bench() -> Callable[..., list[dict[str, Any]]]:
    """Runs a benchmark to its end with arguments and more environment, and returns its results."""
    root = Path(__file__).parents[1]

    def run(name: str, arguments: str, more: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        started = subprocess.Popen(
            [sys.executable, "bench", name, *arguments.split()],
            cwd=root,
            env=environment({"PYTHONPATH": str(root / "tests/bus"), **(more or {})}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, errors = started.communicate()
        except BaseException:
            started.send_signal(signal.SIGTERM)  # It ends the servers that it has started.
            started.wait(60)
            raise
        assert started.returncode == 0, out[-3000:] + errors[-5000:]
        return [json.loads(line) for line in out.splitlines()]

    return run
