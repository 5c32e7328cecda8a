"""What the services say of themselves in figures (Prometheus' text format), looked at twice. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from prometheus_client.parser import text_string_to_metric_families

STARTED: Final = "process_start_time_seconds"


class Sample(msgspec.Struct, frozen=True):
    """One series at one moment."""

    labels: Mapping[str, str]
    value: float


Samples = Mapping[str, tuple[Sample, ...]]
"""By the name of the series."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one Pod said, twice."""

    pod: str
    """Namespace and name, with a slash between."""
    cluster: str = ""
    """The Slurm cluster; empty: of the Kubernetes cluster."""
    before: Samples = {}
    now: Samples = {}


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One series of one Pod, now."""

    pod: str
    cluster: str
    labels: Mapping[str, str]
    value: float
    over_s: float = 0.0
    """In how long a counter has risen by *value*."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What all Pods said."""

    readings: Sequence[Reading]
    time_s: float
    """Now, in seconds of the epoch."""
    apart_s: float
    """How long before that each Pod was asked the first time."""

    def points(self, series: str, **labels: str) -> Iterator[Point]:
        """Yield each series of that name whose labels have these values."""
        for reading in self.readings:
            for sample in reading.now.get(series, ()):
                if labels.items() <= sample.labels.items():
                    yield Point(
                        pod=reading.pod, cluster=reading.cluster, labels=sample.labels, value=sample.value
                    )

    def rises(self, series: str, within_s: float, **labels: str) -> Iterator[Point]:
        """Yield by how much each counter of that name has risen, those that have.

        That is since the look before, or since the service's start if that was within *within_s* seconds.
        """
        for reading in self.readings:
            started = next((one.value for one in reading.now.get(STARTED, ())), 0.0)
            is_young = self.time_s - started < within_s
            known = {tuple(sorted(one.labels.items())): one.value for one in reading.before.get(series, ())}
            for sample in reading.now.get(series, ()):
                before = 0.0 if is_young else known.get(tuple(sorted(sample.labels.items())), 0.0)
                rise = sample.value - before if sample.value >= before else sample.value
                if rise > 0 and labels.items() <= sample.labels.items():
                    yield Point(
                        pod=reading.pod,
                        cluster=reading.cluster,
                        labels=sample.labels,
                        value=rise,
                        over_s=within_s if is_young else self.apart_s,
                    )


def read(text: str, wanted: frozenset[str]) -> Samples:
    """Return the samples of the series *wanted* in a page of metrics.

    Raises:
        ValueError: it is no such page.
    """
    found: dict[str, list[Sample]] = {}
    lines = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] in wanted]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(Sample(sample.labels, sample.value))
    return {name: tuple(samples) for name, samples in found.items()}
