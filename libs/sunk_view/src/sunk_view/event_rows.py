"""Facts of the bus as rows for people, and where a reader of them stands. Pure."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, cast

import msgspec

from sunk_events import subjects
from sunk_events.base import REASON_MAX
from sunk_events.codec import UndecodableError, decode_fact
from sunk_events.view import HIDDEN, EventRow

OF_NODES: Final = frozenset({"slurm.node", "lock.node", "hook.node", "kube.node", "kube.pod"})
"""Pods among them are those of NodeSets, which have the names of Slurm nodes."""
OF_JOBS: Final = frozenset({"slurm.job", "hook.job"})
OF_PODS: Final = "placement.pod"
AFTER_CHARS: Final = 8192
LAST: Final = 50
"""Rows with which a reader begins, who asks for no other number."""
PAGE: Final = 200
"""Rows of one answer, for each Slurm cluster."""
SINCE_MAX_S: Final = 7 * 86400
_DIGITS: Final = 19
_OWN_FIELDS: Final = frozenset({"uid", "namespace", "pod"})
"""Of a placement, what the row has in fields of their own, or says nobody anything."""
_PARTS: Final = 3


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the stream of facts."""

    subject: str
    data: bytes
    sequence: int
    moment: datetime


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which facts are asked for."""

    entities: tuple[str, ...] = ()
    """What they are about, as subjects have it; empty: whatever."""
    about: str = ""
    """What kind of thing that is, as subjects have it; empty: whatever."""
    takes: Callable[[EventRow], bool] = lambda _: True
    """What NATS cannot tell by the subject."""

    def filters(self, cluster: str) -> tuple[str, ...]:
        """Return the subjects of *cluster* to look at."""
        if not self.entities:
            return (subjects.facts(cluster),)
        found = tuple(subjects.facts_about(cluster, entity) for entity in self.entities)
        return tuple(subject.replace("*.*", self.about, 1) for subject in found) if self.about else found


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a reader is in the stream of one Slurm cluster."""

    created: int
    """When the stream was made, in ms: another one counts from 1 again."""
    sequence: int
    """Of the last message that was looked at."""


def row_of(cluster: str, found: Stored) -> EventRow | None:
    """Return the row of a fact; None: its subject is none of a fact."""
    place = subjects.place_of(found.subject)
    if place is None:
        return None
    about, name, what = place
    row = EventRow(
        cluster=cluster, sequence=found.sequence, time=found.moment, about=about, name=name, what=what
    )
    try:
        event: Any = decode_fact(found.subject, found.data)
    except UndecodableError:  # A newer service wrote it: whose Pod it is, is not known.
        name = HIDDEN if about == OF_PODS else name
        details = ("this sunk-view does not know this kind of event",)
        return msgspec.structs.replace(row, name=name, details=details)
    data = msgspec.structs.asdict(event.data)
    row = msgspec.structs.replace(row, time=event.time)
    if about != OF_PODS:
        return msgspec.structs.replace(row, details=_details(data, {name}))
    others = {field: value for field, value in data.items() if field not in _OWN_FIELDS}
    return msgspec.structs.replace(
        row, namespace=data["namespace"], name=data["pod"], details=_details(others, set())
    )


def _details(data: Mapping[str, Any], known: set[str]) -> tuple[str, ...]:
    """Return a text for each field that says something new."""
    texts = ((field, _text(value)) for field, value in data.items())
    return tuple(
        f"{field.replace('_', ' ')} {text}"[:REASON_MAX]
        for field, text in texts
        if text and text not in known
    )


def _text(value: object) -> str:
    match value:
        case None | False | "" | ():
            return ""
        case tuple():
            return ", ".join(map(str, cast("tuple[object, ...]", value)))
        case float():
            return f"{value:.1f}"
        case datetime():
            return value.isoformat(timespec="seconds")
        case _:
            return str(value)


def written(positions: Mapping[str, Position]) -> str:
    """Return *positions* by cluster as the text that a reader brings back."""
    return ",".join(f"{name}.{at.created}.{at.sequence}" for name, at in sorted(positions.items()))


def read(text: str, clusters: Iterable[str]) -> dict[str, Position]:
    """Return what `written` wrote, of those of *clusters* that it names.

    Raises:
        ValueError: it wrote no such thing.
    """
    known = set(clusters)
    found: dict[str, Position] = {}
    if len(text) > AFTER_CHARS:
        raise ValueError(text[:20])
    for part in text.split(","):
        words = part.split(".")
        if len(words) != _PARTS or not all(map(_is_number, words[1:])):
            raise ValueError(part[:20])
        if words[0] in known:
            found[words[0]] = Position(created=int(words[1]), sequence=int(words[2]))
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS
