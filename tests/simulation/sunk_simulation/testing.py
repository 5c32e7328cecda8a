"""Tests that were written for real servers, run in a simulation: the plugins of its models share this.

A test's event loop is a simulated one, and each test has a world of its own.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from sunk_simulation.simulation import Simulation

_PORT: Final = 20000


class World:
    """The simulation of the test that runs."""

    def __init__(self) -> None:
        self.at_start: Final[list[Callable[[Simulation], object]]] = []
        """Called with each that begins."""
        self._simulation: Simulation | None = None
        self._ports = _PORT

    def now(self) -> Simulation:
        """Return it; the first who asks makes it."""
        if self._simulation is None:
            out = sys.stderr if os.environ.get("SUNK_SIMULATION_TRACE") else None
            self._simulation = Simulation(int(os.environ.get("SUNK_SIMULATION_SEED", "0")), out=out)
            self._simulation.__enter__()
            for begin in self.at_start:
                begin(self._simulation)
        return self._simulation

    def port(self) -> int:
        """Return a port that is free."""
        self._ports += 1
        return self._ports

    def end(self) -> None:
        """Let go of it."""
        if self._simulation is not None:
            self._simulation.__exit__(None, None, None)
            self._simulation = None


world: Final = World()


def give(fixturedef: pytest.FixtureDef[Any], request: Any, name: str, value: object) -> object:
    """Have the fixture of that *name* be *value*; return it, or None where another one is set up."""
    if fixturedef.argname != name:
        return None
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value
