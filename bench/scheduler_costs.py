"""Whose processor time a burst is: ours, Slurm's, Kubernetes', and what was left of the machine's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from figures import TICKS, Cores


def _ticks(pid: int, *, with_children: bool = False) -> int:
    """Return what a process, and its children that are over, have used; nothing of one that is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(word) for word in words[11 : 15 if with_children else 13])


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
    before: dict[str, int] = field(default_factory=dict[str, int])
    cores: Cores = field(default_factory=Cores)

    def __post_init__(self) -> None:
        self.before = self._now()

    def _now(self) -> dict[str, int]:
        found = {name: _ticks(pid) for name, pid in self.pids.items()}
        inside = _namespace(self.machine)
        whole = sum(
            _ticks(int(entry.name), with_children=True)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _namespace(entry.name) == inside
        )
        apart = sum(found[name] for name, pid in self.pids.items() if _namespace(pid) == inside)
        return found | {"slurmd": whole - apart}

    def figures(self, count: int) -> dict[str, float]:
        """Return milliseconds of processor time for each of *count*, and the share of all cores left idle."""
        after = self._now()
        used = {
            f"{name}_cpu_ms": round((after[name] - self.before[name]) / TICKS * 1000 / count, 2)
            for name in sorted(after)
        }
        ours = sum(used.values())
        left, total = self.cores.idle, self.cores.whole_s * 1000 / count
        return used | {
            "cpu_ms": round(ours, 1),
            "others_cpu_ms": round(total * (1 - left) - ours, 1),
            "idle": round(left, 2),
        }
