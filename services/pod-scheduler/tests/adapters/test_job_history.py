"""What became of a job that slurmctld does not know: its other jobs and accounting tell, or nothing does."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_pod_scheduler.adapters import job_history
from sunk_pod_scheduler.adapters.job_history import (
    Evidence,
    JobHistory,
    OtherJob,
    accounted,
    evidence,
    verdict,
)
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.model import JobGone, JobSeen, JobUnknown
from sunk_pod_scheduler.placement.ownership import Owner
from sunk_pod_scheduler.testing.builders import JOB, KEY, T0, UID, job
from sunk_slurm.accounting import AccountedJob, AccountedState, AccountedTime
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.reads import KnownJob
from sunk_slurm.states import JobState
from sunk_slurm.wire import Job, Number

OWNER = Owner(uid=UID, attempt=0, user_id=1000, name="default/infer")
HOUR = timedelta(hours=1)
MISSING = 700


def row(number: int, since: timedelta, *, is_anew: bool = False) -> OtherJob:
    return OtherJob(number, T0 + since, is_anew=is_anew)


SUBMITTED = T0 - HOUR
"""When Slurm took the missing job: it waited for an hour."""
WAITED = timedelta(minutes=-20)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([], Evidence(), id="Slurm has no job: nothing tells"),
        pytest.param([row(12, HOUR)], Evidence(went_back=True), id="a lower number is of a later job"),
        pytest.param([row(12, -HOUR)], Evidence(), id="an older job is there: that may be all it knew"),
        pytest.param(
            [row(50, -24 * HOUR), row(900, 2 * HOUR)],
            Evidence(),
            id="so is a later one: numbers may have gone on from an older state, past the missing one",
        ),
        pytest.param(
            [row(701, WAITED)], Evidence(is_complete=True), id="one that came after it, while it was there"
        ),
        pytest.param(
            [row(701, SUBMITTED - T0)], Evidence(is_complete=True), id="in the same second, by the number"
        ),
        pytest.param([row(699, SUBMITTED - T0)], Evidence(), id="in the same second, and before it"),
        pytest.param(
            [row(66_999_000, -2 * HOUR)], Evidence(), id="one of before it, where numbers have begun again"
        ),
        pytest.param([row(701, timedelta(seconds=-59))], Evidence(), id="when it ran: clocks may differ"),
        pytest.param([row(701, WAITED, is_anew=True)], Evidence(), id="its moment or number is of later"),
        pytest.param([row(12, HOUR, is_anew=True)], Evidence(), id="a requeued job was submitted anew"),
        pytest.param([row(12, timedelta(seconds=59))], Evidence(), id="clocks may be as far apart"),
        pytest.param([OtherJob(12, None, is_anew=False)], Evidence(), id="a job that has gone meanwhile"),
        pytest.param(
            [row(3, -HOUR), row(699, HOUR)],
            Evidence(went_back=True),
            id="an older state was put back",
        ),
        pytest.param(
            [row(1, 2 * HOUR), row(650, -2 * HOUR)],
            Evidence(),
            id="numbers came to their end, and began again",
        ),
    ],
)
def test_slurms_other_jobs_show_whether_it_has_lost_its_state(
    rows: Iterable[OtherJob], expected: Evidence
) -> None:
    rows = list(rows)
    assert evidence(MISSING, SUBMITTED, T0, rows) == expected
    assert evidence(MISSING, None, T0, rows) == replace(expected, is_complete=False)
    assert evidence(MISSING, SUBMITTED, None, rows) == Evidence()  # Since when is not known.


@given(
    before=st.lists(st.integers(-100, -2), max_size=6, unique=True),
    after=st.lists(st.integers(0, 300), max_size=6, unique=True),
    lost=st.integers(0, 5),
    step=st.integers(1, 40),
)
def test_no_state_that_lacks_the_missing_job_is_taken_for_one_that_has_forgotten_it(
    before: list[int], after: list[int], lost: int, step: int
) -> None:
    """slurmctld comes back with a state of before the missing job, and forgets some jobs that it got since.

    In minutes, from the moment in which the missing job ran. The last *lost* jobs before it are lost too.
    """
    kept = [
        OtherJob(at, T0 + timedelta(minutes=one), is_anew=False) for at, one in enumerate(sorted(before), 1)
    ]
    since = [
        OtherJob(len(kept) + at * step, T0 + timedelta(minutes=one), is_anew=False)
        for at, one in enumerate(sorted(after), 1)
    ]

    missing = len(kept) + lost + 1
    assert not evidence(missing, T0 - timedelta(minutes=1), T0, [*kept, *since]).is_complete


def record(
    *states: str,
    name: str = "default/infer",
    extra: str = "",
    since: timedelta = -HOUR,
    user: str = "",
    number: int = JOB,
    has_ended: bool = False,
) -> AccountedJob:
    submission = int((T0 + since).timestamp())
    return AccountedJob(
        job_id=number,
        name=name,
        extra=extra,
        kill_request_user=user,
        state=AccountedState(current=states),
        time=AccountedTime(submission=submission, end=submission + 1 if has_ended else 0),
    )


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([], "", id="accounting has never heard of it"),
        pytest.param([record("CANCELLED", user="ada")], "ended", id="cancelled by somebody"),
        pytest.param([record("CANCELLED")], "", id="by nobody, as all are after a cold start"),
        pytest.param([record("COMPLETED")], "ended", id="over"),
        pytest.param([record("NODE_FAIL")], "ended", id="its node failed"),
        pytest.param([record("PENDING", "REQUEUED", has_ended=True)], "ended", id="it was requeued"),
        pytest.param([record("RUNNING")], "lost", id="it runs, as far as accounting knows"),
        pytest.param([record()], "", id="an answer without a state"),
        pytest.param([record("COMPLETED", name="train")], "", id="another's of that number"),
        pytest.param([record("COMPLETED", since=HOUR)], "", id="submitted after the Pod's job ran"),
        pytest.param(
            [record("COMPLETED", since=-99 * HOUR), record("RUNNING")],
            "lost",
            id="an earlier life of the number",
        ),
        pytest.param(
            [record("COMPLETED", extra=marks.extra_text(KEY, "other", "default/infer", 0, 1000))],
            "",
            id="of an earlier Pod of that name",
        ),
        pytest.param(
            [record("COMPLETED", extra=marks.extra_text(KEY, UID, "default/infer", 0, 1000) + marks.STARTED)],
            "ended",
            id="with our mark",
        ),
    ],
)
def test_accounting_tells_of_the_pods_own_job_only(records: list[AccountedJob], expected: str) -> None:
    assert verdict(accounted(records, OWNER, KEY, T0)) == expected


def test_of_several_records_of_a_number_the_one_of_the_pods_own_submission_tells() -> None:
    submitted = replace(OWNER, submitted=T0)
    own, others = record("RUNNING", since=timedelta()), timedelta(seconds=5)
    records = [record("COMPLETED", since=-others), own, record("COMPLETED", since=others)]

    assert accounted(records, submitted, KEY, T0 + others) == own
    assert accounted(records[2:], submitted, KEY, T0 + others) is None


class Slurm:
    """Has jobs by number, and when each was submitted."""

    def __init__(self, **since: timedelta) -> None:
        self.since = {int(number.removeprefix("j")): moment for number, moment in since.items()}
        self.lists, self.looks = 0, 0
        self.is_away = False

    async def job_states(self) -> dict[int, KnownJob]:
        self.lists += 1
        if self.is_away:
            raise SlurmUnavailableError("away")
        return {number: KnownJob(JobState("RUNNING")) for number in self.since}

    async def job(self, job: int) -> Job | None:
        self.looks += 1
        return Job(job_id=job, submit_time=Number.of((T0 + self.since[job]).timestamp()))


class Accounting:
    """Has records, or hangs."""

    def __init__(self, *records: AccountedJob, is_away: bool = False) -> None:
        self.records = records
        self.is_away = is_away

    async def jobs(self, job: int, *, timeout_s: float) -> Sequence[AccountedJob]:
        assert 0 < timeout_s <= 2
        if self.is_away:
            raise SlurmUnavailableError("away")
        return [one for one in self.records if one.job_id == job]


async def outcome_of(
    slurm: Slurm, accounting: Accounting | None, gone: JobGone | None = None, ran: datetime | None = T0
) -> JobGone:
    whose = replace(OWNER, submitted=SUBMITTED)
    return await JobHistory(slurm, accounting, KEY).of(gone or JobGone(), MISSING, whose, ran)


@pytest.mark.anyio
async def test_accounting_is_believed_first_then_slurms_other_jobs_and_else_nothing_is() -> None:
    older, anew, empty = Slurm(j3=-HOUR, j701=WAITED, j900=HOUR), Slurm(j3=HOUR), Slurm()
    cancelled = Accounting(record("CANCELLED", user="ada", number=MISSING))
    runs = Accounting(record("RUNNING", number=MISSING))
    away = Accounting(is_away=True)

    for slurm in (older, anew, empty):
        assert await outcome_of(slurm, cancelled) == JobGone(has_ended=True)
        assert await outcome_of(slurm, runs) == JobGone(is_lost=True)
    for silent in (None, away, Accounting()):
        assert await outcome_of(older, silent) == JobGone(is_forgotten=True)
        assert await outcome_of(anew, silent) == JobGone(is_lost=True)
        assert await outcome_of(empty, silent) == JobGone()
        assert await outcome_of(older, silent, ran=None) == JobGone()
        taken = JobGone(is_taken=True)
        assert await outcome_of(older, silent, taken) == JobGone(is_taken=True, is_lost=True)
    older.is_away = True
    assert await outcome_of(older, away) == JobGone()


@pytest.mark.anyio
async def test_one_list_and_a_look_at_each_of_a_few_serve_all_who_miss_their_jobs_at_once() -> None:
    slurm = Slurm(**{f"j{number}": HOUR for number in range(1, 400)})
    found = JobHistory(slurm, None, KEY)
    async with anyio.create_task_group() as tasks:
        for number in range(400, 600):
            tasks.start_soon(found.of, JobGone(), number, OWNER, T0)

    assert (slurm.lists, slurm.looks) == (1, 5)


@pytest.mark.anyio
async def test_who_cancelled_a_job_is_asked_of_accounting_only_for_one_that_was_cancelled() -> None:
    accounting = Accounting(record("CANCELLED", user="ada"))
    asked = JobHistory(Slurm(), accounting, KEY)

    assert await asked.who_cancelled(job("CANCELLED"), OWNER) == "ada"
    accounting.is_away = True
    for found in (job("CANCELLED"), job("TIMEOUT"), JobGone(), JobUnknown()):
        assert await asked.who_cancelled(found, OWNER) == ""
    assert job_history.WHO_S <= 1.0
    assert isinstance(job("CANCELLED"), JobSeen)
