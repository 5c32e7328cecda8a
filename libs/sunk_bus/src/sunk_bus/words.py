"""Values as people read them: ages, sizes, moments, and text that a terminal may be trusted with."""

import re
from datetime import UTC, datetime
from typing import Final

from sunk_runtime.errors import ConfigError

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_STEPS: Final = ((86400 * 2, 86400, "d"), (3600 * 2, 3600, "h"), (120, 60, "m"))
_KIB: Final = 1024


def seconds(typed: str) -> float:
    """Return the seconds in ``90s``, ``10m``, ``1h30m`` or ``2d``.

    Raises:
        ConfigError: it is none of these.
    """
    parts = _DURATION.findall(typed)
    if not parts or "".join(number + unit for number, unit in parts) != typed:
        raise ConfigError(f"{typed!r} is not a duration: write 90s, 10m, 1h30m or 2d")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def age(since: datetime, now: datetime) -> str:
    """Return how long ago *since* was, in the unit that fits."""
    elapsed = max(0.0, (now - since).total_seconds())
    for least, unit, letter in _STEPS:
        if elapsed >= least:
            return f"{elapsed // unit:.0f}{letter}"
    return f"{elapsed:.0f}s"


def size(count: int) -> str:
    """Return *count* bytes in the unit that fits."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < _KIB:
            return f"{value:.0f} {unit}"
        value /= _KIB
    return f"{value:.1f} GiB"


def clock(moment: datetime) -> str:
    """Return *moment* in UTC, to the millisecond."""
    return moment.astimezone(UTC).strftime("%m-%d %H:%M:%S.%f")[:-3]


def safe(text: str) -> str:
    """Return *text* on one line and without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
