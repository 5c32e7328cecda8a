"""One line a fact: when, which entity, what happened, and the few words that matter.

Rendered from the JSON, not from the contract's structs: a newer type is shown as well as a known one.
"""

from datetime import datetime
from typing import Any, Final

import msgspec
from rich.text import Text

from sunk_bus.patterns import place_of
from sunk_bus.reading import Record
from sunk_bus.words import clock, safe
from sunk_events.catalog import EVENTS
from sunk_events.codec import tag_of
from sunk_events.dead import DeadLetter

_KNOWN: Final = frozenset(map(tag_of, EVENTS))
_QUIET: Final = frozenset({"uid", "namespace", "flags", "name"})
"""Fields that another one tells with them, or that tell people nothing."""
_TONES: Final = {
    "red": frozenset({"down", "gone", "refused", "overdue", "removed", "message"}),
    "yellow": frozenset(
        {"draining", "drained", "not_ready", "cordoned", "pending", "requeued", "terminating"}
    ),
    "green": frozenset({"up", "undrained", "ready", "uncordoned", "unlocked", "bound", "registered"}),
}
_TONE_OF: Final = {word: tone for tone, words in _TONES.items() for word in words}
_ENTITY_WIDTH: Final = 34
_WORD_WIDTH: Final = 12


class Line(msgspec.Struct, frozen=True):
    """What one message says, in words."""

    time: datetime
    cluster: str
    entity: str
    word: str
    words: str


def line_of(record: Record) -> Line:
    """Return the line of a fact or dead letter; what cannot be read is shown as it came."""
    try:
        content = msgspec.json.decode(record.data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _raw(record, f"unreadable: {record.data[:200]!r}")
    if content.get("type") == tag_of(DeadLetter):
        return _dead(record, content)
    if content.get("type") not in _KNOWN:
        return _raw(record, f"{content.get('type')}: {_json(content.get('data', content))}")
    place = place_of(record.subject)
    data = _fields(content.get("data"))
    if place is None or data is None:
        return _raw(record, _json(content))
    moment = _moment(content) or record.stored
    words = words_of(data, place.entity)
    return Line(moment, place.cluster, f"{place.place} {safe(place.entity)}", place.word, words)


def words_of(data: dict[str, Any], entity: str) -> str:
    """Return what *data* says beyond the *entity* that it is about."""
    fields = {name: value for name, value in data.items() if name not in _QUIET}
    parts = [
        _phrase(name, value, data)
        for name, value in fields.items()
        if value not in ("", None, [], False) and str(value) != entity and name != "reason"
    ]
    if reason := data.get("reason"):
        parts.append(safe(str(reason)))
    return "  ".join(parts)


def _phrase(name: str, value: object, data: dict[str, Any]) -> str:
    several = _several(value)
    match name, value:
        case "state", str():
            return safe("+".join([value, *map(str, data.get("flags") or ())]))
        case "pod", str():
            return safe(f"pod {data['namespace']}/{value}" if data.get("namespace") else f"pod {value}")
        case "in_the_way", list():
            return safe(f"in the way: {several}")
        case "waited_s", float() | int():
            return f"waited {value:.1f} s"
        case _, list():
            return safe(f"{name.replace('_', ' ')} {several}")
        case _:
            return safe(f"{name.replace('_', ' ')} {_plain(value)}")


def _several(value: object) -> str:
    """Return what a list holds, or nothing of what is none."""
    try:
        return ", ".join(map(_plain, msgspec.convert(value, list[Any])))
    except msgspec.ValidationError:
        return ""


def _fields(value: object) -> dict[str, Any] | None:
    try:
        return msgspec.convert(value, dict[str, Any])
    except msgspec.ValidationError:
        return None


def _plain(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _dead(record: Record, content: dict[str, Any]) -> Line:
    data = _fields(content.get("data")) or {}
    source = str(content.get("source", "")).strip("/")
    cluster, _, service = source.partition("/")
    reason = safe(str(data.get("reason", "")))
    moment = _moment(content) or record.stored
    return Line(
        moment, safe(cluster), safe(str(data.get("on", ""))), "buried", f"by {safe(service)}: {reason}"
    )


def _raw(record: Record, words: str) -> Line:
    place = place_of(record.subject)
    if place is None:
        return Line(record.stored, "", safe(record.subject), "", safe(words))
    return Line(record.stored, place.cluster, f"{place.place} {safe(place.entity)}", place.word, safe(words))


def _moment(content: dict[str, Any]) -> datetime | None:
    try:
        moment = msgspec.convert(content.get("time"), datetime)
    except msgspec.ValidationError:
        return None
    return moment if moment.tzinfo else None


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def text_of(line: Line, *, has_cluster: bool = False) -> Text:
    """Return *line* with colours, the cluster too where there are several."""
    tone = _TONE_OF.get(line.word, "red" if line.word == "buried" else "")
    cluster = [(f"{line.cluster}  ", "cyan")] if has_cluster else []
    return Text.assemble(
        (f"{clock(line.time)}  ", "dim"),
        *cluster,
        f"{line.entity:<{_ENTITY_WIDTH}}  ",
        (f"{line.word:<{_WORD_WIDTH}}", tone),
        f"  {line.words}",
    )


def json_of(record: Record) -> str:
    """Return the payload as one line; what is no JSON comes wrapped, in base64."""
    try:
        return msgspec.json.format(record.data, indent=-1).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _json({"subject": record.subject, "payload": record.data})
