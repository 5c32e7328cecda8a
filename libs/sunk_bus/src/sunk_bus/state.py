"""`sunk-bus state`: buckets, the keys of one, one key in full."""

from difflib import get_close_matches

import msgspec
from rich.text import Text

from sunk_bus.reading import LATEST, Record, last_seq, stored
from sunk_bus.session import Session
from sunk_bus.states import Bucket, buckets_of, chosen, is_chosen, key_of, pretty, row_of
from sunk_bus.tables import buckets_table, change_line, keys_table
from sunk_bus.words import age, safe
from sunk_events import subjects
from sunk_runtime.clock import now
from sunk_runtime.errors import PermanentError


class StateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to show, and how."""

    bucket: str = ""
    key: str = ""
    """A key, or a glob on keys."""
    is_json: bool = False
    is_following: bool = False


async def state(session: Session, options: StateOptions) -> None:
    """Show what is asked for; with ``is_following`` go on with what changes, until cancelled."""
    there = [
        bucket for bucket in buckets_of(await session.streams()) if session.cluster in {"", bucket.cluster}
    ]
    if not options.bucket:
        await _show_buckets(session, there)
        return
    buckets = chosen(there, options.bucket)
    if options.is_following and len(buckets) > 1:
        clusters = ", ".join(bucket.cluster for bucket in buckets)
        raise PermanentError(f"one cluster at a time can be watched: --cluster with one of {clusters}")
    was_found = False
    for bucket in buckets:
        was_found |= await _show(session, bucket, options)
    if options.key and not was_found:
        raise PermanentError(await _missing(session, buckets, options.key))


async def _show_buckets(session: Session, buckets: list[Bucket]) -> None:
    if not buckets:
        raise PermanentError(f"{session.where} has no states: no service has created its buckets yet")
    found = [
        (bucket, sum(not record.is_deletion for record in await _keys(session, bucket))) for bucket in buckets
    ]
    session.out.show(buckets_table(found))


async def _show(session: Session, bucket: Bucket, options: StateOptions) -> bool:
    """Show *bucket* and return whether it has what was asked for."""
    newest = await last_seq(session.bus, bucket.stream)
    records = await _keys(session, bucket)
    there = [
        record
        for record in records
        if not record.is_deletion and is_chosen(key_of(bucket, record), options.key)
    ]
    if options.is_json:
        for record in there:
            session.out.line(_json_line(bucket, record))
    elif len(there) == 1 and key_of(bucket, there[0]) == options.key:
        _show_whole(session, bucket, there[0])
    elif there or not options.key:
        rows = sorted((row_of(bucket, record, now()) for record in there), key=lambda row: row.key)
        session.out.show(keys_table(bucket, rows))
    if options.is_following:
        seq = max([newest, *(record.seq for record in records)]) + 1
        await _watch(session, bucket, options, seq)
    return bool(there)


async def _keys(session: Session, bucket: Bucket) -> list[Record]:
    return await stored(session.bus, bucket.stream, LATEST, subjects.bucket_keys(bucket.full_name))


def _json_line(bucket: Bucket, record: Record) -> str:
    value: object = None
    if not record.is_deletion:
        try:
            value = msgspec.json.decode(record.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = record.data  # In base64: no JSON object is a string.
    line = {
        "cluster": bucket.cluster,
        "key": key_of(bucket, record),
        "revision": record.seq,
        "stored": record.stored,
        "value": value,
    }
    return msgspec.json.encode(line).decode()


def _show_whole(session: Session, bucket: Bucket, record: Record) -> None:
    row = row_of(bucket, record, now())
    session.out.line(
        Text(
            f"{bucket.full_name} {row.key}: revision {record.seq}, stored {age(record.stored, now())} ago",
            "bold",
        )
    )
    if row.problem:
        session.out.line(Text(row.problem, "red"))
    for line in pretty(record).splitlines():
        session.out.line(safe(line))


async def _watch(session: Session, bucket: Bucket, options: StateOptions, seq: int) -> None:
    def take(record: Record) -> None:
        if not is_chosen(key_of(bucket, record), options.key):
            return
        if options.is_json:
            session.out.line(_json_line(bucket, record))
        else:
            session.out.line(change_line(row_of(bucket, record, now()), record.stored))

    await session.follow(bucket.stream, seq, subjects.bucket_keys(bucket.full_name), take)


async def _missing(session: Session, buckets: list[Bucket], key: str) -> str:
    known = [
        key_of(bucket, record)
        for bucket in buckets
        for record in await _keys(session, bucket)
        if not record.is_deletion
    ]
    near = get_close_matches(key, known)
    hint = f"did you mean {', '.join(near)}?" if near else f"it has {len(known)} keys"
    return f"{buckets[0].full_name} has no key {key!r}: {hint}"
