"""How far our clock is from the server's: deadlines and times of facts are by both."""

import logging
from datetime import UTC, datetime
from typing import Final

import msgspec

from sunk_runtime.metrics import CLOCK_SKEW

log = logging.getLogger(__name__)

SKEW_MAX_S: Final = 5.0
"""More is told: the lock's deadlines are seconds long."""


class ClockWatch:
    """Remembers how far we are off, and says so once each time that it begins."""

    def __init__(self) -> None:
        self.skew_s = 0.0
        """Seconds that the server is ahead of us, as far as it can be known."""
        self._is_off = False

    def note(self, told: str, asked: datetime, answered: datetime | None = None) -> None:
        """Take a time that the server *told*, somewhen between when we *asked* and it *answered*."""
        try:
            server = msgspec.convert(told, datetime)
        except msgspec.ValidationError:
            return
        self.skew_s = skew_s(server, asked, answered or datetime.now(UTC))
        CLOCK_SKEW.set(self.skew_s)
        is_off = abs(self.skew_s) > SKEW_MAX_S
        if is_off and not self._is_off:
            log.warning(
                "clock is off", extra={"skew_s": round(self.skew_s, 1), "do": "synchronise it (NTP) on both"}
            )
        elif self._is_off and not is_off:
            log.info("clock is right again")
        self._is_off = is_off


def skew_s(server: datetime, asked: datetime, answered: datetime) -> float:
    """Return by how much *server* is certainly outside of *asked* to *answered*; 0 within."""
    if server < asked:
        return (server - asked).total_seconds()
    return max(0.0, (server - answered).total_seconds())
