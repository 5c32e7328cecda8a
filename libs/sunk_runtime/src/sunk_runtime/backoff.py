"""How long to wait before what failed is tried again; pure.

Nothing here tries anything: what failed is a key of a loop, a delivery or a view, which other news may wake
before, and some of which is remembered over a restart. Libraries that repeat a call until it succeeds would
hold its caller instead.
"""

from typing import Final

_DOUBLINGS: Final = 64
"""What failed may have failed for weeks: no float holds 2 to the power of 1024."""


def doubled(first_s: float, times: int, last_s: float) -> float:
    """Return *first_s*, doubled so many *times*, and no more than *last_s*; in seconds."""
    return min(first_s * 2.0 ** min(times, _DOUBLINGS), last_s)
