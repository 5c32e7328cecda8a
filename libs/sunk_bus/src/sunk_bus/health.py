"""JetStream's own answers as rows: streams, consumers and leases."""

from datetime import datetime
from typing import Final

import msgspec

from sunk_bus.reading import Record, clusters_of
from sunk_bus.states import Bucket, buckets_of, key_of
from sunk_bus.words import age, safe
from sunk_events import subjects


class StreamRow(msgspec.Struct, frozen=True):
    """A stream of ours."""

    cluster: str
    what: str
    messages: int
    bytes: str
    newest: str
    kept: str
    """On how many servers, and who leads, where there are several."""


class ConsumerRow(msgspec.Struct, frozen=True):
    """A durable consumer. ``readers`` 0: nobody asks for messages now."""

    cluster: str
    name: str
    lag: int
    unacknowledged: int
    redelivered: int
    readers: int
    handled: int
    """The sequence up to which everything is acknowledged."""


class LeaseRow(msgspec.Struct, frozen=True):
    """Who leads what, and when that was said last."""

    cluster: str
    lease: str
    holder: str
    renewed: str


_DEAD: Final = "dead letters"


def what_of(stream: str) -> tuple[str, str] | None:
    """Return whose stream it is and what it holds, or None for one that is not ours."""
    if clusters := clusters_of([stream]):
        return clusters[0], "facts"
    if stream == subjects.DEAD_LETTER_STREAM:
        return "", _DEAD
    if buckets := buckets_of([stream]):
        return buckets[0].cluster, f"state {buckets[0].name}"
    return None


def lease_row(bucket: Bucket, record: Record, now: datetime) -> LeaseRow:
    """Return the row of a lease."""
    holder = "nobody"
    if not record.is_deletion:
        try:
            content = msgspec.json.decode(record.data, type=dict[str, object])
            holder = safe(str(content.get("holder", "?")))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            holder = f"unreadable: {error}"
    return LeaseRow(bucket.cluster, key_of(bucket, record), holder, age(record.stored, now))
