"""Ports that are chosen now and listened on later."""

import subprocess
import sys
from pathlib import Path

import pytest

from sunk_lab.ports import free_ports, give_back

TAKE = """
import sys
from sunk_lab.ports import free_ports

print(*(free_ports(11) for _ in range(40)), flush=True)
sys.stdin.read()
"""


def test_no_two_processes_get_the_same_port(tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path)}  # So that a run of all tests does not miss so many.
    command, pipe = [sys.executable, "-c", TAKE], subprocess.PIPE
    processes = [subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe) for _ in range(4)]
    try:
        # Each holds what it has until all have theirs.
        firsts = [int(word) for one in processes if one.stdout for word in one.stdout.readline().split()]
    finally:
        for one in processes:
            one.communicate()

    assert len(firsts) == 4 * 40
    assert len({first + number for first in firsts for number in range(11)}) == 4 * 40 * 11


def take(only: int) -> str:
    """Return what another process says that is to choose the port *only*."""
    code = "from sunk_lab import ports\n"
    code += f"ports.random.randrange = lambda *_: {only}\nprint(ports.free_ports(1))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    return done.stdout.strip() or done.stderr.splitlines()[-1]


def test_a_port_is_given_again_once_its_process_has_ended_or_given_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_ports(1)

    def chosen(_first: int, _end: int) -> int:
        return port

    monkeypatch.setattr("random.randrange", chosen)
    another = free_ports(1)
    assert another != port
    assert take(port) not in {str(port), str(another)}
    give_back(port, 1)

    assert take(port) == str(port)
    assert free_ports(1) == port
    give_back(port, 1)
