"""Rows to rich tables; nothing is decided here."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from sunk_bus.health import ConsumerRow, LeaseRow, StreamRow
from sunk_bus.letters import Letter
from sunk_bus.states import Bucket, Row, columns_of
from sunk_bus.words import age, clock, safe
from sunk_events.requests import Finding


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Text | str]], *, title: str = "") -> Table:
    """Return a table without a frame, whose cells wrap and are never cut."""
    table = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False, expand=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def keys_table(bucket: Bucket, rows: Iterable[Row]) -> Table:
    """Return the keys of *bucket*."""
    columns = columns_of(bucket.kind)
    return table_of(
        ("key", *columns, "age"), (_key_row(row, len(columns)) for row in rows), title=bucket.full_name
    )


def _key_row(row: Row, width: int) -> tuple[Text | str, ...]:
    if row.problem:
        return (row.key, Text(row.problem, "red"), *[""] * (width - 1), row.age)
    return (row.key, *row.cells, row.age)


def change_line(row: Row, moment: datetime) -> Text:
    """Return one line for a key that changed."""
    words = Text(row.problem, "red") if row.problem else Text("  ".join(filter(None, row.cells)))
    return Text.assemble((f"{clock(moment)}  ", "dim"), f"{row.key:<28}  ", words)


def buckets_table(found: Iterable[tuple[Bucket, int]]) -> Table:
    """Return the buckets with how many keys each has."""
    rows = ((bucket.cluster, bucket.name, str(keys)) for bucket, keys in found)
    return table_of(("cluster", "bucket", "keys"), rows)


def letters_table(letters: Iterable[Letter], now: datetime) -> Table:
    """Return dead letters, in the order given."""
    rows = (
        (str(letter.seq), age(letter.stored, now), safe(letter.who), safe(letter.on), safe(letter.reason))
        for letter in letters
    )
    return table_of(("id", "age", "by", "on", "reason"), rows)


def streams_table(rows: Iterable[StreamRow]) -> Table:
    """Return the streams."""
    cells = ((row.cluster, row.what, str(row.messages), row.bytes, row.newest, row.kept) for row in rows)
    return table_of(("cluster", "stream", "messages", "bytes", "newest", "copies"), cells)


def consumers_table(rows: Iterable[ConsumerRow]) -> Table:
    """Return the consumers; what needs a person is red."""
    cells = (
        (
            row.cluster,
            row.name,
            _alarming(row.lag, is_so=row.lag > 0 and not row.readers),
            str(row.unacknowledged),
            str(row.redelivered),
            _alarming(row.readers, is_so=not row.readers),
        )
        for row in rows
    )
    return table_of(("cluster", "consumer", "lag", "unacknowledged", "redelivered", "readers"), cells)


def leases_table(rows: Iterable[LeaseRow]) -> Table:
    """Return the leases."""
    cells = ((row.cluster, row.lease, row.holder, row.renewed) for row in rows)
    return table_of(("cluster", "lease", "holder", "renewed"), cells)


def findings_table(title: str, findings: Iterable[Finding], now: datetime) -> Table:
    """Return why something is as it is, the weightiest first."""
    cells = (
        (
            safe(found.what),
            age(found.since, now) if found.since else "",
            safe(found.because),
            safe(found.would_change),
        )
        for found in findings
    )
    return table_of(("what", "for", "because", "would change it"), cells, title=title)


def _alarming(count: int, *, is_so: bool) -> Text:
    return Text(str(count), "red" if is_so else "")
