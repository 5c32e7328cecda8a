import math

import pytest

from sunk_events.codec import UndecodableError
from sunk_runtime.errors import ConflictError, PermanentError, TransientError
from sunk_runtime.verdicts import LONGEST_S, MAX_DELIVER, Again, Dead, Verdict, back_off_s, verdict_on


@pytest.mark.parametrize(
    ("error", "delivered", "verdict"),
    [
        pytest.param(TransientError("down", retry_after_s=2), 1, Again(2, "down"), id="later"),
        pytest.param(TransientError("down", retry_after_s=2), 3, Again(8, "down"), id="later each time"),
        pytest.param(ConflictError("stale"), 1, Again(0.1, "stale"), id="soon, on a fresh view"),
        pytest.param(KeyError("x"), 1, Again(1, "KeyError: 'x'"), id="a bug decides nothing"),
        pytest.param(PermanentError("no"), 1, Dead("no"), id="no retry can help"),
        pytest.param(UndecodableError("what"), 1, Dead("what"), id="cannot be read"),
        pytest.param(
            TransientError("down"),
            MAX_DELIVER,
            Dead(f"delivered {MAX_DELIVER} times: down"),
            id="none helped",
        ),
    ],
)
def test_how_handling_went_decides_what_becomes_of_a_delivery(
    error: Exception, delivered: int, verdict: Verdict
) -> None:
    assert verdict_on(error, delivered) == verdict


@pytest.mark.parametrize(
    ("asked_s", "delivered", "wait_s"),
    [
        pytest.param(1, 6, LONGEST_S, id="grows to a bound"),
        pytest.param(1, 10**9, LONGEST_S, id="whatever the count"),
        pytest.param(120, 2, 120, id="who asks for more is given it"),
        pytest.param(0, 5, 0, id="at once stays at once"),
        pytest.param(-1, 1, 0, id="never in the past"),
        pytest.param(1e30, 1, 3600, id="within an hour"),
        pytest.param(math.inf, 1, LONGEST_S, id="infinite"),
        pytest.param(math.nan, 1, LONGEST_S, id="no number"),
    ],
)
def test_the_wait_is_always_one_that_the_server_takes(asked_s: float, delivered: int, wait_s: float) -> None:
    assert back_off_s(asked_s, delivered) == wait_s


def test_trying_goes_on_for_longer_than_slurm_takes_to_restart() -> None:
    assert sum(back_off_s(1.0, delivered) for delivered in range(1, MAX_DELIVER)) > 5 * 60
