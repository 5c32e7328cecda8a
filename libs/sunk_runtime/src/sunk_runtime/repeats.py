"""Lines that thousands of keys would log at once, for one reason: told once, with how many there were."""

from typing import Final

EVERY_S: Final = 10.0
_TEXTS_MAX: Final = 256
"""Beyond that many reasons all are forgotten, and told anew."""


class Repeats:
    """Which texts were told lately, and how often each was left out since."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._told: dict[str, tuple[float, int]] = {}

    def left_out(self, text: str, now_s: float) -> int | None:
        """Return how often *text* was left out since it was last told, now that it is told again.

        None: it was told less than *every_s* ago, and is left out.
        """
        told_s, left_out = self._told.get(text, (now_s - self._every_s, 0))
        if now_s - told_s < self._every_s:
            self._told[text] = told_s, left_out + 1
            return None
        if len(self._told) >= _TEXTS_MAX:
            self._told.clear()
        self._told[text] = now_s, 0
        return left_out
