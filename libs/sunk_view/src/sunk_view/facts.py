"""Reads the streams of facts for people: the last ones, and those after where a reader stands.

What must stay true: a reader keeps no state here and none in NATS, so no slow one costs anything; each
question reads a bounded number of messages, one by one, and few questions read at once, one of each share. A
question that finds no place is refused at once, so none waits in another's place. What was left out is said.

Source: NATS, JetStream API, STREAM.MSG.GET with ``next_by_subj``: the next message of a subject from a
sequence on.
"""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import anyio
import msgspec

from sunk_events import subjects
from sunk_events.view import EventRow
from sunk_runtime.errors import JetStreamRejectedError, TransientError
from sunk_runtime.jetstream import Bus
from sunk_view.event_rows import PAGE, Position, Stored, Wanted, row_of

AT_ONCE: Final = 4
"""Questions that read; each has one call of JetStream under way for each Slurm cluster."""
LOOKED_AT_MAX: Final = 400
"""Messages that one answer reads, where most are not wanted."""
CALLS_MAX: Final = 2 * LOOKED_AT_MAX
"""Calls of JetStream for the last ones, of each Slurm cluster; most bring a message."""
FIRST_SPAN: Final = 32
"""Sequences that are looked at first: so many are read in time where the bus is slow."""
CHUNK: Final = 50
"""Messages that are read in one go, about."""
ANSWER_S: Final = 4.0
"""After so long an answer has what was read until then."""
_WIDER: Final = 8
"""How many times more sequences are looked at, where few were wanted ones."""
_NO_MESSAGE: Final = 10037
_NO_STREAM: Final = 10059


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of one stream."""

    rows: tuple[EventRow, ...] = ()
    at: Position
    is_more: bool = False
    problems: tuple[str, ...] = ()


class _Stream(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str
    created: int
    first: int
    last: int


class TooManyError(TransientError):
    """The share of the caller has a question under way."""


class Facts:
    """The facts of every Slurm cluster."""

    def __init__(self, bus: Bus, *, at_once: int = AT_ONCE, answer_s: float = ANSWER_S) -> None:
        self._bus = bus
        self._at_once = at_once
        self._answer_s = answer_s
        self._shares: set[str] = set()
        """Those whose questions read now."""

    @contextmanager
    def question(self, share: str) -> Generator[None]:
        """Be one of the few questions that read, for as long as this is entered.

        Raises:
            TooManyError: *share*, as `Caller.share`, has one already.
            TransientError: there are as many as may be.
        """
        if share in self._shares:
            raise TooManyError(f"{share} has another question about events under way: ask one at a time")
        if len(self._shares) >= self._at_once:
            raise TransientError("too many questions about events are under way")
        self._shares.add(share)
        try:
            yield
        finally:
            self._shares.discard(share)

    async def newest(self, cluster: str, wanted: Wanted, count: int, since: datetime | None) -> Page:
        """Return the last *count* that are *wanted*, none from before *since*.

        Raises:
            TransientError: the bus does not answer.
        """
        stream = await self._stream(cluster)
        rows: list[EventRow] = []
        chunk: list[EventRow] = []
        scan: _Scan | None = None
        high, span, calls = stream.last, FIRST_SPAN, 0
        widest, dense = stream.last, 0  # Down to the sequence *dense* there are many: no wider a look.
        with anyio.move_on_after(self._answer_s) as patience:
            while high >= stream.first and len(rows) < count and calls < CALLS_MAX:
                low, chunk = max(stream.first, high - span + 1), []
                scan = _Scan(self._bus, cluster, wanted, low)
                await scan.collect(
                    chunk, until=high, rows_max=CALLS_MAX, looked_max=min(2 * CHUNK + 1, CALLS_MAX - calls)
                )
                calls += scan.calls
                if not scan.is_done:
                    widest, dense = max(2 * CHUNK, (high - low + 1) // _WIDER), low  # So many are read whole.
                    span = widest
                    continue
                rows, high, chunk = [*chunk, *rows], low - 1, []
                if since is not None and scan.oldest is not None and scan.oldest < since:
                    break
                wider = next_span(span, scan.looked)
                span = min(wider, widest) if high >= dense else wider
        is_late = patience.cancelled_caught
        last = stream.last
        problem = ""
        if is_late and high == stream.last and scan is not None:  # Not even the newest: go on from there.
            rows, last = chunk, scan.looked_at
            problem = "newer and older events are left out, because reading took too long. Ask again"
        elif is_late:
            problem = "older events are left out, because reading took too long"
        elif high >= stream.first and len(rows) < count and calls >= CALLS_MAX:
            problem = f"older events are left out, because one answer reads about {CALLS_MAX} messages"
        return Page(
            rows=tuple(row for row in rows if since is None or row.time >= since)[-count:],
            at=Position(created=stream.created, sequence=last),
            is_more=last < stream.last,
            problems=(f"{cluster}: {problem}",) if problem else (),
        )

    async def after(self, cluster: str, wanted: Wanted, at: Position | None) -> Page:
        """Return those that are *wanted* after a position; none given: only from now on.

        Raises:
            TransientError: the bus does not answer.
        """
        stream = await self._stream(cluster)
        start, problem = _start(stream, at)
        problems = (problem,) if problem else ()
        scan = _Scan(self._bus, cluster, wanted, start)
        rows: list[EventRow] = []
        with anyio.move_on_after(self._answer_s):
            await scan.collect(rows, until=stream.last, rows_max=PAGE, looked_max=LOOKED_AT_MAX)
        reached = stream.last if scan.is_done else scan.looked_at
        position = Position(created=stream.created, sequence=reached)
        return Page(rows=tuple(rows), at=position, is_more=not scan.is_done, problems=problems)

    async def _stream(self, cluster: str) -> _Stream:
        try:
            info = await self._bus.js.stream_info(subjects.fact_stream(cluster))
        except JetStreamRejectedError as error:
            if error.err_code == _NO_STREAM:
                raise TransientError(f"{cluster}: there is no stream of facts yet") from error
            raise
        created = datetime.fromisoformat(str(info.created))
        return _Stream(
            cluster=cluster,
            created=round(created.timestamp() * 1000),
            first=max(1, info.state.first_seq),
            last=info.state.last_seq,
        )


def next_span(span: int, looked: int) -> int:
    """Return how many sequences to look at next, so that about `CHUNK` messages are among them.

    Args:
        span: How many were looked at before.
        looked: Messages of the wanted subjects among those.
    """
    wider = span * _WIDER
    return min(wider, max(FIRST_SPAN, span * CHUNK // looked)) if looked else wider


def _start(stream: _Stream, at: Position | None) -> tuple[int, str]:
    """Return with which sequence to go on, and what is missing."""
    if at is None:
        return stream.last + 1, ""
    if at.created != stream.created:  # Of a copy the sequences go on; of an empty one they begin again.
        is_copy = stream.first <= at.sequence <= stream.last
        start = at.sequence + 1 if is_copy else stream.first
        return start, f"{stream.cluster}: its stream was created again; events may be missing"
    if at.sequence > stream.last:
        return (
            stream.last + 1,
            f"{stream.cluster}: its stream has lost its latest messages; events may be missing",
        )
    if (gone := stream.first - at.sequence - 1) > 0:
        return stream.first, f"{stream.cluster}: up to {gone} events were too old to be kept, and are missing"
    return at.sequence + 1, ""


class _Scan:
    """Reads what is wanted, in the order of the stream."""

    def __init__(self, bus: Bus, cluster: str, wanted: Wanted, start: int) -> None:
        self.is_done = False
        """All that was asked for was looked at."""
        self.looked_at = start - 1
        """The last sequence that was looked at."""
        self.oldest: datetime | None = None
        """When the first message that was looked at was stored."""
        self.looked = 0
        """Messages that were looked at."""
        self.calls = 0
        """Calls of JetStream."""
        self._bus = bus
        self._cluster = cluster
        self._wanted = wanted
        self._from = dict.fromkeys(wanted.filters(cluster), start)
        self._heads: dict[str, Stored | None] = {}

    async def collect(self, rows: list[EventRow], *, until: int, rows_max: int, looked_max: int) -> None:
        """Append the rows to *rows*, where they are if this is cancelled."""
        for _ in range(looked_max):
            if len(rows) >= rows_max:
                return
            found = await self._next()
            if found is None or found.sequence > until:
                self.is_done = True
                return
            self.oldest = self.oldest or found.moment
            row = row_of(self._cluster, found)
            if row is not None and self._wanted.takes(row):
                rows.append(row)
            self.looked_at = found.sequence
            self.looked += 1

    async def _next(self) -> Stored | None:
        """Return the next message of any of the subjects."""
        for subject, start in self._from.items():
            if subject not in self._heads:
                self._heads[subject] = await self._message(subject, start)
        heads = [head for head in self._heads.values() if head is not None]
        found = min(heads, key=lambda head: head.sequence, default=None)
        if found is not None:
            for subject, head in list(self._heads.items()):
                if head is not None and head.sequence == found.sequence:
                    self._from[subject] = found.sequence + 1
                    del self._heads[subject]
        return found

    async def _message(self, subject: str, start: int) -> Stored | None:
        stream = subjects.fact_stream(self._cluster)
        self.calls += 1
        try:
            found = await self._bus.js.get_msg(stream, seq=start, subject=subject, next=True)
        except JetStreamRejectedError as error:
            if error.err_code == _NO_MESSAGE:
                return None
            raise
        if found.seq is None or found.time is None:
            raise TransientError(f"{stream}: a message without its sequence or time")
        return Stored(
            subject=found.subject or "", data=found.data or b"", sequence=found.seq, moment=found.time
        )
