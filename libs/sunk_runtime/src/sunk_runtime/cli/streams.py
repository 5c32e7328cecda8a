"""`sunk-bus streams`: is the bus well? Streams, consumers that lag, leases and who holds them."""

from collections.abc import Mapping
from typing import Any

from sunk_events import subjects
from sunk_runtime.cli.health import ConsumerRow, consumer_row, lease_row, stream_row, what_of
from sunk_runtime.cli.reading import LATEST, stored
from sunk_runtime.cli.session import Session
from sunk_runtime.cli.states import buckets_of
from sunk_runtime.cli.tables import consumers_table, leases_table, streams_table
from sunk_runtime.errors import PermanentError
from sunk_runtime.jetstream import Bus
from sunk_runtime.views import now


async def streams(session: Session) -> None:
    """Show the streams of ours, their durable consumers and the leases."""
    infos = [info for info in await _pages(session.bus, "STREAM.LIST", "streams") if _is_meant(session, info)]
    rows = [row for info in infos if (row := stream_row(info, now()))]
    if not rows:
        raise PermanentError(f"no stream of ours is at {session.where}: no service has made its streams yet")
    session.out.show(streams_table(sorted(rows, key=lambda row: (row.cluster, row.what))))
    consumers = [row for info in infos for row in await consumers_of(session.bus, info["config"]["name"])]
    session.out.show(consumers_table(sorted(consumers, key=lambda row: (row.cluster, row.name))))
    leases = [
        lease_row(bucket, record, now())
        for bucket in buckets_of([info["config"]["name"] for info in infos])
        if bucket.kind is None
        for record in await stored(session.bus, bucket.stream, LATEST, subjects.bucket_keys(bucket.full_name))
    ]
    session.out.show(leases_table(sorted(leases, key=lambda row: (row.cluster, row.lease))))


async def consumers_of(bus: Bus, stream: str) -> list[ConsumerRow]:
    """Return the durable consumers of *stream*."""
    whose = what_of(stream)
    cluster = whose[0] if whose else ""
    infos = await _pages(bus, f"CONSUMER.LIST.{stream}", "consumers")
    return [row for info in infos if (row := consumer_row(cluster, info))]


def _is_meant(session: Session, info: Mapping[str, Any]) -> bool:
    whose = what_of(info["config"]["name"])
    return whose is not None and (not session.cluster or whose[0] in {"", session.cluster})


async def _pages(bus: Bus, api: str, field: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = await bus.api(api, {"offset": len(found)})
        more: list[dict[str, Any]] = page.get(field) or []
        found.extend(more)
        if not more or len(found) >= int(page["total"]):
            return found
