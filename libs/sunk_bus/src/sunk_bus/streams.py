"""`sunk-bus streams`: is the bus well? Streams, consumers that lag, leases and who holds them."""

from datetime import datetime

from nats.js.api import ConsumerInfo, StreamInfo

from sunk_bus.health import ConsumerRow, StreamRow, lease_row, what_of
from sunk_bus.reading import LATEST, stored, stream_infos, stream_name
from sunk_bus.session import Session
from sunk_bus.states import buckets_of
from sunk_bus.tables import consumers_table, leases_table, streams_table
from sunk_bus.words import age, safe, size
from sunk_events import subjects
from sunk_runtime.clock import now
from sunk_runtime.errors import JetStreamRejectedError, PermanentError
from sunk_runtime.jetstream import Bus


async def streams(session: Session) -> None:
    """Show the streams of ours, their durable consumers and the leases."""
    infos = [info for info in await stream_infos(session.bus) if _is_meant(session, stream_name(info))]
    rows = [row for info in infos if (row := stream_row(info, await _newest(session.bus, info), now()))]
    if not rows:
        raise PermanentError(f"{session.where} has no stream of SUNK: no service has created its streams yet")
    session.out.show(streams_table(sorted(rows, key=lambda row: (row.cluster, row.what))))
    names = [stream_name(info) for info in infos]
    consumers = [row for name in names for row in await consumers_of(session.bus, name)]
    session.out.show(consumers_table(sorted(consumers, key=lambda row: (row.cluster, row.name))))
    leases = [
        lease_row(bucket, record, now())
        for bucket in buckets_of(names)
        if bucket.kind is None
        for record in await stored(session.bus, bucket.stream, LATEST, subjects.bucket_keys(bucket.full_name))
    ]
    session.out.show(leases_table(sorted(leases, key=lambda row: (row.cluster, row.lease))))


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


async def consumers_of(bus: Bus, stream: str) -> list[ConsumerRow]:
    """Return the durable consumers of *stream*."""
    whose = what_of(stream)
    cluster = whose[0] if whose else ""
    infos: list[ConsumerInfo] = []
    while more := await bus.js.consumers_info(stream, offset=len(infos)):
        infos.extend(more)
    return [row for info in infos if (row := consumer_row(cluster, info))]


def _is_meant(session: Session, name: str) -> bool:
    whose = what_of(name)
    return whose is not None and (not session.cluster or whose[0] in {"", session.cluster})


async def _newest(bus: Bus, info: StreamInfo) -> datetime | None:
    """Return when the newest message was stored, None where it is there no more."""
    try:
        return (await bus.js.get_msg(stream_name(info), seq=info.state.last_seq)).time
    except JetStreamRejectedError:
        return None
