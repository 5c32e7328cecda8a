# pyright: reportUnknownMemberType=false
"""Reads a stream for somebody who looks: it acknowledges nothing and writes nothing.

A `StateView` is not used here, as it writes what it cannot read to the dead letters; who looks must not.
"""

from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import msgspec
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo

from sunk_events import subjects
from sunk_runtime.errors import BusUnavailableError
from sunk_runtime.jetstream import Bus, Message
from sunk_runtime.pull import Pull, create_consumer, pulling

_CONSUMER: Final = ConsumerConfig(
    ack_policy=AckPolicy.NONE, mem_storage=True, num_replicas=1, inactive_threshold=10
)
_IDLE_MAX: Final = 2
"""Heartbeats with nothing between: what was pending has gone meanwhile."""
_WIDER: Final = 16

EVERYTHING: Final = _CONSUMER
LATEST: Final = _CONSUMER.evolve(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT)


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


def start_at(seq: int) -> ConsumerConfig:
    """Begin with the message of this sequence."""
    return _CONSUMER.evolve(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=max(1, seq))


def start_since(moment: datetime) -> ConsumerConfig:
    """Begin with what was stored from *moment* on."""
    return _CONSUMER.evolve(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=moment)


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
        at = message.metadata
        if at.sequence.consumer != self._expected:
            raise BusUnavailableError(f"message {self._expected} was missed")
        self._expected += 1
        self.pending = at.num_pending
        return Record(message.subject, message.data, at.sequence.stream, at.timestamp, message.headers)

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
    bus: Bus, stream: str, start: ConsumerConfig, filter_subject: str
) -> AsyncGenerator[Reader]:
    """Read *stream* from *start* on, for as long as the context lasts."""
    consumer, pending = await create_consumer(bus, stream, start.evolve(filter_subject=filter_subject))
    async with pulling(bus, stream, consumer) as pull:
        yield Reader(pull, pending)


async def stored(bus: Bus, stream: str, start: ConsumerConfig, filter_subject: str) -> list[Record]:
    """Return what is stored now, from *start* on."""
    async with reading(bus, stream, start, filter_subject) as reader:
        return [record async for record in reader.rest()]


async def start_of_last(bus: Bus, stream: str, count: int, filter_subject: str) -> ConsumerConfig:
    """Return a start behind which at least the last *count* messages stand, and not many more.

    The server counts what matches a filter from a sequence on, so we ask further and further back.
    """
    last = await last_seq(bus, stream)
    span = max(1, count)
    while span < last:
        start = start_at(last - span + 1)
        name, pending = await create_consumer(bus, stream, start.evolve(filter_subject=filter_subject))
        await bus.js.delete_consumer(stream, name)
        if pending >= count:
            return start
        span *= _WIDER
    return EVERYTHING


async def stream_infos(bus: Bus) -> list[StreamInfo]:
    """Return what JetStream says of every stream, in the order of their names.

    Raises:
        BusUnavailableError: the server has no JetStream for us; says so.
    """
    infos: list[StreamInfo] = []
    while True:
        try:
            page = await bus.js.streams_info_iterator(offset=len(infos))
        except BusUnavailableError as error:
            raise BusUnavailableError(
                f"JetStream does not answer: check that it is on and that this user may use it. {error}"
            ) from error
        found = list(page)
        if not found:
            return sorted(infos, key=stream_name)
        infos.extend(found)


def stream_name(info: StreamInfo) -> str:
    """Return the name of a stream."""
    return info.config.name or ""


async def last_seq(bus: Bus, stream: str) -> int:
    """Return the sequence of the newest message of *stream*, 0 where there never was one."""
    return (await bus.js.stream_info(stream)).state.last_seq


def clusters_of(streams: list[str]) -> list[str]:
    """Return the clusters that have facts among *streams*."""
    prefix = subjects.fact_stream("")
    return [name.removeprefix(prefix) for name in streams if name.startswith(prefix)]
