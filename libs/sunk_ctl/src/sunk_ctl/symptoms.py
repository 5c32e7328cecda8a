"""Kinds of rules about the figures of services: each says what is wrong. Pure.

An alert looks at minutes or an hour. A rule looks at two moments, and at what a young service has counted.
What is not known, because a Pod did not answer, is not wrong.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from sunk_ctl.figures import INSTANCE, Figures, Point

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
_FAILED: Final = re.compile(r"failed|401|5..")
Found = tuple[Point, str]
"""Who said so, and what is wrong in a sentence."""
Finds = Callable[[Figures, float], Iterator[Found]]
"""Finds what is above a bound, or below it."""


def above(series: str, text: str, *, unless: tuple[str, ...] = ("",), **labels: str) -> Finds:
    """Return a rule about a gauge: its size is above the bound.

    *unless* is a label, and values of it that are well.
    """
    label, *well = unless

    def finds(figures: Figures, bound: float) -> Iterator[Found]:
        for point in figures.points(series, labels):
            if abs(point.value) > bound and point.labels.get(label) not in well:
                yield point, _filled(text, point)

    return finds


def rises_fast(
    series: str,
    within_s: float,
    text: str,
    *,
    by: tuple[str, ...] = (),
    least: int = 1,
    **labels: str,
) -> Finds:
    """Return a rule about a counter: it rises by more than the bound in *within_s* seconds.

    It must have been seen to rise by *least*: few events in a short time say little of a long one. A bound
    that is lower than that counts by itself.
    """

    def finds(figures: Figures, bound: float) -> Iterator[Found]:
        enough = min(least, math.floor(bound) + 1)
        for point in figures.rises(series, within_s, by, labels):
            if point.value >= enough and point.per_s * within_s > bound:
                yield point, _filled(text, point)

    return finds


def bus_silent(figures: Figures, bound: float) -> Iterator[Found]:
    """A service has received nothing from NATS for long; it has a view of each bucket."""
    oldest: dict[str, Point] = {}
    for point in figures.points("sunk_view_age_seconds"):
        if point.pod not in oldest or point.value > oldest[point.pod].value:
            oldest[point.pod] = point
    for point in oldest.values():
        if point.value > bound:
            yield point, f"has received nothing from NATS for {_age(point.value)}"


def lists_are_old(figures: Figures, bound: float) -> Iterator[Found]:
    """Slurm has returned no complete list of a kind for long; a standby's figures stand still."""
    newest: dict[tuple[str, str], Point] = {}
    for point in figures.points("sunk_syncer_answered_timestamp_seconds"):
        key = (point.cluster, point.labels.get("kind", ""))
        if key not in newest or point.value > newest[key].value:
            newest[key] = point
    for (cluster, kind), point in newest.items():
        if (cluster, point.service) not in figures.silent and figures.time_s - point.value > bound:
            yield (
                point,
                f"Slurm has not returned a complete list of {kind} for {_age(figures.time_s - point.value)}",
            )


def no_exporter(figures: Figures, _: float) -> Iterator[Found]:
    """No exporter of a Slurm cluster reports anything."""
    reporting = {point.cluster for point in figures.points("sunk_state_age_seconds")}
    unknown = {cluster for cluster, service in figures.silent if service == EXPORTER}
    for cluster in sorted({one.cluster for one in figures.readings if one.cluster} - reporting - unknown):
        yield Point(cluster=cluster), "no metrics-exporter reports the states on the bus"


def no_leader(figures: Figures, _: float) -> Iterator[Found]:
    """No replica of a service leads, at both looks: between two leaders there is none for a moment."""
    leads: dict[tuple[str, str, str], float] = defaultdict(float)
    for is_before in (True, False):
        for point in figures.points("sunk_leader", is_before=is_before):
            leads[point.cluster, point.service, point.labels.get("lease", "")] += point.value
    for (cluster, service, lease), value in sorted(leads.items()):
        if not value and (cluster, service) not in figures.silent:
            text = f"no replica holds the lease {lease}: its service does not work"
            yield Point(cluster=cluster or service), text


def bus_full(figures: Figures, _: float) -> Iterator[Found]:
    """NATS refuses what a service writes, for lack of space."""
    series, labels = "sunk_publishes_failed_total", {"reason": "unavailable"}
    failing = {point.pod for point in figures.rises(series, 5 * MINUTE_S, (INSTANCE,), labels)}
    for point in figures.points("sunk_bus_full"):
        if point.value and point.pod in failing:
            yield point, "NATS has no space for the service's messages"


def prologs_drain(figures: Figures, bound: float) -> Iterator[Found]:
    """Prologs drain more nodes than failed locks may: those, and 1 % of all."""
    nodes = {point.cluster: point.value for point in figures.points("slurm_nodes_total")}
    for point in figures.points("sunk_drained_nodes", {"cause": "prolog pre-hook failed"}):
        if point.value > bound + 0.01 * nodes.get(point.cluster, 0.0):
            yield point, f"prologs have drained {point.value:.0f} nodes"


def certificate_ends(service: str, text: str) -> Finds:
    """Return a rule about a certificate: less of its time is left than the bound."""

    def finds(figures: Figures, bound: float) -> Iterator[Found]:
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
            if left < bound:
                yield start, text.format(left=f"{left:.0%}")

    return finds


def nodesets_without_slurm(figures: Figures, _: float) -> Iterator[Found]:
    """The nodeset-controller that leads does not know what Slurm says."""
    leading = {point.pod for point in figures.points("sunk_leader") if point.value}
    for point in figures.points("sunk_nodeset_slurm_known"):
        if not point.value and point.pod in leading:
            nodeset = point.labels.get("nodeset", "")
            yield (
                point,
                f"Slurm's state of the nodes of NodeSet {nodeset} is not known, or far fewer are known",
            )


def calls_fail(figures: Figures, bound: float) -> Iterator[Found]:
    """So many calls to slurmrestd fail in a second."""
    failed: dict[tuple[str, str], list[Point]] = defaultdict(list)
    by = (INSTANCE, "call", "outcome")
    for point in figures.rises("sunk_slurm_call_duration_seconds_count", 5 * MINUTE_S, by):
        if _FAILED.fullmatch(point.labels["outcome"]):
            failed[point.pod, point.labels["call"]].append(point)
    for (_, call), points in failed.items():
        if sum(point.per_s for point in points) > bound:
            outcomes = sorted({point.labels["outcome"] for point in points})
            yield points[0], f"calls {call} to slurmrestd fail ({', '.join(outcomes)})"


def _filled(text: str, point: Point) -> str:
    """Return *text* with the point's labels, value and age in it."""
    known: dict[str, object] = {"value": point.value, "age": _age(abs(point.value))}
    return text.format_map(defaultdict(lambda: "?", {**point.labels, **known}))


def _age(seconds: float) -> str:
    if math.isinf(seconds) or math.isnan(seconds):
        return "never reported"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


EXPORTER: Final = "sunk-metrics-exporter"
