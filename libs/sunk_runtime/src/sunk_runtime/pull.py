# pyright: reportUnknownMemberType=false
"""One overlapping pull over a consumer: the fast and self-watching way to read a stream.

What must stay true: at most `BATCH` messages are asked for and not yet taken, so what waits here is bounded
although nats-py's own limits, which drop, are off; what came is handed over in order, none is left out.

Source: NATS ADR-37. nats-py's own `fetch` costs five times as much per message, and does not notice
missing heartbeats (ADR 0021); here a connection that breaks ends the pull at once, a missed heartbeat within
`DEAD_S`.
"""

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec
from nats.errors import NotJSMessageError
from nats.js.api import ConsumerConfig

from sunk_runtime.errors import BusUnavailableError, PermanentError
from sunk_runtime.jetstream import Bus, Message

BATCH: Final = 500
HEARTBEAT_S: Final = 1.0
DEAD_S: Final = 2.5
EXPIRES_S: Final = 30.0
_ALIVE: Final = "100"
_TIMED_OUT: Final = frozenset({"404", "408"})


async def create_consumer(bus: Bus, stream: str, config: ConsumerConfig) -> tuple[str, int]:
    """Make a consumer, durable if *config* names one, and return its name and how much waits for it.

    A durable that exists with other settings is given these.

    Raises:
        PermanentError: the stream does not exist, or the durable has settings that cannot be changed.
    """
    info = await bus.js.add_consumer(stream, config)
    if config.durable_name:
        has = info.config.as_dict()
        requested = {
            name: value for name, value in config.as_dict().items() if value
        }  # 0: as the server has it.
        others = [f"{name} {has.get(name)!r}" for name, value in requested.items() if has.get(name) != value]
        if others:
            raise PermanentError(
                f"consumer {config.durable_name} of {stream} keeps {', '.join(others)}: remove it"
            )
    return info.name, info.num_pending or 0


@asynccontextmanager
async def pulling(bus: Bus, stream: str, consumer: str, *, greets: bool = False) -> AsyncGenerator["Pull"]:
    """Subscribe to what a pull of *consumer* brings, for as long as the context lasts.

    With *greets* the server says at once that it is there, also where nothing waits: the first sign of life
    comes after a question and not after `HEARTBEAT_S`.
    """
    pull = Pull(bus, stream, consumer, greets=greets)
    async with bus.subscribed(pull.inbox, pull.receive):
        yield pull


class Pull:
    """The deliveries of one consumer. Made by `pulling`."""

    def __init__(self, bus: Bus, stream: str, consumer: str, *, greets: bool = False) -> None:
        self.inbox: Final = bus.inbox()
        self._is_to_greet = greets
        self._bus = bus
        self._consumer = (stream, consumer)
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._come: deque[Message] = deque()
        self._news = anyio.Event()
        self._outstanding = 0
        self._breaks = bus.breaks

    async def receive(self, message: Message) -> None:
        """Take in what came on the inbox: another's consumer may deliver there too."""
        if message.subject == self.inbox or _consumer_of(message) == self._consumer:
            self._come.append(message)
            self._news.set()

    async def batch(self) -> list[Message]:
        """Return the deliveries that have come, in order and at least one; none is a sign of life.

        Raises:
            BusUnavailableError: the consumer or the server is gone; make a new one.
        """
        await self._refill()
        if not self._come:
            await self._wait()
        deliveries: list[Message] = []
        while self._come:
            message = self._come[0]
            if message.subject == self.inbox:
                if deliveries:
                    break  # They go first: what it says may end the pull.
                self._heed(message)
            else:
                deliveries.append(message)
            self._come.popleft()
        self._outstanding -= len(deliveries)
        return deliveries

    def _heed(self, message: Message) -> None:
        """Take in what the server says of the pull itself."""
        status = message.headers.get("Status")
        if status in _TIMED_OUT:
            pending = message.headers.get("Nats-Pending-Messages", "")
            self._outstanding -= int(pending) if pending.isdecimal() else self._outstanding
        elif status != _ALIVE:
            raise BusUnavailableError(f"pull ended: {status} {message.headers.get('Description', '')}")

    async def _wait(self) -> None:
        if self._bus.breaks != self._breaks:
            raise BusUnavailableError("pull ended: the connection broke")
        self._news = anyio.Event()
        with anyio.move_on_after(DEAD_S):
            async with self._bus.awaiting("pull ended"):
                await self._news.wait()
            return
        raise BusUnavailableError(f"pull ended: no message for {DEAD_S} s")

    async def _refill(self) -> None:
        if self._outstanding > BATCH // 2:
            return
        more = 1 if self._is_to_greet else BATCH - self._outstanding
        ask: dict[str, int] = {"batch": more}
        if self._is_to_greet:
            ask["no_wait"] = True
            self._is_to_greet = False
        else:
            ask |= {"expires": int(EXPIRES_S * 1e9), "idle_heartbeat": int(HEARTBEAT_S * 1e9)}
        await self._bus.send(self._next, msgspec.json.encode(ask), reply=self.inbox)
        self._outstanding += more


def _consumer_of(message: Message) -> tuple[str, str] | None:
    """Return stream and consumer of a delivery; None: it is none."""
    try:
        return message.metadata.stream, message.metadata.consumer
    except (NotJSMessageError, ValueError, OverflowError, OSError):
        return None
