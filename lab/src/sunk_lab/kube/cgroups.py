"""The cgroups of nodes, in every v1 hierarchy of the machine."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
_HIERARCHIES: Final = (
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "devices",
    "freezer",
    "blkio",
    "pids",
    "systemd",
)
_SHARES: Final = 8 * 1024
"""What all Pods of a node weigh beside the machine's other processes, each of which weighs 1,024.

With the kernel's own 1,024 a whole node gets no more than one of them: on a busy machine, its slurmctld and
slurmrestd stand still.
"""
_CPUSET_FILES: Final = ("cpuset.cpus", "cpuset.mems")


def is_supported(root: Path = ROOT) -> bool:
    """Return whether the machine has what the nodes' kubelets are set up for."""
    return (root / "memory" / "cgroup.procs").exists()


def make(name: str, root: Path = ROOT) -> None:
    """Make cgroup *name* in every hierarchy; the kubelet wants to find it everywhere."""
    for hierarchy in _HIERARCHIES:
        top = root / hierarchy
        if not top.is_dir():
            continue
        group = top / name
        group.mkdir(exist_ok=True)
        if hierarchy == "cpu":
            (group / "cpu.shares").write_text(str(_SHARES))
        if hierarchy == "cpuset":  # Empty sets would let nothing run.
            for file in _CPUSET_FILES:
                (group / file).write_text((top / file).read_text())
            (group / "cgroup.clone_children").write_text("1")


def remove(name: str, root: Path = ROOT) -> bool:
    """Remove cgroup *name* and what is below it, everywhere; return True.

    Raises:
        OSError: Something still runs in it; its end may be under way.
    """
    for hierarchy in (*_HIERARCHIES, "unified"):  # runc makes folders in the mixed mode's v2 hierarchy too.
        for path, _, _ in os.walk(root / hierarchy / name, topdown=False):
            Path(path).rmdir()
    return True


def names(prefix: str, root: Path = ROOT) -> list[str]:
    """Return every cgroup whose name begins with *prefix*, in whatever hierarchy, sorted."""
    return sorted({path.name for path in root.glob(f"*/{prefix}*") if path.is_dir()})


def processes_of(pod: str, program: str = "") -> list[int]:
    """Return the processes in the Pod with the uid *pod*, on whatever node, as this machine numbers them.

    *program*: only those that were started by this name.
    """
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # It is gone meanwhile.
            is_its = pod in (process / "cgroup").read_text().replace("_", "-")
            called = (process / "cmdline").read_bytes().partition(b"\0")[0].decode()
            if is_its and program in {"", called}:
                found.append(int(process.name))
    return found


@contextmanager
def slowed(process: int, share: float = 0.05, root: Path = ROOT) -> Generator[None]:
    """Have the container of *process* no more than *share* of a core meanwhile."""
    lines = [line.split(":") for line in Path(f"/proc/{process}/cgroup").read_text().splitlines()]
    (group,) = (path for _, kinds, path in lines if "cpu" in kinds.split(","))
    folder = root / "cpu" / group.lstrip("/")
    quota = folder / "cpu.cfs_quota_us"
    quota.write_text(str(int(share * int((folder / "cpu.cfs_period_us").read_text()))))
    try:
        yield
    finally:
        with suppress(FileNotFoundError):  # It has ended.
            quota.write_text("-1")
