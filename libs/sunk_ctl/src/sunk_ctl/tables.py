"""Answers of the API as tables and paragraphs for people. Pure."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sunk_ctl.last_errors import LastErrors, StatusReport
from sunk_ctl.texts import counted, shown, since, until
from sunk_events.requests import Finding
from sunk_events.view import (
    ClusterStatus,
    Explained,
    Jobs,
    LockRow,
    Locks,
    NodeRow,
    Nodes,
    Part,
    PodRow,
    Pods,
    ServiceRow,
    Status,
)

_SERIOUS: Final = "red"
_WAITS: Final = "yellow"
_UNKNOWN_MAX: Final = 3


def _table(columns: Iterable[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else shown(cell) for cell in row))
    return table


def _line(text: str, style: str = "") -> Text:
    return shown(text, style)


def status(found: Status, now: datetime) -> list[RenderableType]:
    """Return the clusters, one after the other."""
    return [
        line for one in found.clusters for line in (*summary(one, now), Text(), *details(one, now), Text())
    ]


def summary(one: ClusterStatus, now: datetime) -> list[RenderableType]:
    """Return what matters first of a cluster: its counts, and services that are not well."""
    lines: list[RenderableType] = [
        _line(f"Slurm cluster {one.cluster}", "bold"),
        _line(f"nodes       {counted(one.nodes)}"),
        _line(f"locks       {counted(one.locks)}"),
        _line(f"jobs        {counted(one.jobs)}"),
        _line(f"waiting for {counted(one.waits)}"),
        _line(f"Pods        {counted(one.placements)}; {one.gangs} gangs"),
    ]
    if wrong := [row for row in one.services if row.problem]:
        lines.append(_services(wrong, now))
    return lines


def details(one: ClusterStatus, now: datetime) -> list[RenderableType]:
    """Return the rest of a cluster: causes of drains, locks that wait, services that are well."""
    found: list[RenderableType] = []
    if one.drains:
        causes = (
            (
                str(cause.nodes),
                "down" if cause.is_down else "drain",
                Text(shown(cause.reason).plain, _SERIOUS if cause.is_down else _WAITS),
                since(cause.oldest, now),
                ", ".join(cause.some) + (", ..." if cause.nodes > len(cause.some) else ""),
            )
            for cause in one.drains
        )
        found += [_table(("NODES", "STATE", "REASON", "OLDEST", "WHICH"), causes), Text()]
    if one.pending_locks:
        found += [_locks(one.pending_locks, now), Text()]
    if well := [row for row in one.services if not row.problem]:
        found.append(_services(well, now))
    return found


def _services(rows: Iterable[ServiceRow], now: datetime) -> Table:
    cells = (
        (row.service, row.leader or "-", since(row.seen, now) or "-", shown(row.problem, _SERIOUS))
        for row in rows
    )
    return _table(("SERVICE", "LEADER", "SEEN", "PROBLEM"), cells)


def status_with_errors(found: StatusReport, now: datetime) -> list[RenderableType]:
    """Return the clusters, and below them the newest error in the log of each leader."""
    return [*status(found, now), *_last_errors(found.last_errors, now)]


def _last_errors(found: LastErrors, now: datetime) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if found.found:
        cells = (
            (one.service, one.cluster or "several", one.pod, since(one.at, now), one.error)
            for one in found.found
        )
        lines.append(_table(("SERVICE", "CLUSTER", "POD", "AGO", "LAST ERROR"), cells))
    lines += [_line(f"last errors are not known: {why}", _WAITS) for why in found.unknown[:_UNKNOWN_MAX]]
    if (more := len(found.unknown) - _UNKNOWN_MAX) > 0:
        lines.append(_line(f"and of {more} more", _WAITS))
    return lines


def nodes(found: Nodes, now: datetime) -> list[RenderableType]:
    """Return a row for each node."""
    columns = ("CLUSTER", "NODE", "STATE", "LOCK", "CPUS", "GPUS", "KUBE NODE", "POD", "SINCE", "REASON")
    rows = (
        (
            row.cluster,
            row.node,
            _state(row),
            row.lock if row.lock != "false" else "",
            f"{row.cpus_allocated}/{row.cpus}",
            f"{row.gpus_allocated}/{row.gpus}" if row.gpus else "",
            row.kube_node,
            row.pod_phase + ("" if row.is_pod_ready or not row.pod_phase else ", not ready"),
            since(row.reason_changed, now) if row.reason else "",
            row.reason,
        )
        for row in found.items
    )
    return [_table(columns, rows)]


def _state(row: NodeRow) -> Text:
    word = "+".join((row.state, *row.flags)) if row.state else "not in Slurm"
    return shown(word, _SERIOUS if row.is_down or not row.state else _WAITS if row.is_drain else "")


def locks(found: Locks, now: datetime) -> list[RenderableType]:
    """Return a row for each lock."""
    return [_locks(found.items, now)]


def _locks(rows: Iterable[LockRow], now: datetime) -> Table:
    columns = ("CLUSTER", "NODE", "KUBE NODE", "LOCK", "SINCE", "JOBS", "WAITING", "IN THE WAY")
    cells = (
        (
            row.cluster,
            row.node,
            row.kube_node,
            shown(row.lock, _WAITS if row.waiting else ""),
            since(row.since, now),
            ", ".join(map(str, row.granted)),
            ", ".join(map(str, row.waiting)),
            ", ".join(row.in_the_way),
        )
        for row in rows
    )
    return _table(columns, cells)


def jobs(found: Jobs, now: datetime) -> list[RenderableType]:
    """Return a row for each job."""
    columns = ("CLUSTER", "JOB", "USER", "PARTITION", "STATE", "GPUS", "WAITS", "NODES", "REASON", "NAME")
    rows = (
        (
            row.cluster,
            str(row.job),
            row.user,
            row.partition,
            shown(row.state, _WAITS if row.state == "PENDING" else ""),
            str(row.gpus or ""),
            since(row.submitted, now) if row.state == "PENDING" else "",
            row.nodes,
            row.reason if row.reason != "None" else "",
            row.name,
        )
        for row in found.items
    )
    return [_table(columns, rows)]


def pods(found: Pods, now: datetime) -> list[RenderableType]:
    """Return a row for each Pod that Slurm places, and for each gang."""
    columns = ("NAMESPACE", "POD", "GANG", "PHASE", "SINCE", "JOB", "NODE", "KUBE NODE", "START", "REASON")
    rows = (
        (
            row.namespace or "-",
            row.pod,
            _gang(row),
            shown(row.phase, "" if row.phase == "bound" else _WAITS),
            since(row.since, now),
            str(row.job or ""),
            row.node,
            row.kube_node,
            until(row.start, now) if row.phase == "released" else "",
            row.reason,
        )
        for row in found.items
    )
    return [_table(columns, rows)]


def _gang(row: PodRow) -> str:
    if row.is_gang:
        return "(the gang)"
    rank = "" if row.rank is None else f" rank {row.rank}"
    return f"{row.gang}{rank}" if row.gang else ""


def explained(found: Explained, now: datetime) -> list[RenderableType]:
    """Return what each service answers, in sentences."""
    lines: list[RenderableType] = [_line(f"{found.what} {found.name}", "bold")]
    for part in found.parts:
        lines += _part(part, now)
    return lines


def _part(part: Part, now: datetime) -> list[RenderableType]:
    where = f"{part.cluster}, {part.service}" if part.cluster else part.service
    if part.problem:
        return [_line(f"{where}: {part.problem}", _SERIOUS)]
    if not part.findings:
        return [_line(f"{where}: nothing to report")]
    lines: list[RenderableType] = [_line(where, "dim")]
    for finding in part.findings:
        lines += _finding(finding, now)
    return lines


def _finding(finding: Finding, now: datetime) -> list[RenderableType]:
    ago = f", for {since(finding.since, now)}" if finding.since else ""
    lines: list[RenderableType] = [_line(f"  {finding.what}{ago}", _WAITS)]
    if finding.because:
        lines.append(_line(f"    because: {finding.because}"))
    if finding.would_change:
        lines.append(_line(f"    what would change it: {finding.would_change}"))
    return lines
