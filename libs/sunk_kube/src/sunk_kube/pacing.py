"""Pace: how fast we may call the API server, and how long we hold back when it asks us to; no I/O.

What must stay true: callers go in the order in which they asked; over any time no more than *burst* calls
plus *rate* a second are made; while the server has asked for quiet, none is.

Source: Kubernetes, API Priority and Fairness (429 with Retry-After); ITU-T I.371, the virtual scheduling
algorithm.
"""

from typing import Final

RATE: Final = 2000.0
"""Calls a second: a job that starts on a thousand nodes is four thousand. The server's own fairness is the
real bound; this one is against a mistake of ours."""
BURST: Final = 2000

QUIET_LAST_S: Final = 30.0
"""The longest that the server's wish for quiet is granted without its saying so again."""


class Pace:
    """Says to each call how long it waits for its turn. Times are of one monotonic clock, in seconds."""

    def __init__(self, rate: float = RATE, burst: int = BURST) -> None:
        self._every_s = 1 / rate
        self._ahead_s = (burst - 1) / rate
        self._next = 0.0
        """When the next call would be made, were there no burst."""
        self._quiet_until = 0.0

    def turn_s(self, now: float) -> float:
        """Take a turn and return in how many seconds it is."""
        turn = max(self._next, now)
        self._next = turn + self._every_s
        return max(turn - self._ahead_s - now, self._quiet_until - now, 0.0)

    def hold(self, now: float, quiet_s: float) -> None:
        """Let no turn be before *quiet_s* seconds have passed, or `QUIET_LAST_S` if that is less."""
        self._quiet_until = max(self._quiet_until, now + min(quiet_s, QUIET_LAST_S))
