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


class NodeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call about a node and how it was answered."""

    node: NodeName
    who: str = ""
    """Who called: a Pod's name, a user's, or nothing where that is not known."""
    status: int
    """The HTTP status of the answer."""
    waited_s: float


class RebootCalled(Event, frozen=True, kw_only=True, tag="sunk.hook_gateway.v1.reboot_called"):
    """A caller asked for a node's reboot and got an answer."""

    data: NodeCall


class NodeNudgeCalled(Event, frozen=True, kw_only=True, tag="sunk.hook_gateway.v1.node_nudge_called"):
    """A caller asked the syncer to look at a node, and got an answer."""

    data: NodeCall


class JobCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call about a job and how it was answered."""

    job: JobId
    node: str = ""
    """Where the caller runs, where it said so."""
    status: int
    """The HTTP status of the answer."""
    waited_s: float


class StartedCalled(Event, frozen=True, kw_only=True, tag="sunk.hook_gateway.v1.started_called"):
    """A placeholder's script announced itself and was answered."""

    data: JobCall


class PlacementReleaseCalled(
    Event, frozen=True, kw_only=True, tag="sunk.hook_gateway.v1.placement_release_called"
):
    """A placeholder's script asked to have its Pod gone and was answered."""

    data: JobCall


class JobNudgeCalled(Event, frozen=True, kw_only=True, tag="sunk.hook_gateway.v1.job_nudge_called"):
    """A caller asked the syncer to look at a job, and got an answer."""

    data: JobCall
