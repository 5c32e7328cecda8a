"""TCP ports of 127.0.0.1: which are free, which are listened on.

A port is chosen long before something listens on it. So each process locks what it was given, in one file of
all users of the machine: byte N is port N. The kernel ends the locks with the process, however that ends.

Source: fcntl(2), "Advisory record locking".
"""

import contextlib
import fcntl
import functools
import os
import random
import socket
import tempfile
import threading
from pathlib import Path
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.kube import network

_FILE: Final = "sunk-lab-ports"
_one_at_a_time: Final = threading.Lock()
_given: Final = set(network.PORTS)
"""To this process, whose locks are no obstacle to itself, and those of the labs, which no process gets."""


def free_ports(count: int) -> int:
    """Return the first of *count* free ports in a row, below those that the kernel hands out.

    No process is given them again until this one ends, or gives them back.
    """
    with _one_at_a_time:
        # From a chance on, and then all: where chance is that of a seed, each call has the same.
        start = random.randrange(20000, 31000 - count)  # noqa: S311 - no secret
        for first in (*range(start, 31000 - count), *range(20000, start)):
            ports = range(first, first + count)
            if _given.isdisjoint(ports) and _lock(first, count):
                if all(map(_is_free, ports)):
                    _given.update(ports)
                    return first
                _unlock(first, count)
    raise LabError(f"no {count} free ports in a row between 20000 and 31000")


def free_port() -> int:
    """Return a port, as `free_ports` does."""
    return free_ports(1)


def give_back(first: int, count: int) -> None:
    """Let others have these ports; them not being ours is success."""
    with _one_at_a_time:
        ours = [port for port in range(first, first + count) if port in _given]
        _given.difference_update(ours)
        for port in ours:
            _unlock(port, 1)


def _lock(first: int, count: int) -> bool:
    locks = _locks()
    try:
        fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, count, first)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlock(first: int, count: int) -> None:
    fcntl.lockf(_locks(), fcntl.LOCK_UN, count, first)


@functools.cache
def _locks() -> int:
    """Return the open file: it stays open, for closing it would end every lock."""
    path = Path(tempfile.gettempdir()) / _FILE
    with contextlib.suppress(FileExistsError):
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR)
        os.fchmod(made, 0o666)  # Other users of the machine lock theirs.
        return made
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError as error:
        raise LabError(f"{path}, in which ports are locked: {error}: remove it") from error


def check_free(*ports: int) -> None:
    """Raise LabError for the first of *ports* that somebody has."""
    for port in ports:
        if not _is_free(port):
            raise LabError(f"port {port} of 127.0.0.1 is taken: choose another one, or 0 for any")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def is_open(port: int) -> bool:
    """Say whether somebody answers on *port*."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
