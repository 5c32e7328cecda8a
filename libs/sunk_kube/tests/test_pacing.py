from hypothesis import given
from hypothesis import strategies as st

from sunk_kube.pacing import QUIET_LAST_S, Pace


def test_a_burst_goes_at_once_and_what_follows_keeps_the_pace() -> None:
    pace = Pace(rate=10, burst=3)

    assert [round(pace.turn_s(100.0), 3) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]


def test_after_a_rest_there_is_a_burst_again() -> None:
    pace = Pace(rate=10, burst=3)
    for _ in range(5):
        pace.turn_s(100.0)

    assert [round(pace.turn_s(200.0), 3) for _ in range(4)] == [0, 0, 0, 0.1]


def test_nobody_goes_while_the_server_asks_for_quiet() -> None:
    pace = Pace(rate=10, burst=3)
    pace.hold(100.0, 7.0)
    pace.hold(100.0, 2.0)

    assert [pace.turn_s(now) for now in (100.0, 105.0, 107.0)] == [7.0, 2.0, 0.0]


def test_nobody_waits_for_longer_than_half_a_minute_for_quiet_asked_once() -> None:
    pace = Pace(rate=10, burst=3)
    pace.hold(100.0, 3600.0)

    assert pace.turn_s(100.0) == QUIET_LAST_S


@given(st.lists(st.floats(0, 5), max_size=50), st.integers(1, 5), st.integers(1, 20))
def test_no_time_sees_more_calls_than_allowed(pauses: list[float], burst: int, rate: int) -> None:
    pace, now, made = Pace(rate=rate, burst=burst), 0.0, list[float]()
    for pause in pauses:
        now += pause
        made.append(now + pace.turn_s(now))

    for first, begin in enumerate(made):
        for last in range(first, len(made)):
            assert last - first + 1 <= burst + rate * (made[last] - begin) + 1e-6
