"""What could not be handled, kept with the reason. Any service writes its own."""

from typing import Annotated

import msgspec
from msgspec import Meta

from sunk_events.base import Event


class DeadMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that no retry can help."""

    on: str
    """The NATS subject that it came on."""
    reason: Annotated[str, Meta(max_length=4096)]
    payload: bytes
    """As it came, in base64, cut to 64 KiB."""
    is_cut: bool = False


class DeadLetter(Event, frozen=True, kw_only=True, tag="sunk.any.v1.dead_letter"):
    """A service could not handle a message and will not try again."""

    data: DeadMessage
