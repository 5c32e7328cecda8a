"""Whether what a process uses stays what it was, from samples over time. Pure."""

from collections.abc import Sequence
from statistics import median
from typing import Final

QUARTER: Final = 4


def growth(samples: Sequence[float]) -> tuple[float, float]:
    """Return the median of the first quarter of *samples* and that of the last."""
    size = max(1, len(samples) // QUARTER)
    return median(samples[:size]), median(samples[-size:])


def rising(what: str, samples: Sequence[float], *, share: float, slack: float) -> list[str]:
    """Return a sentence if the last quarter lies above the first by more than *share* of it and *slack*."""
    first, last = growth(samples)
    if last <= first * (1 + share) + slack:
        return []
    return [f"{what} rose from {first:.0f} to {last:.0f}"]
