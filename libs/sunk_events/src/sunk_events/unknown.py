"""Facts of types that are newer than this version: read as far as every fact is alike."""

from typing import Any

import msgspec

from sunk_events.base import Event
from sunk_events.codec import MAX_BYTES, UndecodableError, decode_fact, is_known, type_of


class UnknownEvent(Event, frozen=True, kw_only=True, tag="unknown"):
    """A fact whose type this version does not know; its ``type`` is as it came."""

    name: str
    data: Any = None
    """As JSON has it."""

    @property
    def type(self) -> str:
        """What kind of fact it is, as it is spelled on the wire."""
        return self.name


class _Envelope(Event, frozen=True, kw_only=True, tag=False):
    data: Any = None


def read_fact(subject: str, data: bytes) -> Event:
    """Return the fact in *data*, which came on *subject*; one of a newer type as `UnknownEvent`.

    Raises:
        UndecodableError: it is no fact, or does not belong on that subject; says why.
    """
    name = type_of(data)
    if not name or is_known(name) or len(data) > MAX_BYTES:
        return decode_fact(subject, data)
    try:
        found = msgspec.json.decode(data, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UndecodableError(f"{name[:200]}: {error}") from error
    cluster = (subject.split(".") + [""] * 3)[2]
    if not found.source.startswith(f"/{cluster}/"):
        raise UndecodableError(f"{name[:200]}: source {found.source!r} is not of cluster {cluster}")
    return UnknownEvent(name=name, **msgspec.structs.asdict(found))
