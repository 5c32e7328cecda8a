"""Runs tests that start nodeset-controller as a process of its own with a simulated one.

``pytest -p sunk_simulation.nodeset_controller_pytest_plugin``, with the plugins of the models: what tests
start by `sunk_nodeset_controller.testing.Service` is a process of the simulation then.
"""

import logging
import signal
from pathlib import Path
from typing import Final

import pytest

from sunk_nodeset_controller import testing
from sunk_runtime.errors import SunkError
from sunk_simulation.loop import Process
from sunk_simulation.services import main_of
from sunk_simulation.testing import world

pytest_plugins = ["sunk_simulation.pytest_plugin"]
_NAME: Final = "nodeset-controller"
_BUGS: Final = ("key failed", "stopped by a bug")


class Service:
    """A simulated process behind the face of `sunk_nodeset_controller.testing.Service`."""

    def __init__(self, settings: dict[str, str], log: Path) -> None:
        """Describe it; *log* is not written."""
        self._settings = {f"SUNK_NODESET_CONTROLLER_{name}": value for name, value in settings.items()}
        self._log: Final = log
        self._process: Process | None = None
        self._bugs = _Bugs()

    @property
    def pid(self) -> int:
        """Its process id, while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, or start it again."""
        simulation = world.now()
        host = simulation.loop.outside.host
        self._process = simulation.start(_NAME, main_of(_NAME), host=host, env=self._settings)
        self._process.at_end.append(self._bugs.note)

    def change(self, **settings: str) -> None:
        """Have other settings from the next start on."""
        self._settings |= {f"SUNK_NODESET_CONTROLLER_{name}": value for name, value in settings.items()}

    def bugs(self) -> list[str]:
        """Return what was said of bugs."""
        return self._bugs.said

    def another(self) -> "Service":
        """Return a standby with the same settings."""
        made = Service({}, self._log)
        made._settings, made._bugs = self._settings, self._bugs
        made.start()
        return made

    def end(self, number: signal.Signals) -> int:
        """End it by a signal and return its status."""
        process = self._process
        assert process is not None
        if number == signal.SIGKILL:
            process.kill()
        else:
            process.signal(number)
            world.now().loop.block(lambda: not process.is_alive)
        assert process.code is not None
        return process.code


class _Bugs(logging.Handler):
    """Hears of what must not happen."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, if it is that."""
        if any(word in record.getMessage() for word in _BUGS):
            self.said.append(record.getMessage())

    def note(self, process: Process) -> None:
        """Keep what a process ended by, if it is no error of ours."""
        error = process.error
        errors = BaseExceptionGroup("", [error]) if error is not None else None
        rest = errors.split((SunkError, SystemExit))[1] if errors is not None else None
        if rest is not None:
            self.said.append(repr(rest))


def pytest_configure(config: pytest.Config) -> None:
    """Let what a killed process had open be garbage."""
    config.addinivalue_line("filterwarnings", "ignore:Unclosed:ResourceWarning")


testing.Service = Service  # type: ignore[misc, assignment]
