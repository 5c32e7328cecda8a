from hypothesis import given
from hypothesis import strategies as some

from sunk_events.lanes import Lanes


@given(some.lists(some.one_of(some.sampled_from(["a", "b", "c"]), some.integers(0, 3))))
def test_within_a_key_first_in_is_first_out_and_never_two_are_taken(steps: list[str | int]) -> None:
    lanes = Lanes[int]()
    added: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    taken: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    busy: list[str] = []

    def take() -> bool:
        found = lanes.take()
        if found is None:
            return False
        key, item = found
        assert key not in busy
        taken[key].append(item)
        busy.append(key)
        return True

    for number, step in enumerate(steps):
        if isinstance(step, str):  # One comes.
            lanes.add(step, number)
            added[step].append(number)
        elif step and busy:  # One of those that were taken is done.
            lanes.give_back(busy.pop(step % len(busy)))
        else:
            take()
    while busy or take():
        lanes.give_back(busy.pop())

    assert taken == added
    assert (len(lanes), lanes.ready) == (0, 0)


def test_a_key_with_much_to_do_does_not_hold_up_the_others() -> None:
    lanes = Lanes[int]()
    for number in range(3):
        lanes.add("busy", number)
    lanes.add("other", 9)
    order: list[tuple[str, int]] = []
    while taken := lanes.take():
        order.append(taken)
        lanes.give_back(taken[0])

    assert order == [("busy", 0), ("other", 9), ("busy", 1), ("busy", 2)]
