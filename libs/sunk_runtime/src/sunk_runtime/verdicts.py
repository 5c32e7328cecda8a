"""What becomes of a delivery: acknowledged, asked for again later, or ended as a dead letter.

What must stay true: only what was handled is acknowledged; what may help later comes again, each time later
than before; what no retry can help, or none of `MAX_DELIVER` helped, is ended.
"""

import math
from typing import Final

import msgspec

from sunk_events.codec import UndecodableError
from sunk_runtime.backoff import doubled
from sunk_runtime.errors import ConflictError, PermanentError, TransientError

MAX_DELIVER: Final = 20
"""Deliveries of one fact: with the back-off about eight minutes: longer than a restart of Slurm."""
LONGEST_S: Final = 30.0
"""Where the back-off stops growing, unless the handler that deferred it asked for more."""
CONFLICT_S: Final = 0.1
BUG_S: Final = 1.0
_REQUESTED_MAX_S: Final = 3600.0


class Ack(msgspec.Struct, frozen=True):
    """It was handled."""


class Again(msgspec.Struct, frozen=True):
    """Deliver it again after a while."""

    wait_s: float
    reason: str


class Dead(msgspec.Struct, frozen=True):
    """Keep it among the dead letters and never deliver it again."""

    reason: str


Verdict = Ack | Again | Dead

HANDLED: Final = Ack()


def verdict_on(error: Exception, delivered: int) -> Ack | Again | Dead:
    """Return what becomes of a delivery whose handling met *error*, the *delivered*-th time."""
    match error:
        case TransientError():
            again = Again(back_off_s(error.retry_after_s, delivered), str(error))
        case ConflictError():
            again = Again(back_off_s(CONFLICT_S, delivered), str(error))
        case PermanentError() | UndecodableError():
            return Dead(str(error))
        case _:
            again = Again(back_off_s(BUG_S, delivered), f"{type(error).__name__}: {error}")
    if delivered >= MAX_DELIVER:
        return Dead(f"delivered {delivered} times: {again.reason}")
    return again


def back_off_s(requested_s: float, delivered: int) -> float:
    """Return how long to wait after the *delivered*-th time: twice as long each time, within bounds."""
    wait_s = min(max(requested_s, 0.0), _REQUESTED_MAX_S) if math.isfinite(requested_s) else LONGEST_S
    return max(wait_s, doubled(wait_s, delivered - 1, LONGEST_S))
