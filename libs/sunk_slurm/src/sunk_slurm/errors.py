"""What can go wrong with slurmrestd, by what to do next.

After any error of a *write* the write may have been carried out all the same: slurmrestd answers 500
to a request of which it has done a part, and a time-out says nothing. Read back before doing more.
"""

from typing import Final

from sunk_runtime.errors import ConflictError, PermanentError, TransientError

SLURM_ERROR: Final = -1
MAX_JOB_COUNT: Final = 2007
"""The queue is full."""
INVALID_JOB_ID: Final = 2017
INVALID_NODE_NAME: Final = 2018
ALREADY_DONE: Final = 2021
REQUEUE_DISABLED: Final = 2037
"""ESLURM_DISABLED: for a requeue, the job was submitted with ``--no-requeue``."""
INVALID_QOS: Final = 2066
"""slurmctld does not know the QoS, or the job's user may not use it."""
JOB_FINISHED: Final = 2084
SUBMISSIONS_DISABLED: Final = 2105
AUTH_NOBODY: Final = 6010
"""26.05 knows no such user; 24.11 takes the user for ``nobody``."""

_THE_WAY: Final = (1000, 1900)
"""Between slurmrestd and slurmctld, token not accepted included."""
_TRANSIENT_RANGES: Final = (
    (None, 0),  # -1, SLURM_ERROR: "something failed", such as "Unable to query partitions".
    _THE_WAY,
    (4000, 7000),  # slurmd, sockets, authentication.
    (7000, 7001),  # No connection to slurmdbd.
)
_TRANSIENT: Final = frozenset(
    {
        MAX_JOB_COUNT,
        2016,  # NODES_BUSY
        2019,  # WRITING_TO_FILE: slurmctld could not write its state.
        2027,  # IN_STANDBY_MODE: the other slurmctld is in charge.
        2090,  # INTERNAL
        SUBMISSIONS_DISABLED,
        2131,  # IN_STANDBY_USE_BACKUP
    },
)
MADE_NO_JOB: Final = frozenset({MAX_JOB_COUNT, SUBMISSIONS_DISABLED})
"""Of these slurmctld itself refuses a submission before it makes a job. Not so of a slurmctld that stands by:
another may have been asked before it."""
_CONFLICT: Final = frozenset(
    {
        2020,  # TRANSITION_STATE_NO_UPDATE
        ALREADY_DONE,
        2024,  # JOB_PENDING
        2073,  # JOB_NOT_PENDING
        2077,  # JOB_SUSPENDED
        2083,  # JOB_STARTED
        JOB_FINISHED,
        2085,  # JOB_NOT_RUNNING
        2086,  # JOB_NOT_PENDING_NOR_RUNNING
        2087,  # JOB_NOT_SUSPENDED
        2088,  # JOB_NOT_FINISHED
    },
)


class SlurmUnavailableError(TransientError):
    """slurmrestd or slurmctld does not answer, answers nonsense, or cannot at the moment."""

    number: int | None
    """Slurm's own; None where slurmrestd itself failed."""
    is_sent: bool
    """The request may have been carried out. False: certainly nothing was done."""

    def __init__(
        self, message: str, *, number: int | None = None, is_sent: bool = True, retry_after_s: float = 1.0
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.number = number
        self.is_sent = is_sent


class NotSentError(SlurmUnavailableError):
    """slurmrestd was left alone, or had no time for the call: that tells nothing new about it."""


class TooLateError(ConflictError):
    """The call's turn came when it was not to be sent any more: nothing was done."""


class SlurmConflictError(ConflictError):
    """The job is not in the state that the request was made for. ``number`` is Slurm's own."""

    number: int

    def __init__(self, message: str, *, number: int) -> None:
        super().__init__(message)
        self.number = number


class SlurmRejectedError(PermanentError):
    """Slurm refuses, and would again. ``number`` is Slurm's own, where it gave one."""

    number: int | None

    def __init__(self, message: str, *, number: int | None = None) -> None:
        super().__init__(message)
        self.number = number


class NotServedError(SlurmRejectedError):
    """slurmrestd is of a release that has no such call."""


def is_transient(number: int) -> bool:
    """Whether the error *number* of slurm_errno.h may go away by itself.

    By number, because slurmrestd 24.11 answers HTTP 500 to plain refusals.

    Source: SchedMD/slurm 26.05, slurm/slurm_errno.h.
    """
    ranges = any((low is None or number >= low) and number < high for low, high in _TRANSIENT_RANGES)
    return ranges or number in _TRANSIENT


def may_be_the_way(number: int) -> bool:
    """Whether error *number* may be of the way from slurmrestd to slurmctld: another may have a better."""
    low, high = _THE_WAY
    return low <= number < high


def classified(
    text: str, numbers: list[int]
) -> SlurmUnavailableError | SlurmConflictError | SlurmRejectedError:
    """Return one error for the error *numbers* of an answer: a refusal if any of them is one."""
    refusals = [number for number in numbers if not is_transient(number)]
    if not refusals:
        return SlurmUnavailableError(text, number=numbers[0])
    if all(number in _CONFLICT for number in refusals):
        return SlurmConflictError(text, number=refusals[0])
    return SlurmRejectedError(text, number=next(number for number in refusals if number not in _CONFLICT))
