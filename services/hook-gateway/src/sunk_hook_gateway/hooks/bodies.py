"""What callers send. Unknown fields are ignored: a newer script may call an older gateway."""

from typing import Annotated

import msgspec
from msgspec import Meta

from sunk_events.base import Hostlist, JobId, NodeName
from sunk_events.locks import LockLevel


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """Another component of a heterogeneous job, with the nodes that it has."""

    job: JobId
    nodes: Hostlist


class Prehook(msgspec.Struct, frozen=True, kw_only=True):
    """A prolog: lock the node for this job, and answer when it is."""

    job: JobId
    level: LockLevel = "normal"
    deadline_s: Annotated[float, Meta(gt=0)] | None = None
    """How long the caller waits for the lock; the service stops then too."""
    hold_s: Annotated[float, Meta(gt=0)] | None = None
    """For how long this call is held: then 202, and the caller asks again, perhaps another replica, for this
    one may have died without a word. By default until the deadline."""
    waited_s: Annotated[float, Meta(ge=0)] = 0.0
    """How long the caller has waited before this call."""
    said: Annotated[str, Meta(max_length=512)] | None = None
    """What the caller last told who waits for the job at a terminal, empty before the first time. None: it
    tells nothing, because it is an older script or the job is a batch job."""
    components: Annotated[tuple[Component, ...], Meta(max_length=128)] = ()
    """The other components of a heterogeneous job: their nodes are to be locked before this one's answer."""
    started: Annotated[float, Meta(ge=0, le=1e11)] = 0.0
    """When this run of the job began, in seconds since 1970: what was granted long before is of another."""


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """An epilog: the job has left the node."""

    job: JobId


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A placeholder's script runs on this node."""

    node: NodeName


class Nudge(msgspec.Struct, frozen=True, kw_only=True):
    """Look at this node, or at this job, now."""

    node: NodeName | None = None
    job: JobId | None = None


class Nothing(msgspec.Struct, frozen=True, kw_only=True):
    """No body is needed."""
