"""A durable consumer of facts: handle one delivery, then ack, nak or term; order per entity.

What must stay true: two deliveries of one entity are never handled at once, and in order but for one that
was deferred, which comes again later; a delivery is acknowledged only after it was handled; what no retry can
help, or none helped, goes to the dead letters before it is ended.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from sunk_events import subjects
from sunk_events.base import Event
from sunk_events.codec import UndecodableError, decode_event
from sunk_runtime.dead import bury
from sunk_runtime.errors import ConflictError, PermanentError, SunkError, TransientError
from sunk_runtime.jetstream import Bus, Message
from sunk_runtime.pull import create_consumer, position, pulling

log = logging.getLogger(__name__)

ACK_WAIT_S: Final = 30
MAX_DELIVER: Final = 6
AGAIN_S: Final = 1.0
"""When what met a bug, or could not be kept, is delivered again."""

Handle = Callable[[Event], Awaitable[None]]


async def settle(bus: Bus, cluster: str, message: Message, handle: Handle) -> None:
    """Handle one delivery and acknowledge it by how that went."""
    try:
        await handle(decode_event(message.data))
    except (TransientError, ConflictError) as error:
        log.warning("event deferred", extra={"subject": message.subject, "error": str(error)})
        wait_s = error.retry_after_s if isinstance(error, TransientError) else 0.1
        verdict = await _deferred(bus, cluster, message, wait_s, str(error))
    except (PermanentError, UndecodableError) as error:
        verdict = await _ended(bus, cluster, message, str(error))
    except Exception as error:
        log.exception("event failed", extra={"subject": message.subject})
        verdict = await _deferred(bus, cluster, message, AGAIN_S, f"{type(error).__name__}: {error}")
    else:
        verdict = b"+ACK"
    try:
        await bus.send(message.reply, verdict)
    except TransientError as error:  # Not acknowledged is delivered again, which every handler bears.
        log.warning("acknowledgement lost", extra={"subject": message.subject, "error": str(error)})


async def _deferred(bus: Bus, cluster: str, message: Message, wait_s: float, reason: str) -> bytes:
    """Ask for the delivery again, unless this was the last that the server makes."""
    if position(message.reply).delivered < MAX_DELIVER:
        return _nak(wait_s)
    return await _ended(bus, cluster, message, f"delivered {MAX_DELIVER} times: {reason}")


async def _ended(bus: Bus, cluster: str, message: Message, reason: str) -> bytes:
    """Keep the delivery among the dead letters, and only then have it ended."""
    at = position(message.reply)
    msg_id = f"{bus.name}:{message.subject}:{at.stream_seq}"
    return b"+TERM" if await bury(bus, cluster, message, reason, msg_id=msg_id) else _nak(AGAIN_S)


def _nak(delay_s: float) -> bytes:
    return b"-NAK " + msgspec.json.encode({"delay": int(delay_s * 1e9)})


class FactConsumer:
    """Reads the facts of one cluster under a durable name, for ever.

    A fact of a type that this version does not know, as a rolling upgrade brings them, goes where all go that
    cannot be read: to the dead letters, with the reason. It does so once per service, for one publish and one
    +TERM: it is never delivered again, and who ends it twice stores it once. The dead letters drop their
    oldest beyond their size. Who upgrades what consumes a new type before what publishes it sees none.
    """

    def __init__(
        self, bus: Bus, cluster: str, durable: str, handle: Handle, *, concurrency: int = 16
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._durable = durable
        self._handle = handle
        self._limit = anyio.CapacityLimiter(concurrency)
        self._queues: dict[str, deque[Message]] = {}

    async def run(self) -> None:
        """Consume until cancelled; after a gap the server delivers again what was not acknowledged."""
        async with anyio.create_task_group() as tasks:
            while True:
                try:
                    await self._consume(tasks)
                except TransientError as error:
                    log.warning(
                        "consumer starts again", extra={"durable": self._durable, "error": str(error)}
                    )
                except SunkError as error:
                    log.error("consumer has no stream", extra={"durable": self._durable, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
                    await self._bus.provision_again()
                await anyio.sleep(0.5)

    def _config(self) -> dict[str, Any]:
        return {
            "durable_name": self._durable,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_S * 1_000_000_000,
            "max_deliver": MAX_DELIVER,
            "max_ack_pending": 256,
            "filter_subject": subjects.facts(self._cluster),
        }

    async def _consume(self, tasks: TaskGroup) -> None:
        stream = subjects.fact_stream(self._cluster)
        name, _ = await create_consumer(self._bus, stream, self._config())
        async with pulling(self._bus, stream, name) as pull:
            while True:
                if message := await pull.next():
                    self._enqueue(tasks, message)

    def _enqueue(self, tasks: TaskGroup, message: Message) -> None:
        entity = message.subject.rpartition(".")[0]
        queue = self._queues.setdefault(entity, deque())
        queue.append(message)
        if len(queue) == 1:
            tasks.start_soon(self._drain, entity, queue)

    async def _drain(self, entity: str, queue: deque[Message]) -> None:
        try:
            while queue:
                async with self._limit:
                    await settle(self._bus, self._cluster, queue[0], self._handle)
                queue.popleft()
        finally:
            self._queues.pop(entity, None)
