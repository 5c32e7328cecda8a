"""Kubernetes for tests, and what is left of one."""

from collections.abc import Generator
from pathlib import Path

import pytest

from sunk_lab.kube import cgroups
from sunk_lab.kube.lab import KubeLab
from sunk_lab.processes import run
from sunk_lab.reserved import reserved_lab


@pytest.fixture(scope="session")
def kube_lab() -> Generator[KubeLab]:
    """A running lab of three nodes for the whole test run."""
    with reserved_lab() as lab:
        lab.up(nodes=3)
        yield lab


@pytest.fixture
def own_kube_lab() -> Generator[KubeLab]:
    """A lab that is down, for one test to do with as it likes."""
    with reserved_lab() as lab:
        yield lab


def remains(lab: KubeLab) -> list[str]:
    """Return what is there of a lab: processes, mounts, links, routes, cgroups, its folder."""
    folder, net = str(lab.logs.parent), lab.network
    found = [f"process {pid.name}" for pid in Path("/proc").glob("[0-9]*") if _mentions(pid, folder)]
    found += [
        f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if folder in line
    ]
    found += [f"link {path.name}" for path in Path("/sys/class/net").glob(f"{net.bridge}*")]
    routes = run("ip", "route", "show", "table", "all").splitlines()
    found += [f"route {line}" for line in routes if f"{net.prefix}." in line]
    found += [f"cgroup {name}" for name in cgroups.names(net.bridge)]
    return found + [folder] * Path(folder).exists()


def _mentions(process: Path, folder: str) -> bool:
    # A node's processes have its folder among their mounts, all others name it.
    try:
        if not (process / "cmdline").read_bytes():
            return False  # A kernel thread, or a dead process that its parent has not looked at yet.
        return any(folder.encode() in (process / file).read_bytes() for file in ("cmdline", "mountinfo"))
    except OSError:
        return False
