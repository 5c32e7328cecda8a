"""What every state adds to a scrape, kept and brought up to date by what changed.

What must stay true: after `update` the text is what it would be if it were made anew from the same states;
the series of single jobs never number more than the cap, and how many jobs lack theirs is known.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec

from sunk_events.base import State
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_metrics_exporter.slurm_metrics.ages import KINDS, Kind, rests_on
from sunk_metrics_exporter.slurm_metrics.samples import (
    ALWAYS,
    JobChoice,
    Part,
    Slot,
    of_job,
    of_node,
    of_partition,
    of_statistics,
    shares_of_job,
)
from sunk_metrics_exporter.slurm_metrics.table import TABLE
from sunk_metrics_exporter.slurm_metrics.text import head, line

S = TypeVar("S", bound=State)
_UPTIME: Final = "slurm_job_uptime_seconds"


class Slurm(msgspec.Struct, frozen=True):
    """What the bus knows of a Slurm cluster, by the states' keys."""

    nodes: Mapping[str, SlurmNodeState]
    jobs: Mapping[str, SlurmJobState]
    partitions: Mapping[str, SlurmPartitionState]
    statistics: Mapping[str, SlurmStatisticsState]


class ExpositionText:
    """Lines by metric and owner, sums by slot."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, str]] = {series.name: {} for series in TABLE}
        self._runs: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._sums: dict[str, dict[tuple[str, ...], list[int]]] = {series.name: {} for series in TABLE}
        """The sum, and how many add to it: one that nobody adds to is no zero, it is gone."""
        for slot in ALWAYS:
            self._add_share(slot, 0)

    def add(self, owner: str, part: Part) -> None:
        """Add *part*, of which *owner* had none."""
        for metric, text in part.lines.items():
            if text:
                self._lines[metric][owner] = text
        if part.runs:
            self._runs[owner] = (part.started, part.runs)
        for slot, share in part.shares:
            self._add_share(slot, share)

    def remove(self, owner: str, part: Part) -> None:
        """Take away the *part* that *owner* had."""
        for metric in part.lines:
            self._lines[metric].pop(owner, None)
        self._runs.pop(owner, None)
        for (metric, labels), share in part.shares:
            total = self._sums[metric][labels]
            total[0] -= share
            total[1] -= 1
            if not total[1]:
                del self._sums[metric][labels]

    def _add_share(self, slot: Slot, share: int) -> None:
        metric, labels = slot
        total = self._sums[metric].setdefault(labels, [0, 0])
        total[0] += share
        total[1] += 1

    def text(self, moment: float, *, is_open: bool, fresh: AbstractSet[Kind]) -> str:
        """Return everything in the table's order.

        Left out is a metric without samples, and one that rests on more kinds of state than are *fresh*.
        """
        texts: list[str] = []
        for series in TABLE:
            if not rests_on(series.name) <= fresh:
                continue
            found = [*self._lines[series.name].values()]
            found += [line(series.name, labels, sums[0]) for labels, sums in self._sums[series.name].items()]
            if series.name == _UPTIME:
                found += [
                    f" {max(int(moment - started), 0)}\n".join((*names, ""))
                    for started, names in self._runs.values()
                ]
            if found:
                texts += (head(series, is_open=is_open), *found)
        return "".join(texts)


class StateParts(Generic[S]):
    """The parts of all states of one kind."""

    def __init__(self, text: ExpositionText, name: str, part_of: Callable[[S], Part]) -> None:
        self._text = text
        self._name = name
        self._part_of = part_of
        self._known: dict[str, tuple[S, Part]] = {}
        self.newest: datetime | None = None
        """When the newest state began that the last update brought; None: it brought none."""

    def update(self, states: Mapping[str, S]) -> tuple[dict[str, S], list[str]]:
        """Take over what changed; return that, and what is gone."""
        known, name = self._known, self._name
        gone = [key for key in known if key not in states]
        for key in gone:
            self._text.remove(f"{name}/{key}", known.pop(key)[1])
        changed: dict[str, S] = {}
        begins: list[datetime] = []
        for key, state in states.items():
            before = known.get(key)
            if before is not None and before[0] is state:
                continue
            if before is not None:
                self._text.remove(f"{name}/{key}", before[1])
            part = self._part_of(state)
            self._text.add(f"{name}/{key}", part)
            known[key] = (state, part)
            changed[key] = state
            if before is None or before[0].changed != state.changed:  # Else it was only read again.
                begins.append(state.changed)
        self.newest = max(begins, default=None)
        return changed, gone


class JobSeriesParts:
    """The series of single jobs, under the cap: a job waits until there is room for it; smaller ones pass."""

    def __init__(self, text: ExpositionText, choice: JobChoice, most: int) -> None:
        self._text = text
        self._choice = choice
        self._most = most
        self._shown: dict[str, Part] = {}
        self._waiting: dict[str, Part] = {}
        self.size = 0
        """How many series are shown."""

    @property
    def left_out(self) -> int:
        """How many jobs lack their series."""
        return len(self._waiting)

    def update(self, changed: Mapping[str, SlurmJobState], gone: list[str]) -> None:
        """Take over what changed. A series that has a place keeps it if it still fits."""
        for key in gone:
            self._forget(key)
        for key, job in changed.items():
            had_place = key in self._shown
            self._forget(key)
            part = of_job(job, self._choice)
            if not part.size:
                continue
            self._waiting[key] = part
            if had_place:
                self._admit(key)
        for key in tuple(self._waiting):  # One that does not fit keeps nobody else out.
            self._admit(key)

    def _forget(self, key: str) -> None:
        self._waiting.pop(key, None)
        part = self._shown.pop(key, None)
        if part is not None:
            self._text.remove(f"job/{key}", part)
            self.size -= part.size

    def _admit(self, key: str) -> None:
        part = self._waiting[key]
        if self.size + part.size > self._most:
            return
        del self._waiting[key]
        self._shown[key] = part
        self._text.add(f"job/{key}", part)
        self.size += part.size


class Exposition:
    """Everything of the documents' table."""

    def __init__(self, choice: JobChoice | None = None, most: int = 1_000_000) -> None:
        self._text = ExpositionText()
        self._nodes = StateParts(self._text, "node", of_node)
        self._partitions = StateParts(self._text, "partition", of_partition)
        self._statistics = StateParts(self._text, "statistics", of_statistics)
        self._counts = StateParts(self._text, "count", shares_of_job)
        self.jobs: Final = JobSeriesParts(self._text, choice or JobChoice(), most)

    def update(self, slurm: Slurm) -> None:
        """Take over what changed since the last time."""
        self._nodes.update(slurm.nodes)
        self._partitions.update(slurm.partitions)
        self._statistics.update(slurm.statistics)
        self.jobs.update(*self._counts.update(slurm.jobs))

    def newest(self) -> dict[Kind, datetime | None]:
        """Return when the newest state of each kind began that the last update brought."""
        return {
            "nodes": self._nodes.newest,
            "jobs": self._counts.newest,
            "partitions": self._partitions.newest,
            "statistics": self._statistics.newest,
        }

    def text(
        self, moment: datetime, *, is_open: bool = False, fresh: AbstractSet[Kind] = frozenset(KINDS)
    ) -> str:
        """Return the page, as far as it rests on *fresh* kinds alone.

        It is in Prometheus' text format, or in OpenMetrics without its end.
        """
        return self._text.text(moment.timestamp(), is_open=is_open, fresh=fresh)
