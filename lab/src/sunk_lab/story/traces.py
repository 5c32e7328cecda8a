"""The traces of the story: which spans a change leaves on its way through the services, and their picture."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from sunk_lab.collector import Collector, Received
from sunk_lab.errors import LabError

WAYS: Final[dict[str, tuple[str, tuple[tuple[str, str], ...]]]] = {
    "cordon": (
        "A Node is cordoned, and Slurm drains its node",
        (
            ("nodeset-controller", "store KubePodState"),
            ("syncer", "DrainNode"),
            ("syncer", "publish NodeDrained"),
            ("metrics-exporter", "handle NodeDrained"),
            ("syncer", "store SlurmNodeState"),
        ),
    ),
    "place": (
        "A Pod is submitted to Slurm, started there and bound to its Node",
        (
            ("pod-scheduler", "Submit"),
            ("pod-scheduler", "publish PlacementSubmitted"),
            ("pod-scheduler", "ReleaseJob"),
            ("pod-scheduler", "publish PlacementStarted"),
            ("pod-scheduler", "Bind"),
            ("pod-scheduler", "publish PlacementBound"),
            ("metrics-exporter", "handle PlacementBound"),
        ),
    ),
    "lock": (
        "A job's prolog asks for its Node, and Pods leave it",
        (
            ("hook-gateway", "call prehook"),
            ("hook-gateway", "ask AcquireLock"),
            ("nodeset-controller", "answer AcquireLock"),
            ("nodeset-controller", "LockNode"),
            ("nodeset-controller", "publish LockPending"),
            ("metrics-exporter", "handle LockPending"),
            ("nodeset-controller", "store LockState"),
            ("hook-gateway", "publish PrehookCalled"),
        ),
    ),
}
"""By the name of a story's step: what happens, and the spans that its picture shows, by service and name."""

ANSWERS: Final = ("hook-gateway", "publish PrehookCalled")
"""Follows the answer to a prolog. One that waits in vain calls again, which begins another trace: on a busy
machine the answer may be in a later trace than what the first call has set going."""

COLOURS: Final = {
    "hook-gateway": "#8250df",
    "metrics-exporter": "#57606a",
    "nodeset-controller": "#0969da",
    "pod-scheduler": "#1a7f37",
    "syncer": "#bc4c00",
}
_MARGIN: Final = 20
_NAMES: Final = 360
"""Where the bars begin, in pixels."""
_BARS: Final = 520
_ROW: Final = 26
_TOP: Final = 64
_AFTER: Final = 70
"""Room for the time behind the last bar."""


class Step(NamedTuple):
    """One span, with milliseconds since its trace began."""

    service: str
    name: str
    start_ms: float
    end_ms: float


def steps(trace: Sequence[Received]) -> list[Step]:
    """Return the spans of one trace, the earliest first."""
    began = min((one.span.start_time_unix_nano for one in trace), default=0)
    found = [
        Step(
            one.service.removeprefix("sunk-"),
            one.span.name,
            (one.span.start_time_unix_nano - began) / 1e6,
            (one.span.end_time_unix_nano - began) / 1e6,
        )
        for one in trace
    ]
    return sorted(found, key=lambda step: (step.start_ms, step.service, step.name))


def shown(trace: Sequence[Step], way: str) -> list[Step] | None:
    """Return the first span of each kind of *way*, in the order of `WAYS`; None if the trace lacks one."""
    first = {(step.service, step.name): step for step in reversed(trace)}
    wanted = WAYS[way][1]
    is_whole = {*first, ANSWERS} >= set(wanted)
    return [first[kind] for kind in wanted if kind in first] if is_whole else None


def find(collector: Collector, way: str, since_ns: int) -> list[Step]:
    """Return the spans of *way* in a trace that began after *since_ns*.

    Raises:
        LabError: none is whole yet; the text says what each lacks.
    """
    wanted = WAYS[way][1]
    begins = wanted[0][1]
    lacks: list[str] = []
    for one in list(collector.received):
        if one.span.name == begins and one.span.start_time_unix_nano >= since_ns:
            trace = steps(collector.trace(one.span.trace_id))
            found = shown(trace, way)
            if found is not None:
                return found
            there = {(step.service, step.name) for step in trace}
            lacks.append(", ".join(" ".join(kind) for kind in wanted if kind not in there))
    raise LabError(f"of traces that begin with {begins!r}, each lacks something: {lacks}")


def picture(spans: Sequence[Step], way: str) -> str:
    """Return an SVG document with a row for each span: service, name, and a bar for its time."""
    whole = max(1.0, *(step.end_ms for step in spans))
    width, height = _NAMES + _BARS + _AFTER + _MARGIN, _TOP + _ROW * len(spans)
    title = escape(WAYS[way][0])
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f"<title>{title}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_MARGIN}" y="28" font-size="16" fill="#1f2328">{title}</text>',
    ]
    for number, step in enumerate(spans):
        y, colour = _TOP + _ROW * number, COLOURS[step.service]
        left = _NAMES + _BARS * step.start_ms / whole
        bar = max(_BARS * (step.end_ms - step.start_ms) / whole, 2.0)
        lines += [
            f'<text x="{_MARGIN}" y="{y}" font-size="12" fill="{colour}">{escape(step.service)}</text>',
            f'<text x="{_MARGIN + 135}" y="{y}" font-size="12" fill="#1f2328">{escape(step.name)}</text>',
            f'<rect x="{left:.1f}" y="{y - 11}" width="{bar:.1f}" height="14" fill="{colour}"/>',
            f'<text x="{left + bar + 6:.1f}" y="{y}" font-size="11" fill="#57606a">',
            f"{_spelled(step.start_ms)}</text>",
        ]
    return "\n".join([*lines, "</svg>", ""])


def _spelled(milliseconds: float) -> str:
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds >= 1 else f"{milliseconds:.0f} ms"
