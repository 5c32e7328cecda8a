"""How often callers may ask."""

from sunk_runtime.call_rates import CallRates


def test_a_caller_has_a_burst_and_then_a_rate_and_others_have_their_own() -> None:
    rates = CallRates(2.0, 3)

    assert [rates.wait_s("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert rates.wait_s("b", 0.0) == 0.0
    assert rates.wait_s("a", 0.5) == 0.0
    assert rates.wait_s("a", 0.5) == 0.5
    assert rates.wait_s("a", 1000.0) == 0.0


def test_rates_remember_no_more_callers_than_they_may() -> None:
    rates = CallRates(1.0, 1, callers_max=10)
    rates.wait_s("first", 0.0)
    assert rates.wait_s("first", 0.0) > 0
    for number in range(10):
        rates.wait_s(f"user-{number}", 0.0)

    assert rates.wait_s("first", 0.0) == 0
