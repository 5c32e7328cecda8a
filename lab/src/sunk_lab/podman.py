"""Podman with a storage of its own: nothing of the machine's images is seen or changed."""

import shutil
from pathlib import Path
from typing import Final

from sunk_lab.engine import CONTAINERS_CONF
from sunk_lab.errors import LabError
from sunk_lab.kube.lab import check_machine
from sunk_lab.processes import run

_STORAGE_CONF: Final = """[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
_TIMEOUT_S: Final = 600.0


def check() -> None:
    """Raise LabError unless this machine can run containers by podman; says what it lacks."""
    check_machine()
    if not shutil.which("podman"):
        raise LabError("needs podman (Debian: podman runc netavark aardvark-dns)")


class Podman:
    """Podman that keeps everything in *folder*; `clear` gives it back."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "containers.conf").write_text(CONTAINERS_CONF)
        (folder / "storage.conf").write_text(_STORAGE_CONF.format(folder=folder))
        self.env: Final = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        """What makes any program that calls podman call this one."""

    def __call__(self, *args: str | Path) -> str:
        """Run podman and return what it wrote.

        Raises:
            LabError: It failed; says how.
        """
        return run("podman", *args, env=self.env, timeout_s=_TIMEOUT_S)

    def load(self, *archives: Path) -> None:
        """Take the images of docker archives."""
        for archive in archives:
            self("load", "--quiet", "--input", archive)

    def import_root(self, root: Path, tag: str, *, without: str = "") -> None:
        """Make an image of one layer of a folder, but for files whose names are as the pattern *without*."""
        archive = Path(self.env["CONTAINERS_CONF"]).with_name("root.tar")
        but = (f"--exclude={without}",) if without else ()
        run("tar", "--create", "--file", archive, "--directory", root, *but, ".", timeout_s=_TIMEOUT_S)
        self("import", "--quiet", archive, tag)
        archive.unlink()

    def clear(self) -> None:
        """Remove every container and image."""
        self("rm", "--all", "--force")
        self("rmi", "--all", "--force")
