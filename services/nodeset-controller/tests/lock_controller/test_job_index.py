"""What the bus says of jobs, node by node, and the desk where questions wait."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from sunk_events.base import Cause
from sunk_events.jobs import SlurmJobState
from sunk_lab.nats import NatsServer
from sunk_nodeset_controller.lock_controller.job_index import JobsOnNodes, place
from sunk_nodeset_controller.lock_controller.requests import LockRequests
from sunk_nodeset_controller.locks.machine import decide
from sunk_nodeset_controller.locks.model import (
    OPEN,
    Granted,
    JobPlace,
    JobSeen,
    LockRequest,
    NotRunning,
    Rules,
    Seen,
    Waiting,
)
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import WITHIN_S
from sunk_runtime.views import StateView

T0 = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
RUNNING = SlurmJobState(changed=T0, job=1, state="RUNNING", is_running=True, nodes="gpu-000-[011-012]")
PENDING = SlurmJobState(changed=T0, job=1, state="PENDING")


@pytest.mark.parametrize(
    ("state", "is_here", "where"),
    [
        pytest.param(PENDING, False, "waiting", id="pending"),
        pytest.param(RUNNING, True, "running", id="running here"),
        pytest.param(RUNNING, False, "left", id="running elsewhere"),
        pytest.param(replace(RUNNING, nodes=""), False, "waiting", id="running, nobody knows where"),
        pytest.param(replace(RUNNING, state="SUSPENDED"), True, "running", id="suspended keeps its hold"),
        pytest.param(
            replace(RUNNING, state="CANCELLED", is_running=False, is_completing=True, is_over=True),
            True,
            "completing",
            id="cancelled, still here",
        ),
        pytest.param(
            replace(RUNNING, state="CANCELLED", is_running=False, is_completing=True, is_over=True),
            False,
            "left",
            id="cancelled, still elsewhere",
        ),
        pytest.param(
            replace(RUNNING, state="PENDING", is_running=False, is_completing=True),
            True,
            "completing",
            id="requeued, still here",
        ),
        pytest.param(
            replace(RUNNING, state="COMPLETED", is_running=False, is_over=True), False, "left", id="over"
        ),
    ],
)
def test_where_a_job_is(state: SlurmJobState, *, is_here: bool, where: JobPlace) -> None:
    assert place(state, is_here=is_here) == where


@pytest.fixture
async def view(tmp_path: Path) -> AsyncGenerator[StateView[SlurmJobState]]:
    with NatsServer(tmp_path / "nats") as server:
        async with connect(BusSettings(url=server.url), "test") as bus:
            yield StateView(bus, "lab", SlurmJobState)


@pytest.mark.anyio
async def test_a_node_is_looked_at_when_a_job_comes_and_when_it_has_left(
    view: StateView[SlurmJobState],
) -> None:
    view.apply_own("1", RUNNING, 1, stored=T0)
    jobs = JobsOnNodes(view)
    changes = jobs.follow()
    first = {await anext(changes), await anext(changes)}
    view.apply_own("1", replace(RUNNING, nodes="gpu-000-012"), 2, stored=T0 + timedelta(seconds=1))
    stale = jobs.seen(1, "gpu-000-011")
    second = {await anext(changes), await anext(changes)}

    assert first == second == {"gpu-000-011", "gpu-000-012"}
    # Until the change is taken over, state and nodes are both of the revision before.
    event = Cause("SUNK_lab_slurm_job:1:1")
    assert stale == JobSeen(place="running", state="RUNNING", changed=T0, event=event)
    assert jobs.seen(1, "gpu-000-011") == JobSeen(
        place="left",
        state="RUNNING",
        changed=T0 + timedelta(seconds=1),
        event=Cause("SUNK_lab_slurm_job:1:2"),
    )
    assert (jobs.on("gpu-000-011"), jobs.on("gpu-000-012")) == (frozenset(), frozenset({1}))


@pytest.mark.parametrize("skew_s", [-30, -5, 0, 5, 30])
@pytest.mark.parametrize(
    ("stored_s", "is_refused"),
    [pytest.param(-10, False, id="an earlier run"), pytest.param(1, True, id="this run")],
)
@pytest.mark.anyio
async def test_whether_a_job_left_before_or_after_it_asked_does_not_depend_on_the_syncers_clock(
    view: StateView[SlurmJobState], skew_s: float, stored_s: float, *, is_refused: bool
) -> None:
    stored = T0 + timedelta(seconds=stored_s)
    over = replace(
        RUNNING, changed=stored + timedelta(seconds=skew_s), state="CANCELLED", is_running=False, is_over=True
    )
    view.apply_own("1", over, 1, stored=stored)
    found = JobsOnNodes(view).seen(1, "gpu-000-011")
    assert found is not None
    requests = (LockRequest(job=1, level="normal", requested_at=T0),)

    answers = decide(
        Seen(lock=OPEN, now=T0 + timedelta(seconds=2), requests=requests, jobs={1: found}), Rules()
    ).answers

    assert answers == ({1: NotRunning("CANCELLED")} if is_refused else {})


@pytest.mark.anyio
async def test_a_sign_of_life_that_the_bus_lost_when_it_went_back_is_none(
    view: StateView[SlurmJobState],
) -> None:
    view.apply_own("5", replace(RUNNING, job=5), 1, stored=T0)
    view.apply_own("77", replace(RUNNING, job=77), 2, stored=T0 + timedelta(hours=1))
    jobs = JobsOnNodes(view)
    before = jobs.newest
    changes = jobs.follow()
    for _ in range(4):
        await anext(changes)

    view.drop("77")  # An older copy of the bucket lacks it.
    await anext(changes)

    assert (before, jobs.newest) == (T0 + timedelta(hours=1), T0)


@pytest.mark.anyio
async def test_that_a_job_was_forgotten_takes_no_sign_of_life_away(view: StateView[SlurmJobState]) -> None:
    view.apply_own("77", replace(RUNNING, job=77), 2, stored=T0)
    jobs = JobsOnNodes(view)
    changes = jobs.follow()
    for _ in range(2):
        await anext(changes)

    view.apply_own("77", None, 3)
    await anext(changes)

    assert jobs.newest == T0


@pytest.mark.anyio
async def test_a_job_whose_nodes_cannot_be_read_is_as_one_the_bus_does_not_know(
    view: StateView[SlurmJobState],
) -> None:
    view.apply_own("1", replace(RUNNING, nodes="gpu-[001"), 1)

    assert JobsOnNodes(view).seen(1, "gpu-000-011") is None


@pytest.mark.anyio
async def test_two_questions_of_one_job_are_one_and_both_are_answered() -> None:
    lock_requests = LockRequests()
    with (
        lock_requests.asking(1, "normal", T0) as first,
        lock_requests.asking(1, "normal", T0 + timedelta(seconds=3)) as second,
    ):
        requests = lock_requests.requests
        lock_requests.reply(1, Waiting(("default/web",)))
        await first.wait(0.01)
        waiting = first.answer
        lock_requests.reply(1, Granted())
        with anyio.fail_after(WITHIN_S):
            await first.wait(60)
            await second.wait(60)

        assert requests == (LockRequest(job=1, level="normal", requested_at=T0),)
        assert waiting == Waiting(("default/web",))
        assert (first.answer, second.answer, lock_requests.requests) == (Granted(), Granted(), ())
    assert lock_requests.is_empty


@pytest.mark.anyio
async def test_a_question_after_the_answer_is_a_new_one() -> None:
    lock_requests = LockRequests()
    with lock_requests.asking(1, "normal", T0):
        lock_requests.reply(1, NotRunning("CANCELLED"))
        with lock_requests.asking(1, "normal", T0 + timedelta(seconds=3)):
            assert lock_requests.requests == (
                LockRequest(job=1, level="normal", requested_at=T0 + timedelta(seconds=3)),
            )


@pytest.mark.anyio
async def test_a_release_is_done_only_by_a_turn_that_began_after_it_and_did_not_fail() -> None:
    lock_requests = LockRequests()
    first = lock_requests.release(1, T0)
    with pytest.raises(OSError, match="away"), lock_requests.carrying_out():
        raise OSError("away")
    failed = first.is_set()
    with lock_requests.carrying_out():
        second = lock_requests.release(2, T0)

    assert not failed
    assert (first.is_set(), second.is_set()) == (True, False)
    assert lock_requests.released == {1: T0, 2: T0}
