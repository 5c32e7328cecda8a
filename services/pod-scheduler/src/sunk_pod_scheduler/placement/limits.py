"""How long what is waited for may take, and the settings that decisions need."""

from datetime import datetime
from typing import Final

import msgspec

from sunk_runtime.backoff import doubled

ASK_AGAIN_S: Final = 2.0
"""When a server could not say, or a watch has not told yet what we did."""
LOOK_AGAIN_S: Final = 15.0
"""At a job that waits or runs, should the bus have missed a change."""
WAITING_FIRST_S: Final = 5.0
"""How long a job waits before its Pod says why: most start at once."""
WAITING_AGAIN_S: Final = 60.0
"""How long a Pod keeps to what it said: Slurm's reason may change at each of its turns."""
START_AGAIN_S: Final = 600.0
"""How long a Pod keeps to the start that it said Slurm expects: backfill computes it anew all the time."""
START_OFF: Final = 0.25
"""By how much of the time that is left another start may differ from the one that was said."""
START_OFF_MIN_S: Final = 300.0
"""So much it may always differ."""
START_SOON_S: Final = 60.0
"""A start that is expected within so long is not said: slurmctld says "now" of one that is overdue."""
SILENT_FIRST_S: Final = 30.0
"""How long a job runs before it is said that its script has not announced itself."""
LOST_CONFIRM_S: Final = 10.0
"""How long Slurm has to go on not knowing a job before another is submitted."""
FORGOTTEN_CONFIRM_S: Final = 60.0
"""How long a script that slurmctld may have ended as an orphan has to say so, before its job counts as ended
because slurmctld has another that came after it."""
ENDED_GRACE_S: Final = 10.0
"""How long a script has to end its job after it was told to."""
BACKOFF_LAST_S: Final = 300.0
_TRIES: Final = 1 << 16
"""So many attempts there are from one second to the next."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decisions need."""

    kill_wait_s: float = 30.0
    hooks_url: str = ""
    """Where scripts call, for people."""
    adopts_lost: bool = True
    """A Pod that runs gets another job where Slurm has lost its own; False: it is deleted after a while."""
    silent_s: float = 15.0
    """How long a script whose poll was cut may stay unheard before it counts as dead."""
    lost_s: float = 600.0
    """How long a Pod runs without a job before it is deleted, where it gets no other."""
    gang_wait_s: float = 300.0
    """How long a gang waits for members before that is a warning, or for a dead one's replacement."""


def backoff_s(attempt: int) -> float:
    """Return how long to wait before attempt *attempt*, of any number."""
    before = tries(attempt)
    return 0.0 if before == 0 else doubled(1.0, before - 1, BACKOFF_LAST_S)


def first_of_gang(now: datetime) -> int:
    """Return the number of the first attempt at a gang that comes *now*.

    A gang has its key again when it is made again: what it was before must never look like what comes later.
    """
    return int(now.timestamp()) * _TRIES


def tries(attempt: int) -> int:
    """Return how many attempts there were before *attempt*, of a Pod, or of a gang since it came."""
    return attempt % _TRIES
