"""`sunk-bus tail`: facts as they happen, and those before."""

from collections import deque
from datetime import timedelta

import anyio
import msgspec
from nats.js.api import ConsumerConfig

from sunk_bus import patterns
from sunk_bus.facts import json_of, line_of, text_of
from sunk_bus.patterns import Pattern
from sunk_bus.reading import EVERYTHING, Record, last_seq, reading, start_of_last, start_since
from sunk_bus.session import Session
from sunk_events import subjects
from sunk_runtime.clock import now


class TailOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to show, and how."""

    subject: str = ""
    since_s: float | None = None
    last: int | None = None
    is_json: bool = False
    is_following: bool = True


async def tail(session: Session, options: TailOptions) -> None:
    """Show what is asked for, a line each, until cancelled."""
    pattern = patterns.parse(options.subject)
    if pattern.is_dead:
        await session.require_dead_letters()
        cluster = session.cluster if pattern.cluster == "*" and session.cluster else pattern.cluster
        sources = {subjects.DEAD_LETTER_STREAM: pattern.filter_for(cluster)}
    else:
        clusters = await session.clusters(pattern.cluster)
        sources = {subjects.fact_stream(name): pattern.filter_for(name) for name in clusters}
    if pattern.is_name:
        await _hint(session, options.subject, pattern, sources)
    async with anyio.create_task_group() as tasks:
        for stream, filter_subject in sources.items():
            tail = _Tail(session, options, pattern, has_cluster=len(sources) > 1)
            tasks.start_soon(tail.run, stream, filter_subject)


async def _hint(session: Session, typed: str, pattern: Pattern, sources: dict[str, str]) -> None:
    """Say so where nothing of that name was heard of: it may be new, or misspelt."""
    for stream, filter_subject in sources.items():
        info = await session.bus.js.stream_info(stream, subjects_filter=filter_subject)
        found = info.state.subjects or {}
        if any(patterns.is_shown(pattern, subject) for subject in found):
            return
    session.out.note(
        f"nothing is stored about a node, job or Pod called {typed!r}; waiting for new facts. "
        f"Besides names there are {', '.join((*patterns.PLACES, *patterns.WORDS))}"
    )


class _Tail:
    """Shows one stream."""

    def __init__(
        self, session: Session, options: TailOptions, pattern: Pattern, *, has_cluster: bool
    ) -> None:
        self._session = session
        self._options = options
        self._pattern = pattern
        self._has_cluster = has_cluster

    async def run(self, stream: str, filter_subject: str) -> None:
        """Show what was, then what comes."""
        seq = await last_seq(self._session.bus, stream) + 1
        last = self._options.last
        if last is not None or self._options.since_s is not None:
            newest: deque[Record] = deque(maxlen=last)
            start = await self._start(stream, filter_subject)
            async with reading(self._session.bus, stream, start, filter_subject) as reader:
                async for record in reader.rest():
                    seq = max(seq, record.seq + 1)
                    if patterns.is_shown(self._pattern, record.subject):
                        newest.append(record)
            for record in newest:
                self._show(record)
        if self._options.is_following:
            await self._session.follow(stream, seq, filter_subject, self._show)

    async def _start(self, stream: str, filter_subject: str) -> ConsumerConfig:
        if self._options.since_s is not None:
            return start_since(now() - timedelta(seconds=self._options.since_s))
        if self._pattern.entity:
            return EVERYTHING
        return await start_of_last(self._session.bus, stream, self._options.last or 0, filter_subject)

    def _show(self, record: Record) -> None:
        if not patterns.is_shown(self._pattern, record.subject):
            return
        if self._options.is_json:
            self._session.out.line(json_of(record))
        else:
            self._session.out.line(text_of(line_of(record), has_cluster=self._has_cluster))
