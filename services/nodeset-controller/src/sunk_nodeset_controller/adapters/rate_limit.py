"""Rest: no object is written more often than once a second, however fast it changes."""

import time
from collections.abc import Callable
from typing import Final

RATE_LIMIT_S: Final = 1.0


class RateLimit:
    """Remembers which objects were written just now."""

    def __init__(self, rest_s: float = RATE_LIMIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest_s = rest_s
        self._clock = clock
        self._until: dict[str, float] = {}
        """In the order in which they end."""

    def left_s(self, key: str) -> float:
        """Return for how many seconds *key* is not to be written yet; 0 if it may be."""
        return max(0.0, self._until.get(key, 0.0) - self._clock())

    def begin(self, key: str) -> None:
        """Note that *key* is being written."""
        now = self._clock()
        while self._until and (first := next(iter(self._until))) and self._until[first] <= now:
            del self._until[first]
        self._until.pop(key, None)
        self._until[key] = now + self._rest_s
