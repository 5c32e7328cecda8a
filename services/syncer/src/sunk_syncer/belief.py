"""How often to ask Slurm, and whether to believe an answer that lacks what was known.

"Unknown is never absent": slurmctld that has lost its state, or a slurmrestd that reads another one,
answers with success and an empty list. Nothing is concluded from that before it has lasted.
"""

from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

FEW: Final = 3
FEW_SHARE: Final = 0.1
"""Up to three, or a tenth, may go at once: a rack is removed, a batch of old jobs is forgotten."""


def pause(cost_s: float, *, poll_s: float, poll_max_s: float, share: float) -> float:
    """Return how long to rest after an answer that took *cost_s*, so that asking costs *share* of a core.

    At most *poll_max_s*: an answer may have been slow for other reasons than its size.
    """
    return max(poll_s, min(cost_s / share, poll_max_s))


class Doubt(msgspec.Struct, frozen=True):
    """Since when answers lack too much to be believed; None: they do not."""

    since: float | None = None

    def after(self, known: AbstractSet[str], missing: AbstractSet[str], now: float) -> "Doubt":
        """Return the doubt after an answer that lacks *missing* of what was *known*; *now* is monotonic."""
        if len(missing) <= max(FEW, len(known) * FEW_SHARE):
            is_all = bool(known) and len(missing) == len(known) and len(known) > 1
            if not is_all:
                return Doubt()
        return Doubt(now if self.since is None else self.since)

    def is_over(self, now: float, doubt_s: float) -> bool:
        """Whether what is missing may be looked for, one by one."""
        return self.since is None or now - self.since >= doubt_s
