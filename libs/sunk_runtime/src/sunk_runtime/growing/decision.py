"""What is still to do for a stream that is copied from one NATS server to three.

What must stay true: the copy is thrown away only if it holds nothing that the one server has not; the one
server's own is never changed. So the whole may be interrupted anywhere and done again.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

REPLICAS = 3
BEGIN_AGAIN = (
    "If you do not need what the three servers have, give up (nats.replicas=1), delete the claims "
    "data-sunk-nats-1 and data-sunk-nats-2, and begin again"
)


class ConsumerSeen(msgspec.Struct, frozen=True):
    """How far a durable consumer is."""

    delivered: int
    acknowledged: int
    unacknowledged: int
    settings: Mapping[str, Any] = {}


class StreamSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What one side has of a stream. Sequences are the revisions of a bucket's keys."""

    messages: int = 0
    first_seq: int = 0
    last_seq: int = 0
    consumers: Mapping[str, ConsumerSeen] = {}
    """The durable ones. The others end by themselves when their readers are gone."""
    settings: Mapping[str, Any] = {}
    """All but the number of its servers."""


class Step(StrEnum):
    """What to do."""

    NOTHING = "nothing"
    COPY = "copy"
    REPLACE = "replace"
    """Delete what the three servers have, and copy."""
    REFUSE = "refuse"
    """The three have what the one has not: a person is needed."""


def next_step(one: StreamSeen, three: StreamSeen | None) -> Step:
    """Return what makes *three*, None where they have no such stream, the same as *one*.

    An interrupted restore leaves an empty stream. What has fewer messages was copied from the one server
    before that went on alone.
    """
    if three is None:
        return Step.COPY
    if three == one:
        return Step.NOTHING
    return Step.REFUSE if three.last_seq > one.last_seq else Step.REPLACE


def no_space(used_bytes: int, volume_mib: int) -> str | None:
    """Return why *used_bytes* do not go on a volume twice; None if they do, with a tenth of it left."""
    if 2 * used_bytes <= 0.9 * volume_mib * 2**20:
        return None
    return (
        f"the streams have {used_bytes // 2**20} MiB, and the first server's volume of {volume_mib} MiB must "
        "hold them twice for some time: give up (nats.replicas=1), make the volume larger, and begin again"
    )


def settings_on_three(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings *config* of a stream, as JetStream spells them, for three servers."""
    return {**config, "num_replicas": REPLICAS}


def unknown(names: Iterable[str], on_three: Iterable[str]) -> str | None:
    """Return why what the three have of *on_three* is not the copy of *names*; None if it may become that."""
    if not (names := frozenset(names)):
        return "the one server has no streams: either it has lost them, or there is nothing to copy"
    if more := sorted(frozenset(on_three) - names):
        return (
            f"the three servers have stream {', '.join(more)}, and the one server does not. "
            f"No message was changed. {BEGIN_AGAIN}"
        )
    return None


def refusal(name: str, one: StreamSeen, three: StreamSeen) -> str:
    """Return why stream *name* is left as it is."""
    return (
        f"stream {name}: the three servers have messages up to {three.last_seq}, the one server up to "
        f"{one.last_seq}: a client wrote to the three. No message was changed. "
        f"{BEGIN_AGAIN}"
    )
