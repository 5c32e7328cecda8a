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
