"""A message as NATS brought it."""

from collections.abc import Mapping

import msgspec
from nats.aio.msg import Msg


class Message(msgspec.Struct, frozen=True):
    """A message as it came: subject, payload, headers, and where an answer goes."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    reply: str

    @classmethod
    def of(cls, message: Msg) -> "Message":
        """Return *message* without what is nats-py's."""
        return cls(message.subject, message.data, message.headers or {}, message.reply)
