"""Programs that the contract's tests ask for their opinion."""

from pathlib import Path

import pytest

from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.kube.prerequisites import program


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Prometheus' own reader of rules."""
    try:
        return program("promtool", "prometheus", cache=from_environment().cache, say=print)
    except LabError as error:
        pytest.skip(str(error))
