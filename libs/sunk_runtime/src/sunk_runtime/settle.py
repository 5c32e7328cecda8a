"""A durable consumer of facts: handle each delivery, then ack, nak or term; order per entity.

What must stay true: two deliveries of one entity are never handled at once, and in order but for one that was
deferred, which comes again later; a delivery is acknowledged only after it was handled; what no retry can
help, or none helped, goes to the dead letters before it is ended; what waits here is bounded by
`MAX_ACK_PENDING` however slow the handler, and is not delivered twice for that.
"""

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any, Final, assert_never

import anyio
import anyio.lowlevel
from nats.js.api import ConsumerConfig

from sunk_events import subjects
from sunk_events.base import Event
from sunk_events.codec import UndecodableError, decode_fact
from sunk_events.lanes import Lanes
from sunk_runtime.clock import Clocks
from sunk_runtime.dead import publish_dead_letter
from sunk_runtime.errors import BusUnavailableError, SunkError, TransientError
from sunk_runtime.jetstream import Bus, Message
from sunk_runtime.metrics import EVENT_LAG, EVENTS_HELD, EVENTS_REDELIVERED, EVENTS_SETTLED
from sunk_runtime.pull import create_consumer, pulling
from sunk_runtime.tracing import span
from sunk_runtime.verdicts import BUG_S, HANDLED, Ack, Again, Dead, Verdict, back_off_s, verdict_on

log = logging.getLogger(__name__)

ACK_WAIT_S: Final = 30
"""When the server delivers again what it heard nothing of: the consumer's process died."""
KEEP_S: Final = ACK_WAIT_S / 3
"""How often the server is told that what is here is still under way."""
MAX_ACK_PENDING: Final = 1000
"""Deliveries that wait for their acknowledgement at most, so also those that are held in memory."""
HANDLE_S: Final = 300.0
"""A handler that takes longer hangs: it is cancelled and its fact delivered again."""
IN_A_ROW: Final = 64
"""Facts that one worker handles before it lets others run, when its handler never waits."""

Handle = Callable[[Event], Awaitable[None]]
_Id = tuple[int, datetime]
"""What is the same for every delivery of the same message."""
_Settle = Callable[[Message], Coroutine[Any, Any, None]]
"""One of nats-py's: `ack`, `nak`, `term`, `in_progress`."""


