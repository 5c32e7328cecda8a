"""How benchmarks measure and print: one JSON object a line and result."""

import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

TICKS: Final = os.sysconf("SC_CLK_TCK")


class Stopwatch:
    """Time, and processor time of this process, since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu_s = _cpu_s()

    def figures(self, messages: int, prefix: str = "") -> dict[str, float]:
        """Return how long it took, the rate, and the processor time a message."""
        took_s, cpu_s = time.perf_counter() - self._began, _cpu_s() - self._cpu_s
        return {
            f"{prefix}s": round(took_s, 3),
            f"{prefix}per_s": round(messages / took_s),
            f"{prefix}cpu_us": round(cpu_s / messages * 1e6, 1),
        }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_s_of(pid: int) -> float:
    """Return the processor time that a process has used, in seconds; raises OSError where it is gone.

    By its clock, see clock_getcpuclockid(3): ``/proc`` tells whole hundredths of a second, which a script
    that runs has not used.
    """
    return time.clock_gettime((~pid << 3) | 2)


@dataclass
class Usage:
    """Processor time and memory of a process since this was made."""

    pid: int
    began: float = field(default_factory=time.monotonic)
    before_s: float = 0.0

    def __post_init__(self) -> None:
        self.before_s = cpu_s_of(self.pid)

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time."""
        return cpu_s_of(self.pid) - self.before_s

    def figures(self, who: str) -> dict[str, float]:
        """Return the share of a core, the processor time and the resident memory."""
        cpu_s = self.cpu_s
        share = cpu_s / (time.monotonic() - self.began)
        resident = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {
            f"{who}_cores": round(share, 4),
            f"{who}_cpu_s": round(cpu_s, 2),
            f"{who}_mb": round(resident / 1e6),
        }


@dataclass
class Cores:
    """How much of all cores was left idle since this was made."""

    before: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.before = self._now()

    @staticmethod
    def _now() -> tuple[int, int]:
        """Return how long the cores have been idle and how long they have been there."""
        times = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return times[3] + times[4], sum(times)

    @property
    def whole_s(self) -> float:
        """Seconds of all cores together."""
        return (self._now()[1] - self.before[1]) / TICKS

    @property
    def idle(self) -> float:
        """The share of them that nobody used."""
        idle, whole = self._now()
        return (idle - self.before[0]) / max(1, whole - self.before[1])


def emit(name: str, count: int, *figures: dict[str, float]) -> None:
    """Print the result *name*: of *count* things, with *figures*."""
    line: dict[str, Any] = {"name": name, "n": count}
    for some in figures:
        line |= some
    print(json.dumps(line), flush=True)


def require(*, holds: bool, claim: str) -> None:
    """End the run unless *claim* holds."""
    if not holds:
        sys.exit(f"bench: it does not hold that {claim}")


def percentiles(took_ms: list[float], prefix: str = "") -> dict[str, float]:
    """Return the median and the 99th percentile: of less than a hundred that is, almost, the slowest."""
    slowest = statistics.quantiles(took_ms, n=100, method="inclusive")[98] if len(took_ms) > 1 else took_ms[0]
    return {
        f"{prefix}p50_ms": round(statistics.median(took_ms), 3),
        f"{prefix}p99_ms": round(slowest, 3),
    }


async def longest_stall(worst: list[float]) -> None:
    """Note for how long at most nobody else got the event loop."""
    while True:
        began = time.perf_counter()
        await anyio.sleep(0.001)
        worst[0] = max(worst[0], time.perf_counter() - began - 0.001)


async def latencies(times: int, deed: Callable[[], Awaitable[object]]) -> list[float]:
    """Return how long *deed* took each time, in milliseconds."""
    took: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        await deed()
        took.append((time.perf_counter() - began) * 1000)
    return took
