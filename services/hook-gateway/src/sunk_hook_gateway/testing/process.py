"""A gateway as its own process."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sunk_hook_gateway.testing.issuer import ISSUER
from sunk_runtime.testing import WITHIN_S


def settings_of(cluster: str, nats_url: str, port: int, keys_file: Path) -> dict[str, str]:
    """Return the settings of a gateway that is quick to answer."""
    return {
        "CLUSTER": cluster,
        "NATS_URL": nats_url,
        "HTTP_PORT": str(port),
        "TOKEN_KEYS_FILE": str(keys_file),
        "TOKEN_ISSUER": ISSUER,
        "RELEASE_WAIT_S": "2",
        "POLL_S": "3",
        "PREHOOK_DEADLINE_S": "8",
    }


class Process:
    """``python -m sunk_hook_gateway`` with its log in *folder*."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.log = folder / "gateway.log"
        env = {name: value for name, value in os.environ.items() if not name.startswith("SUNK_")}  # noqa: TID251 - a test's own
        env |= {f"SUNK_HOOK_GATEWAY_{name}": value for name, value in settings.items()}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([sys.executable, "-m", "sunk_hook_gateway"], stderr=log, env=env)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Return the exit code."""
        return self._process.wait(WITHIN_S)

    def close(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(WITHIN_S)
