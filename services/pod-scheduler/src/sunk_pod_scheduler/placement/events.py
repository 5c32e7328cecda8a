"""Which facts a change of a placement is, with ids that are the same when it is told twice."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from sunk_events.base import Event, event_id, source
from sunk_events.placements import (
    PlacementBound,
    PlacementEnded,
    PlacementOverdue,
    PlacementPhase,
    PlacementRefused,
    PlacementSnapshot,
    PlacementStarted,
    PlacementState,
    PlacementSubmitted,
)


class _Kind(msgspec.Struct, frozen=True):
    name: str
    event: (
        type[PlacementRefused]
        | type[PlacementSubmitted]
        | type[PlacementStarted]
        | type[PlacementBound]
        | type[PlacementOverdue]
        | type[PlacementEnded]
    )


_OF_PHASE: Final[Mapping[PlacementPhase, _Kind]] = {
    "refused": _Kind("placement_refused", PlacementRefused),
    "started": _Kind("placement_started", PlacementStarted),
    "bound": _Kind("placement_bound", PlacementBound),
    "ended": _Kind("placement_ended", PlacementEnded),
}
_SUBMITTED: Final = _Kind("placement_submitted", PlacementSubmitted)
_OVERDUE: Final = _Kind("placement_overdue", PlacementOverdue)


class EventSource(msgspec.Struct, frozen=True):
    """The source: a Slurm cluster's scheduler."""

    cluster: str
    service: str


def facts(
    before: PlacementState | None,
    after: PlacementState,
    *,
    revision: int,
    event_source: EventSource,
    now: datetime,
) -> tuple[Event, ...]:
    """Return what the change from *before*, stored as *revision*, to *after* is to others."""
    return tuple(_fact(kind, after, revision, event_source, now) for kind in _kinds(before, after))


def _kinds(before: PlacementState | None, after: PlacementState) -> list[_Kind]:
    found: list[_Kind] = []
    if after.job is not None and after.phase == "submitted" and (before is None or before.job != after.job):
        found.append(_SUBMITTED)
    is_new = before is None or before.phase != after.phase
    if after.phase in _OF_PHASE and (is_new or (after.phase == "refused" and before != after)):
        found.append(_OF_PHASE[after.phase])
    if after.is_overdue and (before is None or not before.is_overdue):
        found.append(_OVERDUE)
    return found


def _fact(
    kind: _Kind, state: PlacementState, revision: int, event_source: EventSource, now: datetime
) -> Event:
    waited_s = None if state.created is None else max(0.0, (now - state.created).total_seconds())
    return kind.event(
        id=event_id(kind.name, state.uid, revision),
        source=source(event_source.cluster, event_source.service),
        subject=state.uid,
        time=now,
        data=PlacementSnapshot(
            uid=state.uid,
            namespace=state.namespace,
            pod=state.pod,
            job=state.job,
            node=state.node,
            kube_node=state.kube_node,
            reason=state.reason,
            waited_s=waited_s,
        ),
    )
