"""What time it is, and how far clocks are off: ours from the server's, and those of others from ours.

What must stay true: a clock that is off is said once when it begins and once when it ends, with whose it is,
and never stops what does not depend upon it.
"""

import logging
from datetime import UTC, datetime
from typing import Final

import msgspec

from sunk_runtime.metrics import CLOCK_SKEW

log = logging.getLogger(__name__)

SKEW_MAX_S: Final = 5.0
"""More is told: the lock's deadlines are seconds long."""
WHAT_TO_DO: Final = "synchronise it (NTP)"


def now() -> datetime:
    """Return the time, for shells; pure code is given it."""
    return datetime.now(UTC)


class Clocks:
    """Remembers whose clock is off, and says so once each time that it begins."""

    def __init__(self, max_s: float = SKEW_MAX_S) -> None:
        self._max_s = max_s
        self._off: set[str] = set()

    def note(self, whose: str, skew_s: float) -> bool:
        """Take by how many seconds a clock is ahead, and return whether that is too many."""
        is_off = abs(skew_s) > self._max_s
        if is_off and whose not in self._off:
            self._off.add(whose)
            extra = {"whose": whose, "skew_s": round(skew_s, 1), "do": WHAT_TO_DO}
            log.warning("clock is off", extra=extra)
        elif not is_off and whose in self._off:
            self._off.discard(whose)
            log.info("clock is right again", extra={"whose": whose})
        return is_off


class ServerClock:
    """Remembers how far the server's clock is from ours."""

    def __init__(self) -> None:
        self.skew_s = 0.0
        """Seconds that the server is ahead of us, as far as it can be known."""
        self._clocks = Clocks()

    def note(self, server_time: str, requested_at: datetime, answered: datetime | None = None) -> None:
        """Take the *server_time* of an answer: it is from between *requested_at* and *answered*."""
        try:
            server = msgspec.convert(server_time, datetime)
        except msgspec.ValidationError:
            return
        self.skew_s = skew_s(server, requested_at, answered or now())
        CLOCK_SKEW.set(self.skew_s)
        self._clocks.note("NATS, or this service", self.skew_s)


def skew_s(server: datetime, requested_at: datetime, answered: datetime) -> float:
    """Return by how much *server* is certainly outside of *requested_at* to *answered*; 0 within."""
    if server < requested_at:
        return (server - requested_at).total_seconds()
    return max(0.0, (server - answered).total_seconds())
