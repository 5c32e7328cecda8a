"""A disk that is soon full: a tmpfs of a few MiB, where root allows."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.processes import run

_FILLER: Final = "filler"


class SmallDisk:
    """A mounted file system of a fixed size. Make it with `small_disk`."""

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder

    @property
    def free_bytes(self) -> int:
        """How much can still be written."""
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self) -> None:
        """Leave no free byte, as another program that writes its log would."""
        with (self.folder / _FILLER).open("ab", buffering=0) as filler:
            while free := self.free_bytes:
                filler.write(b"\0" * min(free, 1 << 20))

    def clear(self) -> None:
        """Give back what `fill` took."""
        (self.folder / _FILLER).unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, *, mib: int) -> Generator[SmallDisk]:
    """Mount *mib* MiB on *folder* while the context lasts.

    Raises:
        LabError: We may not mount; says so.
    """
    if os.geteuid() != 0:
        raise LabError("a disk of a fixed size needs root: it is a mount")
    folder.mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "sunk-lab", folder)
    try:
        yield SmallDisk(folder)
    finally:
        run("umount", "--lazy", folder)
