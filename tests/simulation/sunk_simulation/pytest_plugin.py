"""What the plugins of all models have in common: a simulated event loop, and a world for each test."""

from collections.abc import Generator
from typing import Any

import pytest

from sunk_simulation.testing import give, world


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> object:
    """Have anyio run tests on a simulated loop."""
    backend = ("asyncio", {"loop_factory": lambda: world.now().loop})
    return give(fixturedef, request, "anyio_backend", backend)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """End the world with the test."""
    try:
        return (yield)
    finally:
        world.end()
