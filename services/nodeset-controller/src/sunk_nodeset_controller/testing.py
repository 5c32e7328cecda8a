"""The service as tests run it: its own process, which may be killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path


class Service:
    """nodeset-controller as a process that may be killed."""

    def __init__(self, settings: dict[str, str], log: Path) -> None:
        self._settings = {"PATH": os.environ["PATH"]} | {  # noqa: TID251 - a child's environment is made here
            f"SUNK_NODESET_CONTROLLER_{name}": value for name, value in settings.items()
        }
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id, while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, or start it again."""
        with self._log.open("ab") as log:
            argv = [sys.executable, "-m", "sunk_nodeset_controller"]
            self._process = subprocess.Popen(argv, env=self._settings, stdout=log, stderr=log)

    def change(self, **settings: str) -> None:
        """Have other settings from the next start on."""
        self._settings |= {f"SUNK_NODESET_CONTROLLER_{name}": value for name, value in settings.items()}

    def bugs(self) -> list[str]:
        """Return the lines of its log that tell of a bug: nothing that is put into it may lead there."""
        words = "key failed", "stopped by a bug"
        return [line for line in self._log.read_text().splitlines() if any(word in line for word in words)]

    def another(self) -> "Service":
        """Return a standby with the same settings."""
        made = Service({}, self._log)
        made._settings = self._settings
        made.start()
        return made

    def end(self, number: signal.Signals) -> int:
        """End it by a signal and return its status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(60)
