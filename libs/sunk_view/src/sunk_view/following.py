"""What has changed in a table since a reader asked last, from the states of the bus.

What must stay true: a reader keeps no state here, so any replica answers the next question; an answer has a
bounded number of rows; a row is made of the present states only, and where it is not known what changed, the
reader is told to read the whole.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from sunk_events.view import TABLES, Changes, JobRow, NodeRow, PodRow
from sunk_runtime.clock import now
from sunk_runtime.views import StateView
from sunk_view import positions, tables
from sunk_view.access import Access, Right, wide
from sunk_view.answers import Answer, refusal
from sunk_view.callers import Caller
from sunk_view.positions import Position
from sunk_view.states import ClusterStates

ROWS_MAX: Final = 1000
"""Rows of one table in one answer; where more changed, the whole is cheaper."""
RIGHTS: Final = {"nodes": Right(resource="nodes"), "jobs": wide("jobs"), "placements": wide("placements")}
"""The right that the whole table needs is what its changes need."""
Row = NodeRow | JobRow | PodRow


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """What changed in one table of one Slurm cluster."""

    rows: tuple[Row, ...] = ()
    gone: tuple[str, ...] = ()
    at: Position
    is_late: bool = False
    is_whole: bool = False


def _views(states: ClusterStates, table: str) -> tuple[StateView[Any], ...]:
    match table:
        case "nodes":
            return (states.nodes, states.kube_pods, states.locks)
        case "jobs":
            return (states.jobs, states.placements)
        case _:
            return (states.placements,)


def require(states: ClusterStates, table: str) -> None:
    """Raise `TransientError` unless *table* of *states* can be answered."""
    states.require(*_views(states, table), states.statistics)


def after(clusters: Sequence[ClusterStates], table: str) -> str:
    """Return where a reader stands who has all rows of *table* as they are now."""
    return positions.written({states.cluster: _position(states, table) for states in clusters})


def _position(states: ClusterStates, table: str, revisions: tuple[int, ...] | None = None) -> Position:
    views = _views(states, table)
    return Position(
        mark=positions.mark(
            (view.created for view in views), states.row_secret if table == "placements" else b""
        ),
        time_s=int(now().timestamp()),
        revisions=tuple(view.after(0)[0] for view in views) if revisions is None else revisions,
    )


def _part(states: ClusterStates, table: str, known: Position | None) -> _Part:
    """Return what of *table* changed since *known*."""
    views = _views(states, table)
    revisions = known.revisions if known is not None else ()
    here = _position(states, table, (0,) * len(views))
    seen = {
        "went_back_s": min(view.went_back_s for view in views),
        "known_s": min(view.known_s for view in views),
    }
    if known is None or not positions.is_good(known, here, **seen):
        return _Part(at=here, is_whole=True)
    found = [view.after(revision) for view, revision in zip(views, revisions, strict=True)]
    newest = tuple(read for read, _ in found)
    if any(read < revision for read, revision in zip(newest, revisions, strict=True)):
        # A row is of all its buckets: made of an older one it would take the place of a newer row for good.
        return _Part(at=known, is_late=True)
    at = msgspec.structs.replace(here, revisions=newest)
    keys = _KEYS[table](states, *(changed for _, changed in found))
    if len(keys) > ROWS_MAX:
        return _Part(at=at, is_whole=True)
    rows = _ROWS[table](states, keys)
    gone = tuple(f"{states.cluster}/{_shown(states, table, key)}" for key in sorted(keys - rows.keys()))
    return _Part(rows=tuple(rows[key] for key in sorted(rows)), gone=gone, at=at)


def _shown(states: ClusterStates, table: str, key: str) -> str:
    return positions.key_of(key, states.row_secret) if table == "placements" else key


def _node_keys(_: ClusterStates, *changed: list[str]) -> set[str]:
    return {key for some in changed for key in some}


def _job_keys(states: ClusterStates, jobs: list[str], placements: list[str]) -> set[str]:
    """Return those that changed, and those that a placement now says are placeholders."""
    found = [one for key in placements if (one := states.placements.get(key)) is not None]
    ours = {str(one.job) for one in found if one.job is not None}
    return {*jobs, *(job for job in ours if states.jobs.get(job) is not None)}


def _pod_keys(states: ClusterStates, placements: list[str]) -> set[str]:
    """Return those that changed, and the members of gangs that did: their rows have its name."""
    keys = set(placements)
    return keys | {one.uid for one in states.placements.values() if one.gang in keys} if keys else keys


_KEYS: Final[dict[str, Callable[..., set[str]]]] = {
    "nodes": _node_keys,
    "jobs": _job_keys,
    "placements": _pod_keys,
}


def _node_rows(states: ClusterStates, keys: set[str]) -> dict[str, Row]:
    def some(view: StateView[Any]) -> list[Any]:
        return [found for key in keys if (found := view.get(key)) is not None]

    rows = tables.node_rows(states.cluster, some(states.nodes), some(states.kube_pods), some(states.locks))
    return {row.node: row for row in rows}


def _job_rows(states: ClusterStates, keys: set[str]) -> dict[str, Row]:
    found = [one for key in keys if (one := states.jobs.get(key)) is not None]
    ours = tables.placeholders(states.placements.values()) if found else ()
    return {str(row.job): row for row in tables.job_rows(states.cluster, found, ours)}


def _pod_rows(states: ClusterStates, keys: set[str]) -> dict[str, Row]:
    found = {key: one for key in keys if (one := states.placements.get(key)) is not None}
    gangs = {one.gang for one in found.values() if one.gang} - found.keys()
    known = found | {gang: one for gang in gangs if (one := states.placements.get(gang)) is not None}
    return {key: tables.pod_row(states.cluster, one, known, states.row_secret) for key, one in found.items()}


_ROWS: Final[dict[str, Callable[[ClusterStates, set[str]], dict[str, Row]]]] = {
    "nodes": _node_rows,
    "jobs": _job_rows,
    "placements": _pod_rows,
}


class Following:
    """Answers what has changed, of every Slurm cluster."""

    def __init__(self, access: Access, clusters: Sequence[ClusterStates]) -> None:
        self._access = access
        self._clusters = clusters

    async def answer(self, query: dict[str, str], caller: Caller) -> Answer:
        """Return the changes of the tables that *query* names, those that *caller* may see."""
        requested: dict[str, dict[str, Position]] = {}
        for table in TABLES:
            try:
                if table in query:
                    requested[table] = positions.read(query[table])
            except ValueError:
                return refusal(400, f"{table}: is not from an earlier answer")
        allowed = {table: await self._access.may(caller, RIGHTS[table]) for table in requested}
        found: dict[str, list[_Part]] = {}
        for table in (table for table in requested if allowed[table]):
            for states in self._clusters:
                require(states, table)
            found[table] = [
                _part(states, table, requested[table].get(states.cluster)) for states in self._clusters
            ]
        return Answer(body=self._changes(found, tuple(table for table in requested if not allowed[table])))

    def _changes(self, found: dict[str, list[_Part]], refused: tuple[str, ...]) -> Changes:
        whole = tuple(table for table, parts in found.items() if any(part.is_whole for part in parts))
        known = {table: parts for table, parts in found.items() if table not in whole}
        rows: dict[str, Any] = {
            table: tuple(row for part in parts for row in part.rows) for table, parts in known.items()
        }
        gone = {table: tuple(one for part in parts for one in part.gone) for table, parts in known.items()}
        ages = [view.age_s for table in TABLES for states in self._clusters for view in _views(states, table)]
        return Changes(
            time=now(),
            silent_s=round(max(ages, default=0.0), 1),
            gone={table: some for table, some in gone.items() if some},
            after={
                table: positions.written(
                    {states.cluster: part.at for states, part in zip(self._clusters, parts, strict=True)}
                )
                for table, parts in known.items()
            },
            whole=whole,
            late=tuple(table for table, parts in known.items() if any(part.is_late for part in parts)),
            refused=refused,
            slurm_seen=slurm_seen(self._clusters) if "nodes" in found else {},
            **rows,
        )


def slurm_seen(clusters: Sequence[ClusterStates]) -> dict[str, Any]:
    """Return when Slurm last answered with its nodes, for each of *clusters* of which that is known."""
    return {one.cluster: moment for one in clusters if (moment := one.slurm_seen()) is not None}
