"""Writes to jobs: slurmctld may have given the number to another user's job, and another may lead by now."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from sunk_pod_scheduler.adapters.placeholder_jobs import SURE_S, PlaceholderJobs
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.ownership import Owner
from sunk_pod_scheduler.testing.builders import JOB, KEY, UID
from sunk_runtime.errors import LostLeadershipError
from sunk_slurm.errors import SlurmUnavailableError
from sunk_slurm.submission import JobChange, JobDescription
from sunk_slurm.wire import Job, Number

pytestmark = pytest.mark.anyio

OWNER = Owner(uid=UID, attempt=1, name="default/infer", user_id=0)
EXTRA = marks.extra_text(KEY, UID, "default/infer", 1, 0)
OURS = Job(job_id=JOB, job_state=("PENDING",), extra=EXTRA)
ANOTHERS = Job(job_id=JOB, job_state=("PENDING",), name="train", user_id=2000, hold=True)
DESCRIPTION = JobDescription(
    script="", environment=(), current_working_directory="/", name="default/infer", extra=EXTRA
)
Write = Callable[[PlaceholderJobs], Awaitable[None]]


async def release(jobs: PlaceholderJobs) -> None:
    await jobs.release(JOB, 5, "ours", OWNER)


async def exclude(jobs: PlaceholderJobs) -> None:
    await jobs.exclude(JOB, "n1", OWNER)


async def mark_started(jobs: PlaceholderJobs) -> None:
    await jobs.mark_started(JOB, EXTRA, "ours", OWNER)


async def cancel(jobs: PlaceholderJobs) -> None:
    await jobs.cancel(JOB, OWNER)


class Slurm:
    """A slurmctld that has one job, and remembers what was written to it."""

    def __init__(self, job: Job) -> None:
        self.has = job
        self.looks = 0
        self.written: list[JobChange] = []
        self.cancelled: list[int] = []
        self.leads = True

    def check(self) -> None:
        if not self.leads:
            raise LostLeadershipError("the lease may have ended")

    async def submit_job(self, *_: object) -> int:
        return self.has.job_id

    async def job(self, _number: int) -> Job:
        self.looks += 1
        return self.has

    async def update_job(self, _number: int, change: JobChange) -> None:
        self.written.append(change)

    async def cancel_job(self, job: int) -> None:
        self.cancelled.append(job)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The monotonic time, which stands still unless a test sets it."""
    found = SimpleNamespace(moment=100.0)
    there = SimpleNamespace(monotonic=lambda: found.moment)
    monkeypatch.setattr("sunk_pod_scheduler.adapters.placeholder_jobs.time", there)
    return found


def placeholders(slurm: Slurm) -> PlaceholderJobs:
    client: Any = slurm
    unused: Any = None
    return PlaceholderJobs(client, unused, KEY, timeout_s=5, check=slurm.check)


@pytest.mark.parametrize("write", [release, exclude, mark_started])
async def test_nothing_is_written_to_a_number_that_is_anothers_by_now(write: Write) -> None:
    slurm = Slurm(ANOTHERS)

    with pytest.raises(SlurmUnavailableError, match="not seen to be default/infer's"):
        await write(placeholders(slurm))

    assert slurm.written == []


async def test_a_job_that_was_requeued_since_its_script_announced_itself_is_not_marked_as_started() -> None:
    slurm = Slurm(replace(OURS, job_state=("RUNNING",), restart_cnt=1))

    with pytest.raises(SlurmUnavailableError, match="not seen to be default/infer's, and to run since"):
        await mark_started(placeholders(slurm))

    assert slurm.written == []


async def test_the_next_job_of_a_pod_that_has_lost_one_is_released_by_a_fresh_look_alone() -> None:
    slurm = Slurm(OURS)
    jobs = placeholders(slurm)
    await jobs.submit(DESCRIPTION)
    slurm.has = ANOTHERS

    with pytest.raises(SlurmUnavailableError, match="not seen to be default/infer's"):
        await jobs.release(JOB, 5, "ours", OWNER, has_lost=True)

    assert slurm.written == []


async def test_a_job_that_was_submitted_just_now_is_released_without_a_look() -> None:
    slurm = Slurm(OURS)
    jobs = placeholders(slurm)
    await jobs.submit(DESCRIPTION)

    await jobs.exclude(JOB, "n1", OWNER)
    await jobs.release(JOB, 5, "ours", OWNER)

    assert slurm.looks == 0
    assert slurm.written == [
        JobChange(excluded_nodes=("n1",)),
        JobChange(hold=False, admin_comment="ours"),
        JobChange(priority=Number.of(5)),
    ]


async def test_a_look_serves_the_writes_that_follow_it_at_once(clock: SimpleNamespace) -> None:
    slurm = Slurm(OURS)
    jobs = placeholders(slurm)

    await jobs.look(JOB, OWNER)
    await jobs.release(JOB, 5, "ours", OWNER)
    assert slurm.looks == 1

    clock.moment += SURE_S
    await jobs.exclude(JOB, "n1", OWNER)
    assert slurm.looks == 2


class HeldUp(Slurm):
    """Its caller is held up in each call, for longer than its lease lasts."""

    async def job(self, _number: int) -> Job:
        self.leads = False
        return await super().job(_number)

    async def update_job(self, _number: int, change: JobChange) -> None:
        self.leads = False
        await super().update_job(_number, change)


@pytest.mark.parametrize("write", [release, exclude, mark_started, cancel])
async def test_a_leader_that_loses_its_lease_during_a_look_writes_nothing_to_the_job(write: Write) -> None:
    slurm = HeldUp(OURS)

    with pytest.raises(LostLeadershipError):
        await write(placeholders(slurm))

    assert (slurm.written, slurm.cancelled) == ([], [])


async def test_a_leader_that_loses_its_lease_during_a_release_writes_no_priority() -> None:
    slurm = HeldUp(OURS)
    jobs = placeholders(slurm)
    await jobs.submit(DESCRIPTION)

    with pytest.raises(LostLeadershipError):
        await release(jobs)

    assert slurm.written == [JobChange(hold=False, admin_comment="ours")]
