"""One at a time, also over process borders: locks that end with their holder, however it ends."""

import contextlib
import fcntl
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def alone(path: Path) -> Generator[None]:
    """Wait for the lock *path* and hold it; a holder may remove its file."""
    while True:
        with _opened(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_still(file, path):
                yield
                return


@contextlib.contextmanager
def alone_or_not(path: Path) -> Generator[bool]:
    """Say whether the lock *path* was free; then it is held."""
    with _opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield _is_still(file, path)


def _opened(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab")


def _is_still(file: BinaryIO, path: Path) -> bool:
    # Who held it before may have removed it, and the next one locks another file of that name.
    try:
        return path.stat().st_ino == Path(f"/proc/self/fd/{file.fileno()}").stat().st_ino
    except FileNotFoundError:
        return False
