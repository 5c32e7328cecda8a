"""Who handles the facts that are here.

What must stay true: a fact is acknowledged only after its handler has returned; what failed is handled again.
"""

import asyncio  # Programs of other teams have no anyio.
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from sunk_events.base import Event
from sunk_events.codec import UndecodableError
from sunk_events.subscription.intake import Held, Intake
from sunk_events.subscription.session import Delivery, Session
from sunk_events.unknown import read_fact

log = logging.getLogger("sunk_events.subscriber")

ACK_WAIT_S: Final = 30
"""When the server delivers again what it heard nothing of: the program died."""
KEEP_S: Final = ACK_WAIT_S / 3
"""How often the server is told that what is here is still under way."""
LONGEST_S: Final = 30.0
"""Where the wait between two tries of a fact stops growing."""

STUCK_S: Final = 60.0
"""When it is told what holds up all else."""


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the stream that is no fact."""

    on: str
    """The NATS subject that it came on."""
    number: int
    """Its number in the stream."""
    reason: str
    payload: bytes


Handle = Callable[[Event], Awaitable[None]]
HandleUnreadable = Callable[[Unreadable], Awaitable[None]]


class Work:
    """The facts that are here, and those who handle them."""

    def __init__(self, most: int, remembered: int, handle: Handle, unreadable: HandleUnreadable) -> None:
        self._intake = Intake[Delivery](most=most, remembered=remembered)
        self._handle = handle
        self._unreadable = unreadable
        self._is_news = asyncio.Event()
        self._count_done = 0
        self.session: Session | None = None
        self.begun = ""
        """When the consumer was made, if what was before that does not count."""

    @property
    def since(self) -> str:
        """From when on a consumer that was removed must begin; empty: as if it were the first."""
        stored = self._intake.since
        return _in_nats(stored) if stored else self.begun

    def room(self) -> int:
        """Return how many more facts may come."""
        return self._intake.room

    def begin(self, session: Session) -> None:
        """Have *session* deliver from now on."""
        self.session = session
        self._intake.begin()

    async def take_in(self, deliveries: Iterable[Delivery]) -> None:
        """Take in what came, and acknowledge at once what was done already."""
        for delivery in deliveries:
            if self._intake.add(delivery):
                self._is_news.set()
            else:
                await delivery.acknowledge()

    async def take_turns(self) -> None:
        """Handle one fact after the other, for ever."""
        while True:
            held = self._intake.take()
            if held is None:
                self._is_news.clear()
                await self._is_news.wait()
                continue
            held.tries += 1
            held.since = held.since or datetime.now(UTC)
            if await self._is_done(held):
                self._intake.done(held)
                self._count_done += 1
                await held.delivery.acknowledge()
                if self.session is not None:
                    self.session.wake()
            else:
                later = min(2.0 ** (min(held.tries, 10) - 1), LONGEST_S)
                asyncio.get_running_loop().call_later(later, self._put_back, held)
            await asyncio.sleep(0)  # A handler that never waits leaves time for all else.

    def _put_back(self, held: Held[Delivery]) -> None:
        self._intake.put_back(held)
        self._is_news.set()

    async def keep(self) -> None:
        """Keep the server from delivering again what waits or is handled here."""
        while True:
            await asyncio.sleep(KEEP_S)
            for delivery in self._intake.deliveries:
                await delivery.keep()

    async def watch(self) -> None:
        """Tell what holds up all else, each time that nothing was done for so long."""
        while True:
            before = self._count_done, self._intake.holder
            await asyncio.sleep(STUCK_S)
            holder = self._intake.holder
            if holder is not None and (self._count_done, holder) == before and self._intake.is_held_up:
                text = (
                    "nothing was done for %d s: since %s, %s blocks all other facts with fact number %d "
                    "on %s, try %d. To skip a fact, catch the error and return"
                )
                since = holder.since and holder.since.isoformat(timespec="seconds")
                number = holder.delivery.place[0]
                extra = {"entity": holder.entity, "since": since, "number": number, "tries": holder.tries}
                on, tries = holder.delivery.subject, holder.tries
                log.error(text, STUCK_S, since, holder.entity, number, on, tries, extra=extra)

    async def _is_done(self, held: Held[Delivery]) -> bool:
        """Handle the fact, and return whether that is over."""
        delivery = held.delivery
        try:
            await self._hand_over(delivery)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.warning("handler gave up the fact on %s: it is delivered again", delivery.subject)
        except Exception:
            log.exception(
                "handler failed on %s, try %d: the fact is delivered again", delivery.subject, held.tries
            )
        else:
            return True
        return False

    async def _hand_over(self, delivery: Delivery) -> None:
        try:
            fact = read_fact(delivery.subject, delivery.data)
        except UndecodableError as error:
            await self._unreadable(
                Unreadable(
                    on=delivery.subject,
                    number=delivery.place[0],
                    reason=str(error),
                    payload=delivery.data,
                )
            )
            return
        if not self._intake.is_repeated(fact.id):
            await self._handle(fact)
            self._intake.remember(fact.id)


def _in_nats(stored: datetime) -> str:
    """Return a moment not after *stored*, which nats-py has rounded."""
    return (stored - timedelta(milliseconds=1)).isoformat().replace("+00:00", "Z")
