"""Whose processor time a burst is: ours, Slurm's, Kubernetes', and what was left of the machine's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from figures import TICKS, Cores, cpu_s_of


def _used_s(pid: int) -> float:
    """Return what a process has used; nothing of one that is gone."""
    try:
        return cpu_s_of(pid)
    except OSError:
        return 0.0


def _of_children_s(pid: int) -> float:
    """Return what a process' children have used that are over, and theirs."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[13]) + int(words[14])) / TICKS


def _namespace(pid: int | str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


@dataclass
class Costs:
    """Processor time of processes by name since this was made.

    *machine* is a process of the namespace that all of Slurm runs in: what is neither *apart* there, slurmd,
    job steps and scripts, counts as ``slurmd``.
    """

    pids: Mapping[str, int]
    machine: int
    before: dict[str, float] = field(default_factory=dict[str, float])
    cores: Cores = field(default_factory=Cores)

    def __post_init__(self) -> None:
        self.before = self._now()

    def _now(self) -> dict[str, float]:
        found = {name: _used_s(pid) for name, pid in self.pids.items()}
        inside = _namespace(self.machine)
        whole = sum(
            _used_s(int(entry.name)) + _of_children_s(int(entry.name))
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _namespace(entry.name) == inside
        )
        apart = sum(found[name] for name, pid in self.pids.items() if _namespace(pid) == inside)
        return found | {"slurmd": whole - apart}

    def figures(self, count: int) -> dict[str, float]:
        """Return milliseconds of processor time for each of *count*, and the share of all cores left idle."""
        after = self._now()
        used = {
            f"{name}_cpu_ms": round((after[name] - self.before[name]) * 1000 / count, 2)
            for name in sorted(after)
        }
        ours = sum(used.values())
        left, total = self.cores.idle, self.cores.whole_s * 1000 / count
        return used | {
            "cpu_ms": round(ours, 1),
            "others_cpu_ms": round(total * (1 - left) - ours, 1),
            "idle": round(left, 2),
        }
