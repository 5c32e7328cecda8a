"""What can go wrong with slurmrestd, by what to do next.

After either error of a *write* the write may have been carried out all the same: slurmrestd answers 500
to a request of which it has done a part, and a time-out says nothing. Read back before doing more.
"""

from typing import Final

from sunk_runtime.errors import PermanentError, TransientError

INVALID_JOB_ID: Final = 2017
INVALID_NODE_NAME: Final = 2018
ALREADY_DONE: Final = 2021
JOB_FINISHED: Final = 2084

_TRANSIENT_RANGES: Final = (
    (None, 0),  # -1, SLURM_ERROR: "something failed", such as "Unable to query partitions".
    (1000, 1900),  # Between slurmrestd and slurmctld, token not accepted included.
    (4000, 7000),  # slurmd, sockets, authentication.
    (7000, 7001),  # No connection to slurmdbd.
)
_TRANSIENT: Final = frozenset(
    {
        2007,  # MAX_JOB_COUNT: the queue is full.
        2016,  # NODES_BUSY
        2019,  # WRITING_TO_FILE: slurmctld could not write its state.
        2027,  # IN_STANDBY_MODE: the other slurmctld is in charge.
        2090,  # INTERNAL
        2105,  # SUBMISSIONS_DISABLED
        2131,  # IN_STANDBY_USE_BACKUP
    },
)


class SlurmUnavailableError(TransientError):
    """slurmrestd or slurmctld does not answer, answers nonsense, or cannot at the moment."""


class SlurmRejectedError(PermanentError):
    """Slurm refuses, and would again. ``number`` is Slurm's own, where it gave one."""

    number: int | None

    def __init__(self, message: str, *, number: int | None = None) -> None:
        super().__init__(message)
        self.number = number


def is_transient(number: int) -> bool:
    """Whether the error *number* of slurm_errno.h may go away by itself.

    By number, because slurmrestd 24.11 answers HTTP 500 to plain refusals.

    Source: SchedMD/slurm 26.05, slurm/slurm_errno.h.
    """
    ranges = any((low is None or number >= low) and number < high for low, high in _TRANSIENT_RANGES)
    return ranges or number in _TRANSIENT
