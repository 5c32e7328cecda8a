"""Programs of Prometheus, for tests that ask for its opinion."""

from pathlib import Path

import pytest

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.kube.prerequisites import program


def of_prometheus(name: str) -> Path:
    """Return one of the programs of Debian's package, or skip."""
    try:
        return program(name, "prometheus", cache=from_environment().cache, say=print)
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
