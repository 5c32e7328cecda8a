"""No Pod is bound while a node of its job has a lock that is not granted to this run of the job."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from sunk_events.locks import LockState
from sunk_events.placements import PlacementState
from sunk_pod_scheduler.placement.actions import (
    Action,
    Bind,
    MarkStarted,
    Record,
    RecordReason,
    ReportLoss,
    Wait,
)
from sunk_pod_scheduler.placement.decide import decide
from sunk_pod_scheduler.placement.explain import explain
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S, WAITING_FIRST_S, Limits
from sunk_pod_scheduler.placement.model import Observed
from sunk_pod_scheduler.placement.node_locks import ungranted
from sunk_pod_scheduler.reasons import PodReason
from sunk_pod_scheduler.testing.builders import KUBE_NODE, SLURM_NODE, T0, job, lock, placement, pod, seen

LIMITS = Limits()
LATER = T0 + timedelta(seconds=WAITING_FIRST_S)
RELEASED = placement("released")
STARTED = placement("started", node=SLURM_NODE)
MARKED = job(is_marked_started=True)
"""As after hold and release in the prolog, by which Slurm takes the reason Prolog away."""
SAYS = RecordReason(
    state=replace(
        RELEASED, changed=LATER, reason=f"job 7 waits in its prolog until {SLURM_NODE} is locked for it"
    ),
    event=PodReason.WAITING_FOR_LOCK,
)
NOT_KNOWN = None


def at(moment: datetime, found: Observed) -> Action:
    return decide(found, moment, LIMITS)


@pytest.mark.parametrize(
    ("found", "at_first", "later"),
    [
        pytest.param(
            seen(pod(), RELEASED, MARKED, ungranted=(lock(),)),
            Wait(WAITING_FIRST_S),
            SAYS,
            id="held, released and called started by its user",
        ),
        pytest.param(
            seen(pod(), RELEASED, job(reason="JobHeldUser"), announced_on=SLURM_NODE, ungranted=(lock(),)),
            Wait(WAITING_FIRST_S),
            SAYS,
            id="its script has announced itself: it was held in its prolog",
        ),
        pytest.param(
            seen(pod(), RELEASED, job(), ungranted=(lock(),)),
            Wait(WAITING_FIRST_S),
            SAYS,
            id="nobody has announced anything: the lock is what it waits for",
        ),
        pytest.param(
            seen(pod(), RELEASED, MARKED, ungranted=NOT_KNOWN),
            Wait(ASK_AGAIN_S),
            Wait(ASK_AGAIN_S),
            id="the locks are not read yet",
        ),
        pytest.param(
            seen(pod(), STARTED, MARKED, ungranted=NOT_KNOWN),
            Wait(ASK_AGAIN_S),
            Wait(ASK_AGAIN_S),
            id="stored as started, and the locks are not read yet",
        ),
    ],
)
def test_a_pod_waits_for_the_lock_of_its_node_and_says_so_once_that_takes_long(
    found: Observed, at_first: Action, later: Action
) -> None:
    assert (at(T0, found), at(LATER, found)) == (at_first, later)


def test_what_was_started_and_marked_by_an_earlier_leader_is_bound_only_once_its_node_is_locked() -> None:
    waits = at(LATER, seen(pod(), STARTED, MARKED, ungranted=(lock(),)))
    unmarked = at(LATER, seen(pod(), STARTED, job(), ungranted=(lock(),)))

    assert isinstance(waits, RecordReason)
    assert (waits.event, waits.state.phase, unmarked) == (PodReason.WAITING_FOR_LOCK, "started", waits)
    assert isinstance(at(LATER, seen(pod(), waits.state, job())), MarkStarted)
    bound = at(LATER, seen(pod(), waits.state, MARKED))
    assert isinstance(bound, Bind)
    assert (bound.state.phase, bound.state.reason) == ("bound", "")


@pytest.mark.parametrize("ungranted", [(), (lock(),), None], ids=["granted", "pending", "not read"])
def test_a_pod_that_runs_gets_its_next_job_whatever_is_known_of_locks(
    ungranted: tuple[LockState, ...] | None,
) -> None:
    runs = pod(kube_node=KUBE_NODE)

    def next_step(state: PlacementState, *, is_marked: bool = True) -> Action:
        lost = replace(state, lost=T0, kube_node=KUBE_NODE)
        found = job(is_marked_started=is_marked)
        return at(T0, seen(runs, lost, found, announced_on=SLURM_NODE, ungranted=ungranted))

    started = next_step(RELEASED)
    assert isinstance(started, Record)
    assert started.state.phase == "started"
    assert isinstance(next_step(STARTED, is_marked=False), MarkStarted)
    assert isinstance(next_step(STARTED), ReportLoss)


@pytest.mark.parametrize(
    ("found", "is_waited_for"),
    [
        pytest.param(None, False, id="no lock: nobody locks that node"),
        pytest.param(lock(value="false"), True, id="not requested yet"),
        pytest.param(lock(), True, id="pending"),
        pytest.param(lock(value="locked_strict", granted=T0), False, id="granted"),
        pytest.param(lock(value="locked_strict", job=8, granted=T0), True, id="granted to another job"),
        pytest.param(
            lock(value="locked_strict", granted=T0 - timedelta(seconds=59)),
            False,
            id="by a clock that is behind",
        ),
        pytest.param(
            lock(value="locked_strict", granted=T0 - timedelta(seconds=61)),
            True,
            id="to the run before this one",
        ),
    ],
)
def test_a_lock_is_waited_for_until_it_is_granted_to_this_run_of_the_job(
    found: LockState | None, *, is_waited_for: bool
) -> None:
    runs = replace(job(), started=T0)

    assert ungranted(runs, lambda _: found) == ((found,) if is_waited_for else ())
    of_submission = replace(job(), submitted=T0)
    assert ungranted(of_submission, lambda _: found) == ungranted(runs, lambda _: found)


def test_a_job_of_which_slurm_does_not_say_when_it_began_has_any_grant_of_its_number() -> None:
    old = lock(value="locked_strict", granted=T0 - timedelta(days=9))

    assert ungranted(job(), lambda _: old) == ()
    assert ungranted(job(), lambda _: lock()) == (lock(),)


def test_only_the_nodes_that_the_job_has_now_are_asked_about() -> None:
    """It may have become smaller, or larger: then its next node is locked for it, too."""
    locks = {name: lock(name) for name in ("n1", "n2", "n3")}
    locks["n1"] = lock("n1", "locked_strict", granted=T0)

    assert ungranted(job(nodes=("n1",)), locks.get) == ()
    assert ungranted(job(nodes=("n3", "n1", "n2", "n9")), locks.get) == (locks["n3"], locks["n2"])


def test_an_explanation_names_the_nodes_that_are_waited_for_and_no_pod_that_is_in_the_way() -> None:
    pending = tuple(replace(lock(name), in_the_way=("others/secret",)) for name in ("gpu-1", "gpu-2"))
    found = explain(seen(pod(), RELEASED, job(nodes=("gpu-1", "gpu-2")), ungranted=pending))

    assert found[0].what == "waits for the lock of gpu-[1-2]"
    assert found[0].since == T0
    assert "secret" not in str(found)


def test_a_grant_by_a_clock_that_is_far_behind_is_said_on_the_pod() -> None:
    old = lock(value="locked_strict", granted=T0 - timedelta(seconds=62))
    found = at(LATER, seen(pod(), STARTED, replace(MARKED, started=T0), ungranted=(old,)))

    assert isinstance(found, RecordReason)
    assert found.state.reason == (
        f"job 7 waits until {SLURM_NODE} is locked for it: the lock is granted to an earlier run of job 7, "
        "or the clock of the lock is far behind Slurm's"
    )
