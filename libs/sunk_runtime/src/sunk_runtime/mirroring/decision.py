"""What to do for a mirror of one stream.

What must stay true: a mirror that another history is in, because our NATS lost its streams or came back with
older ones, is made again, as far as last sequences and messages show that. A mirror that is what its stream
is keeps the places of its readers. Where the stream cannot be seen, nothing is done.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from sunk_runtime.streams import StreamConfig

MADE: Final = "sunk-mirrors"
"""The key in a mirror's metadata that says when its stream was made."""
_NOT_OF_MIRRORS: Final = ("subjects", "duplicate_window", "subject_delete_marker_ttl", "mirror", "sources")


class Stored(msgspec.Struct, frozen=True):
    """A message in a stream, as far as two histories differ in it."""

    subject: str
    time: str


class Seen(msgspec.Struct, frozen=True):
    """What one side has of a stream."""

    made: str
    """When our stream was made: of a mirror, the one that it was made for."""
    last_seq: int = 0
    at_last: Stored | None = None
    """The message that the mirror has at its last sequence, if it is there."""


class Step(StrEnum):
    """What to do."""

    NOTHING = "nothing"
    MAKE = "make"
    ADOPT = "adopt"
    """The stream was copied with all that is in it: only note when it was made."""
    MAKE_AGAIN = "make again"


def next_step(stream: Seen | None, mirror: Seen | None) -> Step:
    """Return what to do where ours is *stream* and theirs is *mirror*; None where there is none."""
    if stream is None:
        return Step.NOTHING
    if mirror is None:
        return Step.MAKE
    if stream.last_seq < mirror.last_seq:
        return Step.MAKE_AGAIN
    is_known = stream.at_last is not None and mirror.at_last is not None
    if is_known and stream.at_last != mirror.at_last:
        return Step.MAKE_AGAIN
    if stream.made == mirror.made:
        return Step.NOTHING
    return Step.ADOPT if is_known or not mirror.last_seq else Step.MAKE_AGAIN


def mirror_config(stream: StreamConfig, api: str, made: str) -> dict[str, Any]:
    """Return the settings of the mirror of *stream*, which is called by *api*, as JetStream spells them."""
    config: Mapping[str, Any] = msgspec.to_builtins(stream)
    kept = {
        name: value
        for name, value in config.items()
        if name not in _NOT_OF_MIRRORS and value not in (None, "")
    }
    external = {"api": api, "deliver": ""}
    return {**kept, "mirror": {"name": stream.name, "external": external}, "metadata": {MADE: made}}
