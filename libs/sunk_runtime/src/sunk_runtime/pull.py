"""One overlapping pull over a consumer: the fast and self-watching way to read a stream.

Source: NATS ADR-37. nats-py's own `fetch` costs five times as much per message, and its push consumers
notice a restarted server 19 s late; here a connection that breaks ends the pull at once, a missed heartbeat
within `DEAD_S`.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream

from sunk_runtime.errors import BusUnavailableError
from sunk_runtime.jetstream import Bus, Message

BATCH: Final = 500
HEARTBEAT_S: Final = 1.0
DEAD_S: Final = 2.5
EXPIRES_S: Final = 30.0
_TIMED_OUT: Final = frozenset({"404", "408"})
_V1_TOKENS: Final = 9


class Position(msgspec.Struct, frozen=True):
    """Where a delivery stands: in its stream, in its consumer, and how many wait behind it."""

    stream_seq: int
    consumer_seq: int
    pending: int
    delivered: int = 1
    """How often this message was delivered, this time included."""


def position(reply: str) -> Position:
    """Read the position out of an acknowledgement subject, of the first or the second format."""
    tokens = reply.split(".")
    if len(tokens) > _V1_TOKENS:
        tokens = tokens[2:]  # Domain and account stand before the stream.
    return Position(int(tokens[5]), int(tokens[6]), int(tokens[8]), int(tokens[4]))


async def create_consumer(bus: Bus, stream: str, config: Mapping[str, Any]) -> tuple[str, int]:
    """Make a consumer, durable if *config* names one, and return its name and how much waits for it."""
    durable = config.get("durable_name")
    subject = f"CONSUMER.DURABLE.CREATE.{stream}.{durable}" if durable else f"CONSUMER.CREATE.{stream}"
    info = await bus.api(subject, {"stream_name": stream, "config": config})
    return str(info["name"]), int(info["num_pending"])


@asynccontextmanager
async def pulling(bus: Bus, stream: str, consumer: str) -> AsyncGenerator["Pull"]:
    """Subscribe to what a pull of *consumer* brings, for as long as the context lasts."""
    inbox = bus.inbox()
    send, receive = anyio.create_memory_object_stream[Message](float("inf"))

    async def deliver(message: Message) -> None:
        send.send_nowait(message)

    async with send, receive, bus.subscribed(inbox, deliver):
        yield Pull(bus, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", inbox, receive)


class Pull:
    """The deliveries of one consumer, with heartbeats told by None."""

    def __init__(
        self, bus: Bus, next_subject: str, inbox: str, receive: MemoryObjectReceiveStream[Message]
    ) -> None:
        self._bus = bus
        self._next = next_subject
        self._inbox = inbox
        self._receive = receive
        self._outstanding = 0
        self._breaks = bus.breaks

    async def next(self) -> Message | None:
        """Return the next delivery, or None for a sign of life.

        Raises:
            BusUnavailableError: the consumer or the server is gone; make a new one.
        """
        await self._refill()
        message = await self._wait()
        status = message.headers.get("Status")
        if status is None:
            self._outstanding -= 1
            return message
        if status in _TIMED_OUT:
            self._outstanding -= int(message.headers.get("Nats-Pending-Messages", self._outstanding))
        elif status != "100":
            raise BusUnavailableError(f"pull ended: {status} {message.headers.get('Description', '')}")
        return None

    async def _wait(self) -> Message:
        with suppress(anyio.WouldBlock):  # What has come already needs neither scope nor timer.
            return self._receive.receive_nowait()
        if self._bus.breaks != self._breaks:
            raise BusUnavailableError("pull ended: the connection broke")
        with anyio.move_on_after(DEAD_S):
            async with self._bus.awaiting("pull ended"):
                return await self._receive.receive()
        raise BusUnavailableError(f"pull ended: nothing heard for {DEAD_S} s")

    async def _refill(self) -> None:
        if self._outstanding > BATCH // 2:
            return
        more = BATCH - self._outstanding
        ask = {"batch": more, "expires": int(EXPIRES_S * 1e9), "idle_heartbeat": int(HEARTBEAT_S * 1e9)}
        await self._bus.send(self._next, msgspec.json.encode(ask), reply=self._inbox)
        self._outstanding += more
