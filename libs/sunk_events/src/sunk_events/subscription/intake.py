"""What was delivered and is not done yet, and which facts were done already. No I/O.

What must stay true: of one entity one fact at a time is taken, in the order in which they first came; what
was done is not taken again; from the oldest fact that is not done to the newest there are no more than may
be here, for a restart repeats all of these; what is remembered is bounded.
"""

from collections import OrderedDict
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from sunk_events.lanes import Lanes


class Delivery(Protocol):
    """One delivery of a message of the stream."""

    @property
    def subject(self) -> str:
        """Where it was published."""
        ...

    @property
    def place(self) -> tuple[int, datetime]:
        """Its number in the stream and when it was stored there: the same each time it comes."""
        ...


D = TypeVar("D", bound=Delivery)
T = TypeVar("T")
Place = tuple[int, datetime]


class Remembered(Generic[T]):
    """The newest of what was noted, as many as may be."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._noted: OrderedDict[T, None] = OrderedDict()

    def __contains__(self, one: T) -> bool:
        return one in self._noted

    def add(self, one: T) -> None:
        """Note one, and drop the oldest that is too many."""
        self._noted[one] = None
        if len(self._noted) > self._most:
            self._noted.popitem(last=False)


class Held(Generic[D]):
    """A fact that is here."""

    def __init__(self, delivery: D) -> None:
        self.delivery = delivery
        """The newest of its deliveries: the one to acknowledge."""
        self.tries = 0
        self.since: datetime | None = None
        """When it was handled for the first time."""

    @property
    def entity(self) -> str:
        """What the fact is about, as its subject spells it."""
        return self.delivery.subject.rpartition(".")[0]


class Intake(Generic[D]):
    """The facts that are here, by entity."""

    def __init__(self, *, most: int, remembered: int) -> None:
        self._most = most
        self._held: dict[Place, Held[D]] = {}
        self._lanes = Lanes[Held[D]]()
        self._span: dict[Place, None] = {}
        """What this session delivered, without the oldest as far as all of them are done."""
        self._done = Remembered[Place](remembered)
        self._handled = Remembered[str](remembered)
        self._newest: datetime | None = None

    @property
    def room(self) -> int:
        """How many more may come."""
        return max(0, self._most - len(self._span.keys() | self._held.keys()))

    @property
    def holder(self) -> Held[D] | None:
        """The oldest fact that is handled, or was and failed; None: there is none."""
        return next((held for held in self._held.values() if held.tries), None)

    @property
    def is_held_up(self) -> bool:
        """Whether others wait for what is handled: here, or because nothing more may come."""
        return self._lanes.ready > 0 or not self.room

    @property
    def deliveries(self) -> list[D]:
        """The deliveries that wait for their acknowledgement."""
        return [held.delivery for held in self._held.values()]

    @property
    def since(self) -> datetime | None:
        """When the oldest fact that is not done was stored, else the newest that came; None: none came."""
        return min((stored for _, stored in self._held), default=self._newest)

    def begin(self) -> None:
        """Expect all deliveries from the oldest that is not done: a new session repeats them."""
        self._span.clear()

    def add(self, delivery: D) -> bool:
        """Take in what came; return whether it is not done yet."""
        self._span[delivery.place] = None
        is_done = delivery.place in self._done
        if held := self._held.get(delivery.place):
            held.delivery = delivery
        elif not is_done:
            held = self._held[delivery.place] = Held(delivery)
            self._newest = delivery.place[1]
            self._lanes.add(held.entity, held)
        self._advance()
        return not is_done

    def take(self) -> Held[D] | None:
        """Return the next fact to handle; None: there is none whose turn it is."""
        taken = self._lanes.take()
        return taken and taken[1]

    def put_back(self, held: Held[D]) -> None:
        """Offer once more what was taken, before what came after it for the same entity."""
        self._lanes.put_back(held.entity)

    def done(self, held: Held[D]) -> None:
        """Let go of the fact, whose entity is free again."""
        del self._held[held.delivery.place]
        self._lanes.give_back(held.entity)
        self._done.add(held.delivery.place)
        self._advance()

    def is_repeated(self, fact: str) -> bool:
        """Whether the fact of this id was handled already, as far as is remembered."""
        return fact in self._handled

    def remember(self, fact: str) -> None:
        """Note the id of a fact that was handled."""
        self._handled.add(fact)

    def _advance(self) -> None:
        while self._span and (oldest := next(iter(self._span))) not in self._held:
            del self._span[oldest]
