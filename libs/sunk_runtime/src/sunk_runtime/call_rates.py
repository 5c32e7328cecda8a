"""How many questions a caller may ask: a bucket of tokens for each. Pure; the caller brings the time."""

from collections import OrderedDict
from typing import Final

CALLERS_MAX: Final = 4096
"""Remembered at once. One that is forgotten begins with a full bucket, as one that was quiet for long has."""


class CallRates:
    """Tokens of each caller."""

    def __init__(self, rate_per_s: float, burst: int, callers_max: int = CALLERS_MAX) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._callers_max = callers_max
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens, and when they were counted; the caller that has been quiet for longest first."""

    def wait_s(self, caller: str, now: float) -> float:
        """Take a token and return 0, or return how long it is until there is one."""
        tokens, counted = self._left.pop(caller, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + max(0.0, now - counted) * self._rate_per_s)
        wait_s = 0.0 if tokens >= 1 else (1 - tokens) / self._rate_per_s
        self._left[caller] = (tokens - 1 if not wait_s else tokens, now)
        while len(self._left) > self._callers_max:
            self._left.popitem(last=False)
        return wait_s
