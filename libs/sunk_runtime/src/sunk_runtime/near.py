"""Names that are nearly the one that was asked for, at a cost that no user's names can raise. Pure."""

from bisect import bisect_left
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

COMPARED_MAX: Final = 120
"""Those next to it in the order of names. A comparison costs up to some tenths of a millisecond."""
COMPARED_CHARS: Final = 40
NAME_CHARS: Final = 63
"""No longer name is compared: few names are so long, and none is mistyped by hand."""


def compared(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return those of *known* that *name* is compared with."""
    if len(name) > NAME_CHARS:
        return ()
    found = sorted({one for one in known if len(one) <= NAME_CHARS})
    middle = bisect_left(found, name)
    return tuple(found[max(0, middle - COMPARED_MAX // 2) : middle + COMPARED_MAX // 2])


def near(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return up to three of *known* that are nearly *name*, the nearest first."""
    by_start = {one[:COMPARED_CHARS]: one for one in reversed(compared(name, known))}
    return tuple(by_start[one] for one in get_close_matches(name[:COMPARED_CHARS], by_start))
