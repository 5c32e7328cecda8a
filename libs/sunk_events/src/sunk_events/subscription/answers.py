# pyright: reportUnknownMemberType=false
"""What JetStream answers about a consumer, and what is told where that is a refusal. Pure.

Source: error codes of nats-server 2.14 (server/errors.json).
"""

from typing import Any, Final

import msgspec

from sunk_events.subscription.errors import RefusedError, UnreachableError

NEEDED: Final = (2, 14)
"""The first nats-server that can reset a consumer."""
_NOT_FOUND: Final = 10014
_NO_STREAM: Final = 10059
_SERVERS_FAULT: Final = 500
_UNCHANGEABLE: Final = 10012
"""NATS calls it its own fault."""


class Place(msgspec.Struct, frozen=True):
    """Where a consumer is."""

    stream_seq: int = 0


class Answer(msgspec.Struct):
    """What JetStream answers."""

    error: dict[str, Any] = {}
    config: dict[str, Any] = {}
    created: str = ""
    ack_floor: Place = Place()

    @property
    def is_unknown(self) -> bool:
        """There is no such consumer."""
        return self.error.get("err_code") == _NOT_FOUND


def require_version(major: int, minor: int, patch: int) -> None:
    """Raise RefusedError for a server that cannot reset a consumer."""
    if (major, minor) < NEEDED:
        needed = ".".join(map(str, NEEDED))
        raise RefusedError(
            f"NATS is version {major}.{minor}.{patch}, and a Subscriber needs nats-server {needed} or newer"
        )


def required(answer: Answer, stream: str, consumer: str, cluster: str) -> Answer:
    """Return an *answer* that is none of an error.

    Raises:
        UnreachableError: the server failed.
        RefusedError: no such stream, or what was asked for cannot be.
    """
    if not answer.error:
        return answer
    code = answer.error.get("err_code")
    if code == _NO_STREAM:
        raise RefusedError(
            f"NATS has no stream {stream}. Check that {cluster!r} is a Slurm cluster's name. "
            "The streams of a new cluster exist a minute after its services start"
        )
    text = f"consumer {consumer} of {stream}: {answer.error.get('description')} ({code})"
    if answer.error.get("code", 0) >= _SERVERS_FAULT and code != _UNCHANGEABLE:
        raise UnreachableError(text)
    raise RefusedError(text)


def require_pull(found: Answer, stream: str, consumer: str) -> None:
    """Raise RefusedError for a consumer of another kind."""
    if found.config.get("deliver_subject") or found.config.get("ack_policy") != "explicit":
        raise RefusedError(
            f"consumer {consumer} of {stream} is not a pull consumer with explicit acknowledgement. Have an "
            f"administrator remove it: nats consumer rm {stream} {consumer}"
        )
