"""Each change of a lock names what led to it: a question, what Slurm said of a job, or the lock itself."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from sunk_events.base import Cause
from sunk_nodeset_controller.locks.events import cause
from sunk_nodeset_controller.locks.model import OPEN, Holder, JobPlace, JobSeen, LockRequest, NodeLock, Seen

T0 = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
QUESTION, JOB, TOLD = Cause("acquire_lock:n1:1", "trace"), Cause("job:1:5"), Cause("lock:n1:3")
SEEN = Seen(lock=OPEN, now=T0, event=TOLD)
ASK = LockRequest(job=1, level="normal", requested_at=T0, cause=QUESTION)


def locked(*jobs: int, granted: bool = True) -> NodeLock:
    holders = tuple(
        Holder(
            job=job, level="normal", requested_at=T0 + timedelta(seconds=job), granted=T0 if granted else None
        )
        for job in jobs
    )
    return NodeLock(value="locked" if granted else "pending", holders=holders, is_tainted=True)


def job(place: JobPlace) -> JobSeen:
    return JobSeen(place=place, state="RUNNING", changed=T0, event=JOB)


@pytest.mark.parametrize(
    ("seen", "lock", "expected"),
    [
        pytest.param(replace(SEEN, requests=(ASK,)), locked(1, granted=False), QUESTION, id="a prolog asks"),
        pytest.param(
            replace(SEEN, lock=locked(1, granted=False), requests=(ASK,)),
            locked(1),
            QUESTION,
            id="it is granted",
        ),
        pytest.param(
            replace(SEEN, jobs={1: job("running")}), locked(1, granted=False), JOB, id="Slurm runs a job here"
        ),
        pytest.param(
            replace(SEEN, lock=locked(2), requests=(ASK,)),
            locked(1, 2, granted=True),
            QUESTION,
            id="a second job",
        ),
        pytest.param(
            replace(SEEN, lock=locked(1), released={1: T0}),
            NodeLock(value="locked", is_tainted=True),
            Cause("release_lock:n1:1"),
            id="an epilog releases",
        ),
        pytest.param(
            replace(SEEN, lock=locked(1), jobs={1: job("left")}), OPEN, JOB, id="Slurm says it left"
        ),
        pytest.param(
            replace(SEEN, lock=NodeLock(value="locked", is_tainted=True)), OPEN, TOLD, id="it has lingered"
        ),
        pytest.param(replace(SEEN, lock=locked(1)), locked(1), TOLD, id="nothing changes"),
    ],
)
def test_a_lock_changes_for_the_job_that_came_or_went(seen: Seen, lock: NodeLock, expected: Cause) -> None:
    assert cause("n1", seen, lock) == expected
