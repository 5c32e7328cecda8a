"""Runs services as processes of a simulation, where tests have started processes of the system.

``pytest -p sunk_simulation.bus.pytest_plugin -p sunk_simulation.slurm.pytest_plugin
-p sunk_simulation.syncer_pytest_plugin``: `sunk_syncer.testing.process.SyncerProcess` is one then.
"""

import json
import logging
import signal
from pathlib import Path
from typing import Any, Final

from sunk_runtime.logging import JsonFormatter
from sunk_simulation.bus.pytest_plugin import world
from sunk_simulation.loop import Process
from sunk_simulation.services import main_of
from sunk_syncer.testing import process as syncer_testing


class SyncerProcess:
    """The face of `sunk_syncer.testing.process.SyncerProcess`."""

    def __init__(self, folder: Path, **settings: str) -> None:
        """Describe it."""
        self._settings = {f"SUNK_SYNCER_{name.upper()}": value for name, value in settings.items()}
        self._processes: list[Process] = []
        self._lines = _Lines(self._processes)
        self.folder: Final = folder

    @property
    def log(self) -> list[dict[str, Any]]:  # Any: log lines carry what they like.
        """What it has said so far."""
        return self._lines.lines

    def start(self, **settings: str) -> None:
        """Start it, with some settings other than usual; an empty one is left out."""
        more = {f"SUNK_SYNCER_{name.upper()}": value for name, value in settings.items()}
        given = {name: value for name, value in (self._settings | more).items() if value}
        sim = world.now()
        if not self._processes:
            logging.getLogger().addHandler(self._lines)
        process = sim.start("syncer", main_of("syncer"), host=sim.loop.outside.host, env=given)
        self._processes.append(process)

    def another(self, folder: Path) -> "SyncerProcess":
        """Return one more with the same settings, not started."""
        other = SyncerProcess(folder)
        other._settings = self._settings
        return other

    def has_logged(self, message: str, *, times: int = 1) -> bool:
        """Whether its log has *message*, at least so often."""
        return sum(line["message"] == message for line in self.log) >= times

    def is_running(self) -> bool:
        """Whether it runs now."""
        return bool(self._processes) and self._processes[-1].is_alive

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it, or tell it to end; return how it has ended, if it has."""
        process = self._processes[-1]
        process.kill() if number == signal.SIGKILL else process.signal(number)
        return process.code or 0

    def close(self) -> None:
        """Leave nothing behind."""
        for process in self._processes:
            process.kill()
        logging.getLogger().removeHandler(self._lines)


class _Lines(logging.Handler):
    """Keeps what some processes log, as they would write it."""

    def __init__(self, processes: list[Process]) -> None:
        super().__init__()
        self.lines: Final[list[dict[str, Any]]] = []
        self._processes = processes
        self._formatter = JsonFormatter(service="syncer")

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        if world.now().loop.current in self._processes:
            self.lines.append(json.loads(self._formatter.format(record)))


syncer_testing.SyncerProcess = SyncerProcess  # type: ignore[misc, assignment]
