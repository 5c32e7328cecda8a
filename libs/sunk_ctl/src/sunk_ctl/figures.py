"""What the services say of themselves in figures (Prometheus' text format), looked at twice. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

STARTED: Final = "process_start_time_seconds"
INSTANCE: Final = "instance"
"""The label by which Prometheus tells Pods apart."""


class Sample(msgspec.Struct, frozen=True):
    """One series at one moment."""

    labels: Mapping[str, str]
    value: float


Samples = Mapping[str, tuple[Sample, ...]]
"""By the name of the series."""


class Look(msgspec.Struct, frozen=True):
    """What one Pod said at one moment."""

    time_s: float
    """In seconds of the epoch."""
    samples: Samples


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one Pod said, twice."""

    pod: str
    """Namespace and name, with a slash between."""
    service: str = ""
    """Such as ``sunk-syncer``."""
    cluster: str = ""
    """The Slurm cluster; empty: of the Kubernetes cluster."""
    before: Look | None = None
    """None: it did not answer then."""
    now: Look


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One series, or the sum of several."""

    pod: str = ""
    """Empty: of several Pods."""
    service: str = ""
    cluster: str = ""
    labels: Mapping[str, str] = {}
    value: float = 0.0
    per_s: float = 0.0
    """How fast a counter has risen by *value*."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What all Pods said."""

    readings: Sequence[Reading]
    time_s: float
    """Now, in seconds of the epoch."""
    silent: frozenset[tuple[str, str]] = frozenset()
    """Slurm cluster and service of each Pod that did not answer: what it leads or tells is not known."""

    def points(
        self, series: str, labels: Mapping[str, str] | None = None, *, is_before: bool = False
    ) -> Iterator[Point]:
        """Yield each series of that name whose *labels* have these values."""
        for reading in self.readings:
            look = reading.before if is_before else reading.now
            for sample in look.samples.get(series, ()) if look is not None else ():
                if (labels or {}).items() <= sample.labels.items():
                    yield Point(
                        pod=reading.pod,
                        service=reading.service,
                        cluster=reading.cluster,
                        labels=sample.labels,
                        value=sample.value,
                    )

    def rises(
        self, series: str, within_s: float, by: tuple[str, ...] = (), labels: Mapping[str, str] | None = None
    ) -> Iterator[Point]:
        """Yield by how much counters of that name with these *labels* have risen, those that have.

        That is since the look before, or since the service's start if that was within *within_s* seconds.
        They are added up for each Slurm cluster and each value of the labels *by*; ``instance`` is the Pod.
        """
        sums: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
        for reading in self.readings:
            for sample in reading.now.samples.get(series, ()):
                value, over_s = self._rise(reading, series, sample, within_s)
                if value > 0 and (labels or {}).items() <= sample.labels.items():
                    known = {**sample.labels, INSTANCE: reading.pod}
                    key = (reading.cluster, *(known.get(label, "") for label in by))
                    sums[key].append((value, value / over_s))
        for (cluster, *values), found in sums.items():
            named = dict(zip(by, values, strict=True))
            yield Point(
                pod=named.get(INSTANCE, ""),
                cluster=cluster,
                labels=named,
                value=sum(value for value, _ in found),
                per_s=sum(per_s for _, per_s in found),
            )

    def _rise(self, reading: Reading, series: str, sample: Sample, within_s: float) -> tuple[float, float]:
        """Return by how much a counter has risen, and in how many seconds."""
        started = next((one.value for one in reading.now.samples.get(STARTED, ())), 0.0)
        if reading.now.time_s - started < within_s:
            return sample.value, within_s
        if reading.before is None:
            return 0.0, within_s
        known = (one for one in reading.before.samples.get(series, ()) if one.labels == sample.labels)
        before = next((one.value for one in known), 0.0)
        over_s = max(1.0, reading.now.time_s - reading.before.time_s)
        return sample.value - before if sample.value >= before else sample.value, over_s


def read(text: str, wanted: frozenset[str]) -> Samples:
    """Return the samples of the series *wanted* in a page of metrics.

    Raises:
        ValueError: it is no such page.
    """
    found: dict[str, list[Sample]] = {}
    # Of the characters that end a line elsewhere, a label may have all but this one.
    lines = (line for line in text.split("\n") if line.partition("{")[0].partition(" ")[0] in wanted)
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(Sample(sample.labels, sample.value))
    return {name: tuple(samples) for name, samples in found.items()}
