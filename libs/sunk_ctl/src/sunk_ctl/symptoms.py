"""Kinds of rules about the figures of services: each says what is wrong. Pure.

An alert looks at minutes or an hour. A rule looks at two moments, and at what a young service has counted.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from sunk_ctl.figures import Figures, Point

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
LIST_S: Final = 300.0
CALLS_PER_S: Final = 0.1


_FAILED: Final = re.compile(r"failed|401|5..")
Finds = Callable[[Figures], Iterator[tuple[Point, str]]]
"""Yields what is wrong in a sentence, and who said so."""


def above(
    series: str, bound: float, text: str, *, unless: tuple[str, str] = ("", ""), **labels: str
) -> Finds:
    """Return a rule about a gauge: its size is above *bound*."""

    def finds(figures: Figures) -> Iterator[tuple[Point, str]]:
        for point in figures.points(series, **labels):
            if abs(point.value) > bound and point.labels.get(unless[0]) != unless[1]:
                yield point, _filled(text, point)

    return finds


def risen(series: str, bound: float, within_s: float, text: str, **labels: str) -> Finds:
    """Return a rule about a counter: it rises by more than *bound* in *within_s* seconds."""

    def finds(figures: Figures) -> Iterator[tuple[Point, str]]:
        for point in figures.rises(series, within_s, **labels):
            if point.value / point.over_s * within_s > bound:
                yield point, _filled(text, point)

    return finds


def lists_are_old(figures: Figures) -> Iterator[tuple[Point, str]]:
    """Slurm did not tell all of a kind for long."""
    newest: dict[tuple[str, str], Point] = {}
    for point in figures.points("sunk_syncer_answered_timestamp_seconds"):
        key = (point.cluster, point.labels.get("kind", ""))
        if key not in newest or point.value > newest[key].value:
            newest[key] = point
    for (_, kind), point in newest.items():
        if figures.time_s - point.value > LIST_S:
            yield point, f"Slurm did not tell all {kind} for {_age(figures.time_s - point.value)}"


def no_exporter(figures: Figures) -> Iterator[tuple[Point, str]]:
    """No exporter of a Slurm cluster tells anything."""
    heard = {point.cluster for point in figures.points("sunk_state_age_seconds")}
    silent = {one.cluster for one in figures.readings if one.cluster} - heard
    for cluster in sorted(silent):
        text = "no metrics-exporter tells of the states on the bus"
        yield Point(pod="", cluster=cluster, labels={}, value=0.0), text


def no_leader(figures: Figures) -> Iterator[tuple[Point, str]]:
    """No replica of a service leads."""
    leaders: dict[tuple[str, str], float] = {}
    for point in figures.points("sunk_leader"):
        key = (point.cluster, point.labels.get("lease", ""))
        leaders[key] = max(leaders.get(key, 0.0), point.value)
    for (cluster, lease), value in sorted(leaders.items()):
        if not value:
            text = f"no replica holds the lease {lease}: the work of its service stands still"
            yield Point(pod="", cluster=cluster, labels={}, value=0.0), text


def bus_full(figures: Figures) -> Iterator[tuple[Point, str]]:
    """NATS refuses what a service writes, for lack of space."""
    failing = {
        point.pod
        for point in figures.rises("sunk_publishes_failed_total", 5 * MINUTE_S, reason="unavailable")
    }
    for point in figures.points("sunk_bus_full"):
        if point.value and point.pod in failing:
            yield point, "NATS has no room for what it writes"


def prologs_drain(figures: Figures) -> Iterator[tuple[Point, str]]:
    """Prologs drain more nodes than failed locks may."""
    nodes = {point.cluster: point.value for point in figures.points("slurm_nodes_total")}
    for point in figures.points("sunk_drained_nodes", cause="prolog pre-hook failed"):
        if point.value > 2 + 0.01 * nodes.get(point.cluster, 0.0):
            yield point, f"{point.value:.0f} nodes are drained by their prologs"


def certificate_ends(service: str, share: float, text: str) -> Finds:
    """Return a rule about a certificate: less than a *share* of its time is left."""

    def finds(figures: Figures) -> Iterator[tuple[Point, str]]:
        ends = {
            (point.pod, point.labels.get("file", "")): point.value
            for point in figures.points(f"sunk_{service}_certificate_end_timestamp_seconds")
        }
        for start in figures.points(f"sunk_{service}_certificate_start_timestamp_seconds"):
            end = ends.get((start.pod, start.labels.get("file", "")))
            if end is None:
                continue
            lasts_s = end - start.value  # 0: it could never be read.
            left = max(0.0, (end - figures.time_s) / lasts_s) if lasts_s > 0 else 0.0
            if left < share:
                yield start, text.format(left=f"{left:.0%}")

    return finds


def nodeset_blind(figures: Figures) -> Iterator[tuple[Point, str]]:
    """The nodeset-controller that leads does not know what Slurm says."""
    leading = {point.pod for point in figures.points("sunk_leader") if point.value}
    for point in figures.points("sunk_nodeset_slurm_known"):
        if not point.value and point.pod in leading:
            nodeset = point.labels.get("nodeset", "")
            yield (
                point,
                f"what Slurm says of the nodes of NodeSet {nodeset} is not known, or it knows far fewer",
            )


def calls_fail(figures: Figures) -> Iterator[tuple[Point, str]]:
    """Calls to slurmrestd fail."""
    for point in figures.rises("sunk_slurm_call_duration_seconds_count", 5 * MINUTE_S):
        outcome = point.labels.get("outcome", "")
        if _FAILED.fullmatch(outcome) and point.value / point.over_s > CALLS_PER_S:
            yield point, f"calls {point.labels.get('call', '')} to slurmrestd fail ({outcome})"


def _filled(text: str, point: Point) -> str:
    """Return *text* with the point's labels, value and age in it."""
    return text.format_map({**point.labels, "value": point.value, "age": _age(abs(point.value))})


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
