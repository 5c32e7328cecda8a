"""What became of a job that slurmctld does not know: it has ended and was forgotten, or slurmctld lost it.

slurmctld forgets a job some minutes after its end (MinJobAge); it also forgets all of them at once where it
has lost its state. Nobody was there to see it: Slurm's other jobs tell, and accounting, where there is one.
What must stay true: where nothing tells, nothing is concluded; nobody waits for accounting for long.

- Numbers that went back: a job of a lower number that was submitted later. slurmctld has lost its state.
  Where an older job has a higher number than that one, numbers only began again after the last (MaxJobId).
- A job that was submitted after the Pod's, and before the Pod's was last seen: with whatever state slurmctld
  came back, it knew the Pod's too. A later one does not show that: numbers go on from an older state as well,
  and past the Pod's.
- Accounting's record of the job, which has ended there or has not. It tells neither where a slurmctld that
  starts without its state has only had it closed.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol

import anyio
import msgspec

from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen
from sunk_pod_scheduler.placement.ownership import Owner
from sunk_runtime.errors import SunkError
from sunk_slurm.accounting import AccountedJob
from sunk_slurm.reads import KnownJob
from sunk_slurm.wire import Job

ACCOUNTING_S: Final = 2.0
"""How long accounting has to say what became of a job."""
WHO_S: Final = 1.0
"""How long it has to say who cancelled one, while its Pod waits to be told."""
LOOK_S: Final = 5.0
LIST_S: Final = 30.0
LASTS_S: Final = 5.0
"""One list of Slurm's jobs, and the looks at some, serve all Pods that miss theirs."""
SKEW: Final = timedelta(seconds=60)
"""Clocks may be so far apart: what is closer is no evidence."""
_OLDEST, _NEAREST = 2, 3
"""So many jobs are looked at: the lowest numbers, and the next below and above the one that is missing."""


class Reads(Protocol):
    """What is asked of slurmctld."""

    async def job_states(self) -> dict[int, KnownJob]:
        """Return the state of every job record."""
        ...

    async def job(self, job: int) -> Job | None:
        """Return one job."""
        ...


class Accounts(Protocol):
    """What is asked of accounting."""

    async def jobs(self, job: int, *, timeout_s: float) -> Sequence[AccountedJob]:
        """Return all records of a number."""
        ...


class OtherJob(msgspec.Struct, frozen=True):
    """Another job that slurmctld has now."""

    job: int
    submitted: datetime | None
    is_anew: bool
    """It was requeued, so it was submitted before that moment; or it is a task of an array, which gets its
    number after its submission."""


class Evidence(msgspec.Struct, frozen=True):
    """What Slurm's other jobs show."""

    went_back: bool = False
    """Numbers did: a lower one is of a later job."""
    is_complete: bool = False
    """A job is there that came after the missing one, and before that was last seen."""


def evidence(
    missing: int, submitted: datetime | None, ran: datetime | None, rows: Iterable[OtherJob]
) -> Evidence:
    """Return what *rows* show of slurmctld's state since the moment *ran* in which job *missing* ran.

    Args:
        missing: The number of the job that slurmctld does not know.
        submitted: When Slurm took it, by Slurm's clock; None where that is not known.
        ran: A moment in which Slurm had it, by ours; None where that is not known.
        rows: Jobs that slurmctld knows.
    """
    if ran is None:
        return Evidence()
    known = [(row.submitted, row.job) for row in rows if row.submitted is not None and not row.is_anew]
    highest_older = max((job for moment, job in known if moment < ran - SKEW), default=0)
    later = [job for moment, job in known if moment > ran + SKEW]
    is_complete = submitted is not None and any(
        (submitted, missing) < one and one[0] <= max(submitted, ran - SKEW) for one in known
    )
    return Evidence(went_back=any(highest_older < job < missing for job in later), is_complete=is_complete)


Verdict = Literal["ended", "lost", ""]


def accounted(
    records: Iterable[AccountedJob], owner: Owner, key: bytes, ran: datetime | None
) -> AccountedJob | None:
    """Return the record of *owner*'s job, of several of its number that may be anybody's.

    Slurm and accounting have the same moment of submission, to the second. *ran*: where that moment is not
    known, the job ran then; a job that was submitted later has only its number.
    """
    ours = [one for one in records if _is_ours(one, owner, key, ran)]
    return max(ours, key=lambda one: one.time.submission, default=None)


