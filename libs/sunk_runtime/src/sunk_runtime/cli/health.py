"""JetStream's own answers as rows: streams, consumers and leases."""

from datetime import datetime
from typing import Final

import msgspec
from nats.js.api import ConsumerInfo, StreamInfo

from sunk_events import subjects
from sunk_runtime.cli.reading import Record, clusters_of, stream_name
from sunk_runtime.cli.states import Bucket, buckets_of, key_of
from sunk_runtime.cli.words import age, safe, size


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


def stream_row(info: StreamInfo, newest: datetime | None, now: datetime) -> StreamRow | None:
    """Return the row of a stream of which the *newest* message was stored then; None: it is not ours."""
    whose = what_of(stream_name(info))
    if whose is None:
        return None
    copies = info.config.num_replicas or 1
    leader = info.cluster.leader if info.cluster else None
    kept = f"{copies}, {leader or 'no leader'}" if copies > 1 else "1"
    state = info.state
    stored = age(newest, now) if newest else ""
    return StreamRow(*whose, state.messages, size(state.bytes), stored, safe(kept))


def consumer_row(cluster: str, info: ConsumerInfo) -> ConsumerRow | None:
    """Return the row of a durable consumer, or None for one that only somebody who looks has."""
    if not info.config.durable_name:
        return None
    return ConsumerRow(
        cluster,
        safe(info.name),
        info.num_pending or 0,
        info.num_ack_pending or 0,
        info.num_redelivered or 0,
        info.num_waiting or 0,
        info.ack_floor.stream_seq if info.ack_floor else 0,
    )


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
