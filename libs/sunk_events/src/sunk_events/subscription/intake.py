"""What was delivered and is not done yet, and which facts were done already. No I/O.

What must stay true: of one entity one fact at a time is taken, in the order in which they first came; a
delivery that comes again while it is here takes nobody's place; what is here and what is remembered is
bounded.
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


class Held(Generic[D]):
    """A fact that is here."""

    def __init__(self, delivery: D) -> None:
        self.delivery = delivery
        """The newest of its deliveries: the one to acknowledge."""
        self.tries = 0

    @property
    def entity(self) -> str:
        """What the fact is about, as its subject spells it."""
        return self.delivery.subject.rpartition(".")[0]


class Intake(Generic[D]):
    """The facts that are here, by entity."""

    def __init__(self, *, most: int, remembered: int) -> None:
        self._most = most
        self._remembered = remembered
        self._held: dict[tuple[int, datetime], Held[D]] = {}
        self._lanes = Lanes[Held[D]]()
        self._done: OrderedDict[str, None] = OrderedDict()
        self._newest: datetime | None = None

    @property
    def room(self) -> int:
        """How many more may come."""
        return max(0, self._most - len(self._held))

    @property
    def deliveries(self) -> list[D]:
        """The deliveries that wait for their acknowledgement."""
        return [held.delivery for held in self._held.values()]

    @property
    def since(self) -> datetime | None:
        """When the oldest fact that is not done was stored, else the newest that came; None: none came."""
        return min((stored for _, stored in self._held), default=self._newest)

    def add(self, delivery: D) -> None:
        """Take in what came."""
        if held := self._held.get(delivery.place):
            held.delivery = delivery
            return
        held = self._held[delivery.place] = Held(delivery)
        self._newest = delivery.place[1]
        self._lanes.add(held.entity, held)

    def take(self) -> Held[D] | None:
        """Return the next fact to handle; None: there is none whose turn it is."""
        taken = self._lanes.take()
        return taken and taken[1]

    def put_back(self, held: Held[D]) -> None:
        """Offer once more what was taken, before what came after it for the same entity."""
        self._lanes.put_back(held.entity)

    def done(self, held: Held[D]) -> None:
        """Forget the fact, whose entity is free again."""
        del self._held[held.delivery.place]
        self._lanes.give_back(held.entity)

    def is_repeated(self, fact: str) -> bool:
        """Whether the fact of this id was done already, as far as is remembered."""
        return fact in self._done

    def remember(self, fact: str) -> None:
        """Note the id of a fact that was done."""
        self._done[fact] = None
        if len(self._done) > self._remembered:
            self._done.popitem(last=False)
