"""What every test of the project shares."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """nats-py and kubernetes_asyncio are asyncio-only."""
    return "asyncio"