def _is_ours(record: AccountedJob, owner: Owner, key: bytes, ran: datetime | None) -> bool:
    if owner.submitted is not None:
        return record.submitted.moment == owner.submitted
    if not owner.name or record.name != owner.name:
        return False
    mark = marks.read_extra(key, record.extra, owner.user_id or 0)
    if mark is not None and (mark.uid, mark.attempt) != (owner.uid, owner.attempt):
        return False
    submitted = record.submitted.moment
    return ran is None or submitted is None or submitted <= ran + SKEW


def verdict(record: AccountedJob | None) -> Verdict:
    """Return what accounting says of a job that slurmctld does not know.

    It has one as alive, for ever, that a slurmctld of 26.05 has lost with its state. One of 24.11, or one
    that is started with ``-c``, has all that were alive noted as cancelled: by nobody, and without the Extra,
    which comes with a job's end. So is one whose user slurmrestd cannot name, where no Extra is kept: then
    the record tells nothing.
    """
    if record is None or not record.state.current:
        return ""
    state = record.state_now
    if not record.time.end and not state.is_over:
        return "lost"
    is_without_user = not record.kill_request_user and not record.extra
    return "" if state.base == "CANCELLED" and is_without_user else "ended"


class JobHistory:
    """Finds out what became of jobs that slurmctld does not know."""

    def __init__(self, slurm: Reads, accounting: Accounts | None, key: bytes) -> None:
        self._slurm = slurm
        self._accounting = accounting
        self._key = key
        self._listing = anyio.Lock()
        self._listed = float("-inf")
        self._numbers: Sequence[int] = ()
        self._rows: dict[int, OtherJob] = {}

    async def of(self, gone: JobGone, job: int, owner: Owner, ran: datetime | None) -> JobGone:
        """Return what is known of the missing *job* of *owner*, which ran at *ran*."""
        record = accounted(await self._records(job, ACCOUNTING_S), owner, self._key, ran)
        outcome = verdict(record)
        if outcome == "ended":
            return msgspec.structs.replace(gone, has_ended=True)
        if outcome == "lost" or gone.is_taken:
            return msgspec.structs.replace(gone, is_lost=True)
        found = evidence(job, owner.submitted, ran, await self._others(job))
        return msgspec.structs.replace(gone, is_lost=found.went_back, is_forgotten=found.is_complete)

    async def who_cancelled(self, job: AnyJob, owner: Owner) -> str:
        """Return who has cancelled the job, where accounting has heard of it already."""
        if not isinstance(job, JobSeen) or job.base != "CANCELLED":
            return ""
        record = accounted(await self._records(job.job, WHO_S), owner, self._key, None)
        return "" if record is None else record.kill_request_user

    async def _records(self, job: int, timeout_s: float) -> Sequence[AccountedJob]:
        if self._accounting is None:
            return ()
        try:
            return await self._accounting.jobs(job, timeout_s=timeout_s)
        except SunkError:
            return ()

    async def _others(self, job: int) -> list[OtherJob]:
        """Return some of Slurm's jobs below and above *job*; none where Slurm does not say."""
        async with self._listing:
            try:
                if time.monotonic() - self._listed > LASTS_S:
                    with anyio.fail_after(LIST_S):
                        self._numbers = sorted(await self._slurm.job_states())
                    self._listed, self._rows = time.monotonic(), {}
                below = [number for number in self._numbers if number < job]
                above = [number for number in self._numbers if number > job][:_NEAREST]
                return [await self._row(number) for number in {*below[:_OLDEST], *below[-_NEAREST:], *above}]
            except (SunkError, TimeoutError):
                return []

    async def _row(self, number: int) -> OtherJob:
        if (known := self._rows.get(number)) is not None:
            return known
        with anyio.fail_after(LOOK_S):
            found = await self._slurm.job(number)
        if found is None:
            row = OtherJob(number, None, is_anew=False)
        else:
            is_task = found.array_task_id.value is not None
            is_anew = is_task or found.restart_cnt > 0 or "CRON_JOB" in found.flags
            row = OtherJob(number, found.submit_time.moment, is_anew=is_anew)
        self._rows[number] = row
        return row
