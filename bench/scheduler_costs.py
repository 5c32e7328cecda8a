"""Whose processor time a burst is: ours, Slurm's, Kubernetes', and what was left of the machine's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from figures import TICKS


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


def _machine() -> tuple[int, int]:
    """Return how long the cores have been idle and how long they have been there."""
    times = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return times[3] + times[4], sum(times)


@dataclass
class Costs:
    """Processor time of processes by name since this was made.

    *machine* is a process of the namespace that all of Slurm runs in: what is neither *apart* there, slurmd,
    job steps and scripts, counts as ``slurmd``.
    """

    pids: Mapping[str, int]
    machine: int
    before: dict[str, int] = field(default_factory=dict[str, int])
    idle_before: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.before, self.idle_before = self._now(), _machine()

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
        after, (idle, whole) = self._now(), _machine()
        used = {
            f"{name}_cpu_ms": round((after[name] - self.before[name]) / TICKS * 1000 / count, 2)
            for name in sorted(after)
        }
        ours = sum(used.values())
        left = (idle - self.idle_before[0]) / max(1, whole - self.idle_before[1])
        total = (whole - self.idle_before[1]) / TICKS * 1000 / count
        return used | {
            "cpu_ms": round(ours, 1),
            "others_cpu_ms": round(total * (1 - left) - ours, 1),
            "idle": round(left, 2),
        }
