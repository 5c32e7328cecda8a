from sunk_runtime.http_door import Door


class Caller:
    """A connection that knows whether it was cut."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.is_cut = False

    def cut(self) -> None:
        self.is_cut = True
        self._door.leave(self)


def entered(door: Door, address: str, count: int) -> list[Caller]:
    callers = [Caller(door) for _ in range(count)]
    for caller in callers:
        assert door.enter(caller, address)
    return callers


def cut(callers: list[Caller]) -> list[bool]:
    return [caller.is_cut for caller in callers]


def test_of_an_address_with_too_many_the_one_that_has_waited_for_longest_gives_way() -> None:
    door = Door(100, 3)
    other = entered(door, "b", 1)
    callers = entered(door, "a", 3)
    door.begin(callers[0])
    door.begin(callers[1])
    door.wait(callers[0])  # Its request is answered: it waits for less long than the third.

    entered(door, "a", 1)

    assert (cut(callers), cut(other)) == ([False, False, True], [False])
    assert len(door) == 4


def test_who_is_answered_never_gives_way() -> None:
    door = Door(3, 2)
    callers = entered(door, "a", 2) + entered(door, "b", 1)
    for caller in callers:
        door.begin(caller)

    assert not door.enter(Caller(door), "a")
    assert not door.enter(Caller(door), "c")
    assert not any(cut(callers))


def test_where_all_are_too_many_the_one_that_has_waited_for_longest_gives_way_whosever_it_is() -> None:
    door = Door(4, 3)
    callers = entered(door, "a", 3) + entered(door, "b", 1)
    door.begin(callers[0])

    entered(door, "c", 2)

    assert cut(callers) == [False, True, True, False]


def test_an_address_whose_connections_are_gone_may_have_as_many_again() -> None:
    door = Door(10, 2)
    for _ in range(3):
        for caller in entered(door, "a", 2):
            door.begin(caller)
            door.leave(caller)
            door.leave(caller)

    assert len(door) == 0
