from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sunk_events.subscription.intake import Held, Intake

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Delivery:
    subject: str
    place: tuple[int, datetime]
    delivered: int = 1


def delivery(number: int, node: str = "n1") -> Delivery:
    return Delivery(f"sunk.ev.c1.slurm.node.{node}.drained", (number, NOW.replace(microsecond=number)))


def taken(intake: Intake[Delivery]) -> Held[Delivery]:
    held = intake.take()
    assert held is not None
    return held


def test_a_delivery_that_comes_again_is_the_one_to_acknowledge_and_takes_no_room() -> None:
    intake = Intake[Delivery](most=2, remembered=2)
    intake.add(delivery(1))
    held = taken(intake)
    intake.add(again := replace(delivery(1), delivered=2))

    assert (intake.room, intake.take(), held.delivery) == (1, None, again)
    intake.done(held)
    assert (intake.room, intake.take(), intake.deliveries) == (2, None, [])


def test_what_failed_is_before_what_came_after_it_and_holds_up_no_others() -> None:
    intake = Intake[Delivery](most=9, remembered=9)
    for one in (delivery(1), delivery(2), delivery(3, "n2")):
        intake.add(one)
    first = taken(intake)
    other = taken(intake)
    assert (other.delivery, intake.take()) == (delivery(3, "n2"), None)

    intake.put_back(first)
    assert taken(intake) is first
    intake.done(first)
    assert taken(intake).delivery == delivery(2)


def test_what_was_done_takes_room_until_all_before_it_is_done_too() -> None:
    intake = Intake[Delivery](most=3, remembered=3)
    for one in (delivery(1), delivery(2, "n2")):
        intake.add(one)
    first, second = taken(intake), taken(intake)

    intake.done(second)
    assert intake.room == 1
    intake.done(first)
    assert intake.room == 3


def test_who_holds_up_others_is_known() -> None:
    intake = Intake[Delivery](most=3, remembered=3)
    for one in (delivery(1), delivery(2)):
        intake.add(one)
    assert intake.holder is None

    held = taken(intake)
    held.tries = 1
    assert (intake.holder, intake.is_held_up) == (held, False)  # Its own entity's facts would wait anyway.
    intake.add(delivery(3, "n2"))
    assert intake.is_held_up
    intake.done(taken(intake))
    assert (intake.room, intake.is_held_up) == (0, True)
    intake.done(held)
    assert (intake.holder, intake.room) == (None, 1)


def test_what_was_done_is_only_to_be_acknowledged_when_it_comes_again() -> None:
    intake = Intake[Delivery](most=3, remembered=3)
    for one in (delivery(1), delivery(2, "n2")):
        assert intake.add(one)
    first, second = taken(intake), taken(intake)
    intake.done(second)

    intake.begin()
    assert (intake.add(delivery(1)), intake.add(delivery(2, "n2")), intake.room) == (True, False, 1)
    assert intake.take() is None
    intake.done(first)
    assert intake.room == 3


class Server:
    """A consumer that forgets, when a session begins, what was acknowledged after the oldest that was not."""

    def __init__(self, facts: int) -> None:
        self.acknowledged = [False] * facts
        self.next = 0
        self.newest = 0

    @property
    def floor(self) -> int:
        return next((at for at, is_done in enumerate(self.acknowledged) if not is_done), self.newest)

    def begin(self) -> None:
        self.next = self.floor
        self.acknowledged[self.next :] = [False] * len(self.acknowledged[self.next :])

    def deliver(self, most: int) -> range:
        begin, self.next = self.next, min(self.next + most, len(self.acknowledged))
        self.newest = max(self.newest, self.next)
        return range(begin, self.next)


@given(some.integers(1, 6), some.data())
def test_whatever_fails_and_breaks_all_is_done_once_and_a_restart_would_repeat_little(
    most: int, data: some.DataObject
) -> None:
    nodes = data.draw(some.lists(some.sampled_from(["n1", "n2", "n3"]), max_size=30))
    breaks, fails = (iter(data.draw(some.lists(some.booleans(), max_size=60))) for _ in range(2))
    intake, server = Intake[Delivery](most=most, remembered=most), Server(len(nodes))
    session, done = 0, list[int]()
    for _ in range(200):
        if next(breaks, False):
            session += 1
            server.begin()
            intake.begin()
        for at in server.deliver(intake.room):
            if not intake.add(replace(delivery(at, nodes[at]), delivered=session)):
                server.acknowledged[at] = True
        if held := intake.take():
            if next(fails, False):
                intake.put_back(held)
                continue
            intake.done(held)
            done.append(at := held.delivery.place[0])
            server.acknowledged[at] |= (
                held.delivery.delivered == session
            )  # Over the session that ended: lost.
        assert server.newest - server.floor <= most

    assert sorted(done) == list(range(len(nodes)))
    for node in set(nodes):
        assert (mine := [at for at in done if nodes[at] == node]) == sorted(mine)


def test_a_consumer_that_was_removed_begins_with_the_oldest_that_is_not_done() -> None:
    intake = Intake[Delivery](most=9, remembered=9)
    assert intake.since is None
    for one in (delivery(1), delivery(2, "n2")):
        intake.add(one)
    first, second = taken(intake), taken(intake)

    intake.done(second)
    assert intake.since == delivery(1).place[1]
    intake.done(first)
    assert intake.since == delivery(2).place[1]


def test_no_more_ids_are_remembered_than_may_be() -> None:
    intake = Intake[Delivery](most=1, remembered=2)
    for fact in ("a", "b", "c"):
        intake.remember(fact)

    assert [intake.is_repeated(fact) for fact in ("a", "b", "c")] == [False, True, True]


@given(some.lists(some.sampled_from(["n1", "n2"]), max_size=20), some.lists(some.booleans(), max_size=40))
def test_each_entity_is_handled_in_order_whatever_fails(nodes: list[str], fails: list[bool]) -> None:
    intake, done, failures = Intake[Delivery](most=20, remembered=20), list[Delivery](), iter(fails)
    for number, node in enumerate(nodes):
        intake.add(delivery(number, node))
    while held := intake.take():
        if next(failures, False):
            intake.put_back(held)
        else:
            intake.done(held)
            done.append(held.delivery)

    for node in ("n1", "n2"):
        assert [each for each in done if f".{node}." in each.subject] == [
            delivery(number, name) for number, name in enumerate(nodes) if name == node
        ]
    assert intake.room == 20


def test_what_is_here_twice_is_not_taken_twice() -> None:
    intake = Intake[Delivery](most=2, remembered=2)
    intake.add(delivery(1))
    intake.add(delivery(1))
    intake.done(taken(intake))

    with pytest.raises(AssertionError):
        taken(intake)
