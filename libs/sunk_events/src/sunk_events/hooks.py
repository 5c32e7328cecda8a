"""Facts about calls of prolog, epilog and placeholder scripts. Best effort. Owner: hook-gateway."""

import msgspec

from sunk_events.base import Event, JobId, NodeName


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call and how it was answered."""

    node: NodeName
    job: JobId
    status: int
    """The HTTP status of the answer."""
    waited_s: float


class PrehookCalled(Event, frozen=True, kw_only=True, tag="sunk.hook_gateway.v1.prehook_called"):
    """A prolog asked for its node's lock and was answered."""

    data: HookCall


class ReleaseCalled(Event, frozen=True, kw_only=True, tag="sunk.hook_gateway.v1.release_called"):
    """An epilog gave its node's lock back and was answered."""

    data: HookCall
