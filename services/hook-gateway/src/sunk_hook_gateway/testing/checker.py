"""The process that has Slurm's key, for tests."""

import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from sunk_lab.processes import wait_for
from sunk_runtime.testing import WITHIN_S


class Checker:
    """``python -m sunk_hook_gateway.token_checker`` with its socket and its log in *folder*."""

    def __init__(self, folder: Path, key_file: Path) -> None:
        self.key_file = key_file
        self.socket = folder / "socket"
        self._log = folder / "checker.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it answers."""
        command = [sys.executable, "-m", "sunk_hook_gateway.token_checker", self.key_file, self.socket]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log)
        wait_for("the checker of tokens", self._answers, WITHIN_S)

    def kill(self) -> None:
        """End it, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WITHIN_S)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.socket)) == 0


@contextmanager
def running_checker(folder: Path, key_file: Path) -> Generator[Checker]:
    """Yield one that answers."""
    checker = Checker(folder, key_file)
    try:
        checker.start()
        yield checker
    finally:
        checker.kill()
