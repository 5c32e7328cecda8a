"""encode() and decode(): the only place that knows JSON.

Unknown fields are ignored (a newer writer added them), unknown types are refused by name, and of a known
type's unknown version it is said who has to be upgraded.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar, Union, cast

import msgspec

from sunk_events import subjects
from sunk_events.base import Event, Reply, Request, State
from sunk_events.catalog import EVENTS, REPLIES, REQUESTS, STATES

MAX_BYTES: Final = 256 * 1024
"""A message's payload; NATS' own limit counts headers too and closes the connection."""


_TEXT_HEAD: Final = 500
_TEXT_TAIL: Final = 300
_TEXT_MAX: Final = 1000


class UndecodableError(ValueError):
    """The bytes are no message of the contract; the text says which field, or which type is unknown.

    A long text, as of a long value, loses its middle: the field stands at the end.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_HEAD]} … {text[-_TEXT_TAIL:]}")


class OversizeError(ValueError):
    """A message would be larger than `MAX_BYTES`: fold what it lists."""


T = TypeVar("T", bound=msgspec.Struct)


class _Tag(msgspec.Struct):
    type: str = ""


_encoder: Final = msgspec.json.Encoder()
_tag_decoder: Final = msgspec.json.Decoder(_Tag)


def _union(kinds: Iterable[type[msgspec.Struct]]) -> Any:  # noqa: ANN401 - a union made at run time has no static type
    return Union[tuple(kinds)]  # noqa: UP007 - there is no other spelling for a union of a table


_events: Final = msgspec.json.Decoder(_union(EVENTS))
_states: Final = msgspec.json.Decoder(_union(STATES))
_requests: Final = msgspec.json.Decoder(_union(REQUESTS))
_replies: Final = msgspec.json.Decoder(_union(REPLIES))


def tag_of(kind: type[msgspec.Struct]) -> str:
    """Return the ``type`` that a struct of the contract carries on the wire."""
    return str(kind.__struct_config__.tag)


_NOUNS: Final[dict[str, str]] = {
    **dict.fromkeys(map(tag_of, EVENTS), "fact"),
    **dict.fromkeys(map(tag_of, STATES), "state"),
    **dict.fromkeys(map(tag_of, REQUESTS), "question"),
    **dict.fromkeys(map(tag_of, REPLIES), "answer"),
}
"""What each type is."""
_VERSIONED: Final = re.compile(r"(?P<stem>sunk\.[a-z_]+)\.v(?P<major>[0-9]{1,6})\.(?P<name>[a-z0-9_]+)")


def encode(message: Event | State | Request | Reply) -> bytes:
    """Return *message* as JSON.

    Raises:
        OversizeError: it is larger than `MAX_BYTES`.
    """
    data = _encoder.encode(message)
    if len(data) > MAX_BYTES:
        raise OversizeError(f"{tag_of(type(message))} of {len(data)} bytes: at most {MAX_BYTES} are allowed")
    return data


def type_of(data: bytes) -> str:
    """Return the ``type`` that *data* names, of the contract or not; empty if it names none."""
    try:
        return _tag_decoder.decode(data).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def is_known(tag: str) -> bool:
    """Whether a type is of the contract, as this version has it."""
    return tag in _NOUNS


def decode_event(data: bytes) -> Event:
    """Return the fact in *data*. Raises `UndecodableError`."""
    return cast("Event", _decode(_events, "fact", data))


def decode_fact(subject: str, data: bytes) -> Event:
    """Return the fact in *data*, which came on *subject*.

    Raises:
        UndecodableError: also where type, cluster or entity do not fit the subject; says which.
    """
    event = decode_event(data)
    if problem := subjects.misfit(subject, event):
        raise UndecodableError(f"{tag_of(type(event))}: {problem}")
    return event


def decode_state(kind: type[T], data: bytes) -> T:
    """Return the state of *kind* in *data*. Raises `UndecodableError`, also for another kind's."""
    return _of_kind(kind, _decode(_states, "state", data))


def decode_request(kind: type[T], data: bytes) -> T:
    """Return the question of *kind* in *data*. Raises `UndecodableError`, also for another kind's."""
    return _of_kind(kind, _decode(_requests, "question", data))


def decode_reply(data: bytes) -> Reply:
    """Return the answer in *data*. Raises `UndecodableError`."""
    return cast("Reply", _decode(_replies, "answer", data))


def _of_kind(kind: type[T], message: msgspec.Struct) -> T:
    if not isinstance(message, kind):
        raise UndecodableError(f"expected {tag_of(kind)}, got {tag_of(type(message))}")
    return message


def _decode(decoder: "msgspec.json.Decoder[Any]", noun: str, data: bytes) -> msgspec.Struct:
    if len(data) > MAX_BYTES:
        raise UndecodableError(f"{len(data)} bytes: at most {MAX_BYTES} are allowed")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UndecodableError(_why(data, noun, str(error))) from error


def _why(data: bytes, noun: str, problem: str) -> str:
    """Name the type, so that a newer writer's message is told from a broken one."""
    try:
        tag = _tag_decoder.decode(data).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"not a JSON object: {problem}"
    if not tag:
        return "field `type` is missing"
    if tag not in _NOUNS:
        return _unknown(tag)
    if _NOUNS[tag] != noun:
        return f"{tag}: kind {_NOUNS[tag]}, expected kind {noun}"
    return f"{tag}: {problem}"


def _unknown(tag: str) -> str:
    """Say whether it is the type or only its version that nobody here knows."""
    if found := _VERSIONED.fullmatch(tag):
        known = re.compile(rf"{re.escape(found['stem'])}\.v([0-9]+)\.{re.escape(found['name'])}")
        read = sorted(int(other[1]) for other in map(known.fullmatch, _NOUNS) if other)
        if read:
            major = int(found["major"])
            old = "this consumer" if major > read[-1] else "what sent it"
            versions = ", ".join(map(str, read))
            return f"{tag}: version {major} is unknown here, this reads version {versions}: upgrade {old}"
    return f"unknown type {tag[:200]!r}"
