"""What every test of the project shares: the event loop, and the real servers of the lab as fixtures."""

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["sunk_lab.kube.testing", "sunk_lab.nats_testing", "sunk_lab.slurm.testing"]

# A loaded machine is no failure: no test asserts on time.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture
def anyio_backend() -> str:
    """nats-py and kubernetes_asyncio are asyncio-only."""
    return "asyncio"
