"""A syncer process that may be killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from sunk_runtime.testing import WITHIN_S


class SyncerProcess:
    """``python -m sunk_syncer``, its log in a file."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._folder = folder
        self._settings = {f"SUNK_SYNCER_{name.upper()}": value for name, value in settings.items()}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> list[dict[str, Any]]:  # Any: log lines carry what they like.
        """What it has said so far, in whole lines."""
        text = (self._folder / "syncer.log").read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]

    def start(self, **settings: str) -> None:
        """Start it, with some settings other than usual; an empty one is left out."""
        more = {f"SUNK_SYNCER_{name.upper()}": value for name, value in settings.items()}
        given = {name: value for name, value in (self._settings | more).items() if value}
        with (self._folder / "syncer.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sunk_syncer"],
                env={"PATH": "/usr/bin:/bin", **given},
                stdout=log,
                stderr=log,
            )

    def another(self, folder: Path) -> "SyncerProcess":
        """Return one more with the same settings, not started."""
        folder.mkdir()
        other = SyncerProcess(folder)
        other._settings = self._settings
        return other

    def has_logged(self, message: str, *, times: int = 1) -> bool:
        """Whether its log has *message*, at least so often."""
        return sum(line["message"] == message for line in self.log) >= times

    def is_running(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.poll() is None

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it and return how it ended."""
        assert self._process is not None
        os.kill(self._process.pid, number)
        return self._process.wait(WITHIN_S)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.is_running():
            self.kill()
