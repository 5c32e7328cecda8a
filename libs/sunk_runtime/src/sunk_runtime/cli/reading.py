"""Reads a stream for somebody who looks: it acknowledges nothing and writes nothing.

A `StateView` is not used here, as it writes what it cannot read to the dead letters; who looks must not.
"""

from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

import msgspec

from sunk_events import subjects
from sunk_runtime.errors import BusUnavailableError, NoAnswerError
from sunk_runtime.jetstream import Bus, Message
from sunk_runtime.pull import Pull, create_consumer, position, pulling, stored_at

_CONSUMER: Final[dict[str, Any]] = {
    "ack_policy": "none",
    "replay_policy": "instant",
    "mem_storage": True,
    "num_replicas": 1,
    "inactive_threshold": 10_000_000_000,
}
_IDLE_MAX: Final = 2
"""Heartbeats with nothing between: what was pending has gone meanwhile."""
_WIDER: Final = 16

EVERYTHING: Final[Mapping[str, object]] = {"deliver_policy": "all"}
LATEST: Final[Mapping[str, object]] = {"deliver_policy": "last_per_subject"}


class Record(msgspec.Struct, frozen=True):
    """A message of a stream, and where and when it was stored."""

    subject: str
    data: bytes
    seq: int
    stored: datetime
    headers: Mapping[str, str] = {}

    @property
    def is_deletion(self) -> bool:
        """It says that a bucket's key is gone."""
        return "Nats-Marker-Reason" in self.headers or "KV-Operation" in self.headers


def start_at(seq: int) -> Mapping[str, object]:
    """Begin with the message of this sequence."""
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, seq)}


def start_since(moment: datetime) -> Mapping[str, object]:
    """Begin with what was stored from *moment* on."""
    return {"deliver_policy": "by_start_time", "opt_start_time": moment.isoformat()}


class Reader:
    """Reads what one consumer brings, in order."""

    def __init__(self, pull: Pull, pending: int) -> None:
        self.pending = pending
        """How many were stored when the reader was made and are not read yet."""
        self._pull = pull
        self._came: deque[Message] = deque()
        self._expected = 1

    async def next(self) -> Record | None:
        """Return the next message, or None for a sign of life.

        Raises:
            BusUnavailableError: the connection broke or a message was missed; begin after the last one read.
        """
        if not self._came:
            self._came.extend(await self._pull.batch())
        if not self._came:
            return None
        message = self._came.popleft()
        at = position(message.reply)
        if at.consumer_seq != self._expected:
            raise BusUnavailableError(f"message {self._expected} was missed")
        self._expected += 1
        self.pending = at.pending
        return Record(message.subject, message.data, at.stream_seq, stored_at(message.reply), message.headers)

    async def rest(self) -> AsyncGenerator[Record]:
        """Yield what is stored and not read yet."""
        idle = 0
        while self.pending and idle < _IDLE_MAX:
            record = await self.next()
            if record is None:
                idle += 1
            else:
                idle = 0
                yield record


@asynccontextmanager
async def reading(
    bus: Bus, stream: str, start: Mapping[str, object], filter_subject: str
) -> AsyncGenerator[Reader]:
    """Read *stream* from *start* on, for as long as the context lasts."""
    config = {**_CONSUMER, **start, "filter_subject": filter_subject}
    consumer, pending = await create_consumer(bus, stream, config)
    async with pulling(bus, stream, consumer) as pull:
        yield Reader(pull, pending)


async def stored(bus: Bus, stream: str, start: Mapping[str, object], filter_subject: str) -> list[Record]:
    """Return what is stored now, from *start* on."""
    async with reading(bus, stream, start, filter_subject) as reader:
        return [record async for record in reader.rest()]


async def start_of_last(bus: Bus, stream: str, count: int, filter_subject: str) -> Mapping[str, object]:
    """Return a start behind which at least the last *count* messages stand, and not many more.

    The server counts what matches a filter from a sequence on, so we ask further and further back.
    """
    last = await last_seq(bus, stream)
    span = max(1, count)
    while span < last:
        start = start_at(last - span + 1)
        name, pending = await create_consumer(
            bus, stream, {**_CONSUMER, **start, "filter_subject": filter_subject}
        )
        await bus.api(f"CONSUMER.DELETE.{stream}.{name}", {})
        if pending >= count:
            return start
        span *= _WIDER
    return EVERYTHING


async def stream_names(bus: Bus) -> list[str]:
    """Return the name of every stream, sorted.

    Raises:
        NoAnswerError: the server has no JetStream for us; says so.
    """
    names: list[str] = []
    while True:
        try:
            page = await bus.api("STREAM.NAMES", {"offset": len(names)})
        except NoAnswerError as error:
            raise NoAnswerError(
                f"JetStream does not answer: is it on, and may this user use it? {error}"
            ) from error
        found: list[str] = page.get("streams") or []
        names.extend(found)
        if not found or len(names) >= int(page["total"]):
            return sorted(names)


async def last_seq(bus: Bus, stream: str) -> int:
    """Return the sequence of the newest message of *stream*, 0 where there never was one."""
    return int((await bus.api(f"STREAM.INFO.{stream}", {}))["state"]["last_seq"])


def clusters_of(streams: list[str]) -> list[str]:
    """Return the clusters that have facts among *streams*."""
    prefix = subjects.fact_stream("")
    return [name.removeprefix(prefix) for name in streams if name.startswith(prefix)]
