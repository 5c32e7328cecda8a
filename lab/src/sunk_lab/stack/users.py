"""The users of the stack's NATS: who may do what is the product's to say, so its own command says it."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.processes import PATIENCE_S

INCLUDED: Final = 'include "users.conf"'
"""What nats-server's configuration says to have the users; beside it is the file."""
PEOPLE: Final = "admin"
OTHER_TEAMS: Final = "subscriber"
_COMMAND: Final = Path(__file__).resolve().parents[4] / "tools" / "nats_users.py"
_FOR_ALL_CLUSTERS: Final = frozenset({"nodeset-controller"})


class NatsUsers:
    """The users and their passwords, one file each; *folder* is NATS' own."""

    def __init__(self, folder: Path, cluster: str) -> None:
        self._folder: Final = folder
        self._cluster: Final = cluster

    def make(self) -> None:
        """Write them where NATS reads them; passwords that are there stay.

        Raises:
            LabError: The command failed; says what it said.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        argv = [sys.executable, _COMMAND, "--clusters", self._cluster, "--passwords", self._passwords]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        if done.returncode:
            raise LabError(f"{_COMMAND.name} made no users: {done.stderr.strip()}")
        file = self._folder / "users.conf"
        file.touch(mode=0o600)
        file.write_text(done.stdout)

    def of_service(self, service: str) -> tuple[str, Path]:
        """Return the user that *service* is, and where its password is."""
        user = service if service in _FOR_ALL_CLUSTERS else f"{service}-{self._cluster}"
        return user, self._passwords / user

    def address(self, url: str, user: str) -> str:
        """Return *url* with the credentials of *user* in it."""
        password = (self._passwords / user).read_text().strip()
        return url.replace("nats://", f"nats://{user}:{password}@", 1)

    @property
    def _passwords(self) -> Path:
        return self._folder / "passwords"
