"""How long what failed waits."""

import pytest

from sunk_runtime.backoff import doubled


@pytest.mark.parametrize(
    ("times", "wait_s"), [(-1, 0.25), (0, 0.5), (1, 1.0), (2, 2.0), (5, 15.0), (10**6, 15.0)]
)
def test_it_waits_twice_as_long_each_time_and_never_longer_than_said(times: int, wait_s: float) -> None:
    assert doubled(0.5, times, 15.0) == wait_s
