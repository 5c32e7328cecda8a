"""TCP ports of 127.0.0.1: which are free, which are listened on."""

import random
import socket

from sunk_lab.errors import LabError


def free_ports(count: int) -> int:
    """Return the first of *count* free ports in a row, below those that the kernel hands out."""
    for _ in range(100):
        first = random.randrange(20000, 31000 - count)  # noqa: S311 - so that two runs at once rarely meet.
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise LabError(f"no {count} free ports in a row between 20000 and 31000")


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
