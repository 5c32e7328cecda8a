"""What every test of the project shares: the event loop, and the real servers of the lab as fixtures."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")  # Other work on the machine is no failure.

pytest_plugins = ["sunk_lab.kube.testing", "sunk_lab.nats_testing", "sunk_lab.slurm.testing"]


@pytest.fixture
def anyio_backend() -> str:
    """nats-py and kubernetes_asyncio are asyncio-only."""
    return "asyncio"
