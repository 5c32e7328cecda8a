"""How often to ask Slurm, and whether to trust an answer that lacks what was known.

"Unknown is never absent": a slurmctld that has lost its state, or a slurmrestd that reads another one,
answers with success and an empty list. That counts only after it has lasted for a while.
"""

from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from sunk_runtime.losses import is_mass_loss

FEW: Final = 3
BURST: Final = 3
"""So many answers' cost may be saved up."""
FEW_PERCENT: Final = 10
"""Up to three, or a tenth, may go at once: a rack is removed, a batch of old jobs is forgotten."""


def pause(cost_s: float, *, poll_s: float, poll_max_s: float, share: float) -> float:
    """Return the pause after an answer that took *cost_s*, so that polling uses *share* of a core.

    At most *poll_max_s*: an answer may have been slow for other reasons than its size.
    """
    return max(poll_s, min(cost_s / share, poll_max_s))


class PollBudget(msgspec.Struct, frozen=True):
    """The processor time that polling may use.

    It is saved up while nothing is asked, so that a change after a quiet time is seen at once.
    """

    credit_s: float = 0.0
    """Seconds of a core. Below 0, polling pauses until it is 0 again."""
    counted: float = 0.0
    """The monotonic time of that credit."""

    def spent(self, cost_s: float, now: float, share: float) -> "PollBudget":
        """Return the budget after an answer that took *cost_s* and was there at *now*."""
        saved_s = min(self.credit_s + (now - self.counted) * share, BURST * cost_s)
        return PollBudget(max(saved_s - cost_s, -cost_s), now)


class LossGuard(msgspec.Struct, frozen=True):
    """Since when answers lack too much to be trusted; None: they can be trusted."""

    since: float | None = None
    unconfirmed: frozenset[str] = frozenset()
    """What only answers that were not trusted have named: it is not counted among what was known.

    An answer of another cluster names that cluster's own nodes and jobs: with those counted, what it lacks
    of ours would be too few to be missed.
    """

    def after(self, known: AbstractSet[str], listed: AbstractSet[str], now: float) -> "LossGuard":
        """Return the doubt after an answer.

        Args:
            known: What was known before it, without what is `unconfirmed`.
            listed: What the answer names.
            now: The monotonic time.
        """
        missing = len(known - listed)
        is_all = bool(known) and missing == len(known)
        if not is_all and not is_mass_loss(missing, len(known), percent=FEW_PERCENT, few=FEW):
            return LossGuard(unconfirmed=self.unconfirmed - listed)
        return LossGuard(now if self.since is None else self.since, self.unconfirmed | (listed - known))

    def is_over(self, now: float, doubt_s: float) -> bool:
        """Whether what is missing may be looked for, one by one."""
        return self.since is None or now - self.since >= doubt_s
