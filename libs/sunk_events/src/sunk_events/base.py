"""The envelope of facts, the base of states and of questions, and the limited types of their fields.

A fact is a CloudEvent 1.0 in structured JSON: its attributes stand at the top, what happened stands
under ``data``. A state is what a bucket holds for one entity now. A question and its answer travel by
request/reply and are in no stream. ``type`` tells the three kinds and their versions apart.

Source: CloudEvents 1.0.2, section "Context Attributes".
"""

import hashlib
import re
from datetime import datetime
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

ClusterName = Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=40)]
"""A Slurm cluster's name as subjects spell it."""
NodeName = Annotated[str, Meta(min_length=1, max_length=253)]
"""A Slurm NodeName; where it means a Kubernetes Node the field is called ``kube_node``."""
JobId = Annotated[int, Meta(gt=0)]
Reason = Annotated[str, Meta(max_length=1024)]
"""Slurm's or Kubernetes' words, cut to what fits."""
Hostlist = Annotated[str, Meta(max_length=131072)]
"""A folded set of Slurm nodes (``gpu-[001-128]``): a job on 5,000 nodes is one short string."""
Moment = Annotated[datetime, Meta(tz=True)]
"""An aware time, in UTC."""
Count = Annotated[int, Meta(ge=0)]

REASON_MAX = 1024
ID_MAX: Final = 512

_UNSAFE: Final = re.compile(r"[^!-9;<>-~]")
"""What may not stand in a part of an id: it is a line of a header, whose ends are trimmed, in ASCII."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """The envelope of a fact. Subclass it once per event type, set ``tag`` and add ``data``."""

    id: Annotated[str, Meta(min_length=1, max_length=ID_MAX)]
    """The same for the same fact, however often it is published; also the ``Nats-Msg-Id``."""
    source: Annotated[str, Meta(min_length=1)]
    """``/<cluster>/<service>``."""
    subject: Annotated[str, Meta(min_length=1)]
    """The entity that the fact is about: a node's name, a job's id, a Pod's uid."""
    time: Moment
    specversion: Literal["1.0"] = "1.0"
    datacontenttype: Literal["application/json"] = "application/json"
    cause: str | UnsetType = UNSET
    """What led to this, where it is known: a fact, change of state, question, or object of Kubernetes."""

    @property
    def type(self) -> str:
        """What kind of fact it is, as it is spelled on the wire: ``sunk.syncer.v1.node_drained``."""
        return str(self.__struct_config__.tag)


class Cause(msgspec.Struct, frozen=True):
    """What led to something."""

    id: str = ""
    """Of a fact; of a change of state, which is its bucket, key and revision; of a question, which is its
    type and what it asks about; of an object of Kubernetes, which is its kind, uid and version. Empty: it is
    not known."""
    trace: str = ""
    """The W3C ``traceparent`` under which that happened; empty where nobody records it."""


UNKNOWN: Final = Cause()


class State(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """What one entity is now. Subclass it once per bucket."""

    changed: Moment
    """When the writer saw this state begin; looking again at the same state does not move it."""


E = TypeVar("E", bound=Event)


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A question that one service asks another. The same question has the same effect."""


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """An answer."""


def event_id(*parts: str | int) -> str:
    """Return an id that is the same every time the same fact is published.

    A fact that can happen again needs what tells the times apart: the revision of the state that it
    replaces (0 where there was none)::

        >>> event_id("node_drained", "gpu-000-012", 1718)
        'node_drained:gpu-000-012:1718'

    What a header could not carry is written ``=XX``; what is too long ends in a digest of the whole.
    """
    whole = ":".join(_UNSAFE.sub(_escaped, str(part)) for part in parts)
    if len(whole) <= ID_MAX:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()
    return f"{whole[: ID_MAX - len(digest) - 1]}:{digest}"


def question_id(kind: type[Request], *about: str | int) -> str:
    """Return how a question of *kind* about an entity is named; asked again it is the same one."""
    return event_id(type_name(kind), *about)


def type_name(kind: type[msgspec.Struct]) -> str:
    """Return the last part of a type's name: ``node_drained``."""
    return str(kind.__struct_config__.tag).rpartition(".")[2]


def caused(fact: E, cause: Cause) -> E:
    """Return *fact* with the id of its *cause*; a fact that names another keeps it."""
    return msgspec.structs.replace(fact, cause=cause.id) if cause.id and fact.cause is UNSET else fact


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in found[0].encode())


def source(cluster: str, service: str) -> str:
    """Return the ``source`` attribute of what *service* publishes for *cluster*."""
    return f"/{cluster}/{service}"