class _Worker:
    """What one worker is at, so that a check can tell whether it hangs."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self.scope = scope
        self.taken: tuple[str, Message] | None = None
        self.since = 0.0


class FactConsumer:
    """Reads the facts of one cluster under a durable name, for ever: one reader at a time.

    Two readers of one durable would take the deliveries from each other, and begin anew whenever one went to
    the other. Replicas of a service therefore lead before they read (`lead`), or have a durable each.

    A fact of a type that this version does not know, as a rolling upgrade brings them, goes where all go that
    cannot be read: to the dead letters, with the reason. It does so once per service, for one publish and one
    +TERM: it is never delivered again, and ending it twice stores it once. The dead letters drop their
    oldest beyond their size. There are none where the consumers of a new type are upgraded before its
    publisher.
    """

    def __init__(
        self, bus: Bus, cluster: str, durable: str, handle: Handle, *, concurrency: int = 16
    ) -> None:
        self._bus = bus
        self._cluster = cluster
        self._durable = durable
        self._handle = handle
        self._concurrency = concurrency
        self._lanes = Lanes[Message]()
        self._held: dict[_Id, Message] = {}
        self._settled: OrderedDict[_Id, _Settle] = OrderedDict()
        """How the last ones ended: a new reader begins behind the oldest that has not."""
        self._idle: deque[anyio.Event] = deque()
        self._workers: dict[_Worker, None] = {}
        self._is_consuming = False
        self._clocks = Clocks()
        self._acked = EVENTS_SETTLED.labels(durable, "ack")

    @property
    def is_consuming(self) -> bool:
        """Whether deliveries come, as far as is known."""
        return self._is_consuming

    @property
    def held(self) -> int:
        """How many deliveries are here and not settled yet."""
        return len(self._held)

    async def run(self) -> None:
        """Consume until cancelled, and then hand back what was not handled.

        After a gap the server delivers again what was not acknowledged.
        """
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(self._concurrency):
                    tasks.start_soon(self._work)
                tasks.start_soon(self._keep)
                await self._consume_again()
        finally:
            await self._hand_back()

    async def _consume_again(self) -> None:
        pause_s = 0.5
        while True:
            try:
                await self._consume()
            except TransientError as error:
                log.warning("consumer starts again", extra={"durable": self._durable, "error": str(error)})
            except SunkError as error:
                log.error("consumer not made", extra={"durable": self._durable, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
                await self._bus.provision_again()
            pause_s = 0.5 if self._is_consuming else min(pause_s * 2, 5.0)
            self._is_consuming = False
            await anyio.sleep(pause_s)

    def _config(self) -> ConsumerConfig:
        return ConsumerConfig(
            durable_name=self._durable,
            ack_wait=ACK_WAIT_S,
            max_deliver=-1,  # We count: the server would only stop, and no dead letter would say so.
            max_ack_pending=MAX_ACK_PENDING,
            filter_subject=subjects.facts(self._cluster),
        )

    async def _consume(self) -> None:
        stream = subjects.fact_stream(self._cluster)
        name, pending = await create_consumer(self._bus, stream, self._config())
        # What was under way when we went away would come after newer facts of its entity: begin behind the
        # last acknowledged one instead, in order (ADR-60, nats-server 2.14).
        await self._bus.js.reset_consumer(stream, name)
        EVENT_LAG.labels(self._durable).set(pending)
        expected = 1
        async with pulling(self._bus, stream, name, greets=True) as pull:
            while True:
                deliveries = await pull.batch()
                for delivery in deliveries:
                    if delivery.metadata.sequence.consumer != expected:
                        # A connection of ours that the server believes in yet: it took what came before.
                        raise BusUnavailableError(f"delivery {expected} went to another reader")
                    expected += 1
                self._is_consuming = True
                await self._take_in(deliveries)

    async def _take_in(self, deliveries: list[Message]) -> None:
        if not deliveries:
            return
        for delivery in deliveries:
            if delivery.metadata.num_delivered > 1:
                EVENTS_REDELIVERED.labels(self._durable).inc()
            if settle := self._settled.get(_id(delivery)):
                await self._acknowledge(
                    delivery, settle
                )  # After a gap: handled, its settlement lost or skipped.
                continue
            is_new = _id(delivery) not in self._held
            self._held[_id(delivery)] = delivery  # The newest delivery is the one to settle.
            if is_new:
                self._lanes.add(delivery.subject.rpartition(".")[0], delivery)
        EVENT_LAG.labels(self._durable).set(deliveries[-1].metadata.num_pending)
        EVENTS_HELD.labels(self._durable).set(len(self._held))
        for _ in range(min(len(self._idle), self._lanes.ready)):
            self._idle.popleft().set()

    async def _work(self) -> None:
        while True:
            worker = _Worker(anyio.CancelScope())
            self._workers[worker] = None
            try:
                with worker.scope:
                    await self._take_turns(worker)
            finally:
                self._workers.pop(worker, None)
            if worker.taken:  # The scope was cancelled: it hung.
                await self._defer(*worker.taken)

    async def _take_turns(self, worker: _Worker) -> None:
        in_a_row = 0
        while True:
            taken = self._lanes.take()
            if taken is None:
                self._idle.append(news := anyio.Event())
                await news.wait()
                continue
            worker.taken, worker.since = taken, time.monotonic()
            key, delivery = taken
            await self._settle(delivery)
            worker.taken = None
            self._lanes.give_back(key)
            in_a_row += 1
            if in_a_row % IN_A_ROW == 0:
                await anyio.lowlevel.checkpoint()

    async def _defer(self, key: str, delivery: Message) -> None:
        log.error("handler hung", extra={"subject": delivery.subject, "after_s": HANDLE_S})
        error = TransientError(f"handler took over {HANDLE_S:.0f} s")
        await self._carry_out(verdict_on(error, delivery.metadata.num_delivered), delivery)
        self._lanes.give_back(key)

    async def _settle(self, delivery: Message) -> None:
        await self._carry_out(await self._judge(delivery), delivery)

    async def _judge(self, delivery: Message) -> Verdict:
        """Handle *delivery* and return what becomes of it."""
        delivered = delivery.metadata.num_delivered
        subject = delivery.subject
        try:
            event = decode_fact(subject, delivery.data)
            # It may have happened long before it was told, but not after NATS stored it.
            ahead_s = event.time.timestamp() - delivery.metadata.timestamp.timestamp()
            self._clocks.note(event.source, max(0.0, ahead_s))
            with span("handle", type(event).__name__, subject, delivery.headers):
                await self._handle(event)
        except (SunkError, UndecodableError) as error:
            verdict = verdict_on(error, delivered)
            if isinstance(verdict, Again):
                log.warning("event deferred", extra={"subject": subject, "error": str(error)})
            return verdict
        except Exception as error:
            log.exception("event failed", extra={"subject": subject})
            return verdict_on(error, delivered)
        return HANDLED

    async def _carry_out(self, verdict: Verdict, delivery: Message) -> None:
        match verdict:
            case Ack():
                settle: _Settle = Message.ack
                self._acked.inc()
            case Again(wait_s):
                settle = partial(Message.nak, delay=wait_s)
                EVENTS_SETTLED.labels(self._durable, "again").inc()
            case Dead(reason):
                settle = await self._end(delivery, reason)
            case _:
                assert_never(verdict)
        await self._acknowledge(self._held.pop(_id(delivery), delivery), settle)
        if settle in {Message.ack, Message.term}:
            self._settled[_id(delivery)] = settle
            if len(self._settled) > 2 * MAX_ACK_PENDING:
                self._settled.popitem(last=False)

    async def _end(self, delivery: Message, reason: str) -> _Settle:
        """Keep *delivery* among the dead letters, and only then have it ended."""
        msg_id = f"{self._bus.name}:{delivery.subject}:{delivery.metadata.sequence.stream}"
        if await publish_dead_letter(self._bus, self._cluster, delivery, reason, msg_id=msg_id):
            EVENTS_SETTLED.labels(self._durable, "dead").inc()
            return Message.term
        EVENTS_SETTLED.labels(self._durable, "again").inc()
        return partial(Message.nak, delay=back_off_s(BUG_S, delivery.metadata.num_delivered))

    async def _acknowledge(self, delivery: Message, settle: _Settle) -> None:
        try:
            await self._bus.send_bare(settle(delivery))
        except TransientError as error:  # Not acknowledged is delivered again, which every handler bears.
            extra = {"subject": delivery.subject, "error": str(error)}
            log.warning("acknowledgement lost", extra=extra)

    async def _keep(self) -> None:
        """Keep the server from delivering again what waits or is handled here; free who hangs."""
        while True:
            await anyio.sleep(KEEP_S)
            for delivery in list(self._held.values()):
                await self._acknowledge(delivery, Message.in_progress)
            EVENTS_HELD.labels(self._durable).set(len(self._held))
            overdue = time.monotonic() - HANDLE_S
            for worker in self._workers:
                if worker.taken and worker.since < overdue:
                    worker.scope.cancel()

    async def _hand_back(self) -> None:
        """Give what was not settled to the next consumer, now rather than after `ACK_WAIT_S`."""
        with anyio.move_on_after(1, shield=True):
            for delivery in self._held.values():
                await self._acknowledge(delivery, Message.nak)
        self._held.clear()
        self._idle.clear()
        self._lanes = Lanes[Message]()


def _id(delivery: Message) -> _Id:
    return delivery.metadata.sequence.stream, delivery.metadata.timestamp
