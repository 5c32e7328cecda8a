"""The facts about calls: who asked what of which node or job, and how it was answered; pure.

The id of such a fact is made of what it is about and the millisecond of its answer: nobody else knows the
call, so nobody else can tell of it.
"""

from datetime import datetime
from typing import Final

import msgspec

from sunk_events.base import Event, Request, event_id, question_id, type_name
from sunk_events.hooks import (
    HookCall,
    JobCall,
    JobNudgeCalled,
    NodeCall,
    NodeNudgeCalled,
    PlacementReleaseCalled,
    PrehookCalled,
    RebootCalled,
    ReleaseCalled,
    StartedCalled,
)
from sunk_events.requests import (
    AcquireLock,
    NudgeJob,
    NudgeNode,
    PlacementAnnounced,
    RebootNode,
    ReleaseLock,
    ReleasePlacement,
)

_REQUEST_BY_FACT: Final[dict[type[Event], type[Request]]] = {
    PrehookCalled: AcquireLock,
    ReleaseCalled: ReleaseLock,
    RebootCalled: RebootNode,
    NodeNudgeCalled: NudgeNode,
    JobNudgeCalled: NudgeJob,
    StartedCalled: PlacementAnnounced,
    PlacementReleaseCalled: ReleasePlacement,
}
"""The question that each call leads to; its answer is that of the call."""


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What every fact here says besides its subject."""

    source: str
    status: int
    waited_s: float
    time: datetime


def about_hook(
    kind: type[PrehookCalled] | type[ReleaseCalled], node: str, job: int, outcome: CallOutcome
) -> Event:
    """Return the fact of a prolog's or an epilog's call."""
    return kind(
        id=_id(kind, outcome, node, job),
        cause=question_id(_REQUEST_BY_FACT[kind], node, job),
        source=outcome.source,
        subject=node,
        time=outcome.time,
        data=HookCall(node=node, job=job, status=outcome.status, waited_s=outcome.waited_s),
    )


def about_node(
    kind: type[RebootCalled] | type[NodeNudgeCalled], node: str, who: str, outcome: CallOutcome
) -> Event:
    """Return the fact of a call about a node."""
    return kind(
        id=_id(kind, outcome, node),
        cause=question_id(_REQUEST_BY_FACT[kind], node),
        source=outcome.source,
        subject=node,
        time=outcome.time,
        data=NodeCall(node=node, who=who, status=outcome.status, waited_s=outcome.waited_s),
    )


def about_job(
    kind: type[StartedCalled] | type[PlacementReleaseCalled] | type[JobNudgeCalled],
    job: int,
    node: str,
    outcome: CallOutcome,
) -> Event:
    """Return the fact of a call about a job; *node* is where its caller runs, where that is known."""
    return kind(
        id=_id(kind, outcome, job),
        cause=question_id(_REQUEST_BY_FACT[kind], job),
        source=outcome.source,
        subject=str(job),
        time=outcome.time,
        data=JobCall(job=job, node=node, status=outcome.status, waited_s=outcome.waited_s),
    )


def _id(kind: type[Event], outcome: CallOutcome, *about: str | int) -> str:
    return event_id(type_name(kind), *about, int(outcome.time.timestamp() * 1000))
