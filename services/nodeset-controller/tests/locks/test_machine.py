"""The lock as a state machine: each rule a row, each "never" a property."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.locks import LockLevel, LockValue
from sunk_nodeset_controller.locks.events import state
from sunk_nodeset_controller.locks.holders import alive, known_to_run, still_released, to_confirm
from sunk_nodeset_controller.locks.machine import decide
from sunk_nodeset_controller.locks.model import (
    OPEN,
    Blockers,
    Decision,
    Granted,
    Holder,
    JobPlace,
    JobSeen,
    LockRequest,
    NodeLock,
    NotRunning,
    Rules,
    Seen,
    Step,
    Unsure,
    Waiting,
)

T0 = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
RULES = Rules()
CLEAR = Blockers()
WEB = Blockers(normal=("default/web",), strict=("default/web",))
GOING = Blockers(strict=("default/web",))


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def ask(job: int = 1, level: LockLevel = "normal", *, asked: float = 0) -> LockRequest:
    return LockRequest(job=job, level=level, requested_at=at(asked))


def holder(
    job: int = 1, level: LockLevel = "normal", *, asked: float = 0, granted: float | None = None
) -> Holder:
    return Holder(
        job=job, level=level, requested_at=at(asked), granted=None if granted is None else at(granted)
    )


def standing(value: LockValue, *holders: Holder) -> NodeLock:
    return NodeLock(value=value, holders=holders, is_tainted=True)


def job(place: JobPlace, *, changed: float, state: str = "RUNNING") -> JobSeen:
    return JobSeen(place=place, state=state, changed=at(changed))


def seen(lock: NodeLock = OPEN, *, now: float = 0, **more: object) -> Seen:
    return replace(Seen(lock=lock, now=at(now), is_node_busy=True), **more)


def test_a_prolog_that_asks_has_the_node_tainted_before_any_pod_is_looked_at() -> None:
    decision = decide(seen(requests=(ask(),)), RULES)

    assert decision == Decision(
        step=Step.CLOSE, lock=standing("pending", holder()), answers={}, again_s=0.0, idle_since=None
    )


def test_what_was_seen_before_the_taint_was_on_is_worth_nothing() -> None:
    decision = decide(seen(requests=(ask(),), way=CLEAR), RULES)

    assert decision.step is Step.CLOSE
    assert decision.answers == {}


def test_with_the_taint_on_the_pods_are_looked_at_and_nothing_is_written() -> None:
    lock = standing("pending", holder())

    decision = decide(seen(lock, requests=(ask(),)), RULES)

    assert (decision.step, decision.lock, decision.answers) == (Step.LOOK, lock, {})


def test_with_nothing_in_the_way_the_lock_is_granted_and_said_to_be() -> None:
    decision = decide(seen(standing("pending", holder()), now=1, requests=(ask(),), way=CLEAR), RULES)

    assert decision.lock == standing("locked", holder(granted=1))
    assert decision.answers == {1: Granted()}


@pytest.mark.parametrize(
    ("lock", "leaving"),
    [
        pytest.param(standing("pending", holder()), 2, id="a job waits"),
        pytest.param(standing("locked", holder(granted=1)), 0, id="none does"),
    ],
)
def test_how_many_pods_a_job_waits_for_is_said_with_the_end_of_the_last(lock: NodeLock, leaving: int) -> None:
    pods = ("default/a", "default/b")

    decision = decide(seen(lock, now=2, way=Blockers(normal=pods, strict=pods, until=at(30))), RULES)

    assert decision.in_the_way == pods
    assert (decision.leaving, decision.leaving_until) == (leaving, at(30) if leaving else None)


def test_a_prolog_that_asks_again_is_told_what_was_granted_since_its_call_began() -> None:
    lock = standing("locked", holder(asked=0, granted=3))

    again = decide(seen(lock, now=5, requests=(replace(ask(asked=5), since=at(0)),)), RULES)
    another_call = decide(seen(lock, now=5, requests=(replace(ask(asked=5), since=at(4)),)), RULES)

    assert (again.step, again.lock, again.answers) == (Step.KEEP, lock, {1: Granted()})
    assert (another_call.step, another_call.answers) == (Step.LOOK, {})


def test_what_was_granted_while_the_taint_was_on_is_worth_nothing_once_it_is_off() -> None:
    lock = replace(standing("locked", holder(asked=0, granted=3)), is_tainted=False)

    decision = decide(seen(lock, now=5, requests=(replace(ask(asked=5), since=at(0)),)), RULES)

    assert decision.step is Step.CLOSE
    assert decision.lock.holders[0].granted is None
    assert decision.answers == {}


@pytest.mark.parametrize(
    ("level", "way", "value", "answer"),
    [
        pytest.param("normal", CLEAR, "locked", Granted(), id="normal, nobody there"),
        pytest.param("normal", WEB, "pending", Waiting(("default/web",)), id="normal, one still runs"),
        pytest.param("normal", GOING, "locked", Granted(), id="normal, one has ended and is still bound"),
        pytest.param("strict", GOING, "pending", Waiting(("default/web",)), id="strict, one is still bound"),
        pytest.param("strict", CLEAR, "locked_strict", Granted(), id="strict, nobody bound"),
    ],
)
def test_each_level_waits_for_what_it_must(
    level: LockLevel, way: Blockers, value: str, answer: object
) -> None:
    lock = standing("pending", holder(level=level))

    decision = decide(seen(lock, now=1, requests=(ask(level=level),), way=way), RULES)

    assert (decision.lock.value, decision.answers) == (value, {1: answer})


def test_a_normal_job_is_granted_while_a_strict_one_on_the_same_node_still_waits() -> None:
    lock = standing("pending", holder(1), holder(2, "strict"))

    decision = decide(seen(lock, now=1, requests=(ask(1), ask(2, "strict")), way=GOING), RULES)

    assert decision.lock == standing("pending", holder(1, granted=1), holder(2, "strict"))
    assert decision.answers == {1: Granted(), 2: Waiting(("default/web",))}


def test_a_second_job_on_a_locked_node_is_granted_only_after_a_look_of_its_own() -> None:
    lock = standing("locked", holder(1, granted=1))
    both = ask(2, asked=5)

    looked = decide(seen(lock, now=5, requests=(both,)), RULES)
    blocked = decide(seen(lock, now=6, requests=(both,), way=WEB), RULES)

    assert (looked.step, looked.lock) == (Step.LOOK, lock)
    assert blocked.lock == standing("pending", holder(1, granted=1), holder(2, asked=5))
    assert blocked.answers == {2: Waiting(("default/web",))}


def test_when_the_strict_job_leaves_the_others_hold_a_normal_lock() -> None:
    lock = standing("locked_strict", holder(1, granted=1), holder(2, "strict", granted=1))

    decision = decide(seen(lock, now=9, released={2: at(9)}), RULES)

    assert (decision.step, decision.lock) == (Step.KEEP, standing("locked", holder(1, granted=1)))


def test_the_same_call_twice_is_granted_twice_and_holds_once() -> None:
    lock = standing("locked", holder(granted=1))

    decision = decide(seen(lock, now=3, requests=(ask(asked=2),), way=CLEAR), RULES)

    assert decision.lock == standing("locked", holder(granted=3))
    assert decision.answers == {1: Granted()}


def test_a_placeholder_is_strict_whatever_was_asked() -> None:
    decision = decide(seen(requests=(ask(),), placeholders={1: False}), RULES)

    assert decision.lock == standing("pending", holder(level="strict"))


def test_a_job_that_slurm_runs_here_holds_without_a_prolog() -> None:
    decision = decide(seen(now=4, jobs={7: job("running", changed=3)}), RULES)

    assert decision.lock == standing("pending", holder(7, asked=4))


def test_a_taint_that_somebody_took_off_is_put_back_and_the_pods_looked_at_again() -> None:
    lock = replace(standing("locked", holder(granted=1)), is_tainted=False)

    decision = decide(seen(lock, now=5), RULES)

    again = replace(holder(), ungranted=at(5))
    assert (decision.step, decision.lock) == (Step.CLOSE, standing("pending", again))


def test_a_job_that_runs_waits_since_its_taint_was_off_and_not_since_it_came() -> None:
    """Else the alert of a lock that is pending for long fires at once, and its wait counts as of hours."""
    granted = replace(standing("locked", holder(granted=1)), is_tainted=False)
    closed = decide(seen(granted, now=7200), RULES).lock
    blocked = decide(seen(closed, now=7201, way=replace(WEB, is_unheard=True)), RULES)
    freed = decide(seen(blocked.lock, now=7203, way=CLEAR), RULES).lock

    told = state("n1", "node1", blocked.lock, blocked.in_the_way, at(7201))
    assert [one.asked for one in told.holders] == [at(7200)]
    assert blocked.again_s == 1.0
    assert [(one.requested_at, one.since, one.granted) for one in freed.holders] == [
        (at(0), at(7200), at(7203))
    ]


def test_a_grant_that_its_prolog_never_heard_of_is_worth_nothing_once_the_taint_was_off() -> None:
    granted = replace(standing("locked", holder(granted=1)), is_tainted=False)
    waiting = replace(ask(asked=5), since=at(0))  # It asks since before the grant, whose answer was lost.

    closed = decide(seen(granted, now=5, requests=(waiting,)), RULES).lock
    decision = decide(
        seen(closed, now=5, requests=(waiting,), way=Blockers(normal=("ns/p",), strict=("ns/p",))), RULES
    )

    assert decision.answers == {1: Waiting(("ns/p",))}


@pytest.mark.parametrize(
    ("clear_since", "now", "is_granted"),
    [
        pytest.param({}, 10.0, False, id="never seen before"),
        pytest.param({"normal": at(9.8)}, 10.0, False, id="for too short a time"),
        pytest.param({"normal": at(9.5)}, 10.0, True, id="long enough"),
    ],
)
def test_where_the_kubelet_admits_late_pods_the_way_has_to_stay_clear_for_a_while(
    clear_since: dict[LockLevel, datetime], now: float, *, is_granted: bool
) -> None:
    lock = standing("pending", holder())
    rules = Rules(clear_s=0.5)

    decision = decide(seen(lock, now=now, requests=(ask(),), way=CLEAR, clear_since=clear_since), rules)

    assert decision.answers == {1: Granted() if is_granted else Waiting(())}
    assert decision.again_s == (30.0 if is_granted else 0.1)


@pytest.mark.parametrize(("now", "again_s"), [(0, 1.0), (8, 1.0), (40, 5.0), (3600, 15.0)])
def test_where_we_have_pods_leave_they_are_asked_ever_more_rarely(now: float, again_s: float) -> None:
    lock = standing("pending", holder())

    assert decide(seen(lock, now=now, way=WEB), Rules(clear_s=0.5)).again_s == again_s
    assert decide(seen(lock, now=now, way=WEB), RULES).again_s == 30.0


# --- Release ----------------------------------------------------------------------------------------


def test_the_last_release_leaves_the_lock_for_a_moment_then_it_is_gone() -> None:
    lock = standing("locked", holder(granted=1))

    released = decide(seen(lock, now=10, released={1: at(10)}), RULES)
    lingering = decide(seen(released.lock, now=12, idle_since=released.idle_since), RULES)
    over = decide(seen(released.lock, now=15, idle_since=released.idle_since), RULES)

    assert (released.step, released.lock, released.again_s) == (Step.LINGER, standing("locked"), 5.0)
    assert (lingering.step, lingering.again_s) == (Step.LINGER, 3.0)
    assert (over.step, over.lock) == (Step.OPEN, OPEN)


def test_a_job_that_comes_while_the_lock_lingers_needs_no_new_taint() -> None:
    decision = decide(
        seen(standing("locked"), now=12, requests=(ask(2, asked=12),), idle_since=at(10)), RULES
    )

    assert (decision.step, decision.lock) == (Step.LOOK, standing("locked"))


def test_a_lagging_bus_does_not_bring_a_released_job_back() -> None:
    lock = standing("locked", holder(granted=1))

    decision = decide(
        seen(lock, now=10, released={1: at(10)}, jobs={1: job("running", changed=2)}, idle_since=at(10)),
        RULES,
    )

    assert decision.lock.holders == ()


def test_a_job_seen_to_run_after_its_release_runs_again_and_holds() -> None:
    released = {1: at(10)}
    found = {1: job("running", changed=140)}

    decision = decide(seen(now=140, released=released, jobs=found), RULES)

    assert decision.lock == standing("pending", holder(asked=140))
    assert still_released(released, found, at(140)) == {}


def test_a_release_is_remembered_until_slurm_has_said_something_newer() -> None:
    released = {1: at(10), 2: at(10), 3: at(10)}
    found = {1: job("running", changed=9), 2: job("left", changed=11)}

    assert still_released(released, found, at(20)) == {1: at(10), 3: at(10)}
    assert still_released(released, found, at(5000)) == {}


def test_a_release_ends_the_wait_of_a_prolog_that_asked_before() -> None:
    lock = standing("pending", holder())

    decision = decide(seen(lock, now=3, requests=(ask(),), released={1: at(2)}), RULES)

    assert decision.answers == {1: NotRunning("COMPLETING")}
    assert decision.lock.holders == ()


@pytest.mark.parametrize(
    ("now", "found", "answer"),
    [
        pytest.param(3, job("running", changed=0), Unsure(), id="the bus is older than the release"),
        pytest.param(3, None, Unsure(), id="the bus does not know the job"),
        pytest.param(
            3, job("left", changed=2.5, state="COMPLETED"), NotRunning("COMPLETED"), id="it is over"
        ),
        pytest.param(3, job("running", changed=2.9), None, id="it runs again"),
        pytest.param(14, job("running", changed=0), None, id="too late to be a call from before"),
    ],
)
def test_a_call_that_its_own_release_has_overtaken_locks_nothing(
    now: float, found: JobSeen | None, answer: object
) -> None:
    jobs = {} if found is None else {1: found}

    decision = decide(seen(now=now, requests=(ask(asked=now),), released={1: at(2)}, jobs=jobs), RULES)

    assert decision.answers.get(1) == answer
    assert bool(decision.lock.holders) == (answer is None)


# --- What Slurm says --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        pytest.param(None, None, id="not on the bus yet: it runs"),
        pytest.param(
            job("waiting", changed=-9, state="PENDING"), None, id="pending as far as known: it runs"
        ),
        pytest.param(job("running", changed=0.1), None, id="running"),
        pytest.param(
            job("completing", changed=3, state="CANCELLED"), NotRunning("CANCELLED"), id="cancelled: 200"
        ),
        pytest.param(job("left", changed=3, state="COMPLETED"), NotRunning("COMPLETED"), id="over"),
        pytest.param(job("left", changed=-1, state="FAILED"), NotRunning("FAILED"), id="the call came late"),
        pytest.param(job("left", changed=-99, state="FAILED"), None, id="over in a run long before this one"),
    ],
)
def test_a_prolog_is_told_at_once_when_its_job_no_longer_runs(found: JobSeen | None, answer: object) -> None:
    lock = standing("pending", holder())

    decision = decide(
        seen(lock, now=4, requests=(ask(),), way=WEB, jobs={} if found is None else {1: found}), RULES
    )

    assert decision.answers == {1: answer or Waiting(("default/web",))}


def test_a_prolog_that_asks_again_of_a_new_leader_is_known_by_the_time_on_the_node() -> None:
    lock = standing("pending", holder(asked=0))
    cancelled = {1: job("completing", changed=3, state="CANCELLED")}

    decision = decide(seen(lock, now=60, requests=(ask(asked=60),), jobs=cancelled), RULES)

    assert decision.answers == {1: NotRunning("CANCELLED")}


@pytest.mark.parametrize(
    ("found", "busy", "observed", "stays"),
    [
        pytest.param(job("running", changed=2), True, 900, True, id="it runs"),
        pytest.param(job("completing", changed=5), True, 900, True, id="its processes may still be there"),
        pytest.param(job("left", changed=5), True, 5, False, id="seen to be over after the grant"),
        pytest.param(job("left", changed=-9), True, 5, True, id="seen to be over long before it asked"),
        pytest.param(job("waiting", changed=-9), True, 900, True, id="pending on the bus, the node busy"),
        pytest.param(job("waiting", changed=-9), False, 900, False, id="pending, long observed, node idle"),
        pytest.param(None, False, 5, True, id="absent: not on the bus yet"),
        pytest.param(None, False, None, True, id="absent: nobody observes Slurm"),
        pytest.param(None, False, 900, False, id="absent, long observed, node idle"),
        pytest.param(None, True, 900, True, id="absent, but the node is busy"),
    ],
)
def test_a_holder_without_release_ends_only_by_what_slurm_says_after_the_grant(
    found: JobSeen | None, *, busy: bool, observed: float | None, stays: bool
) -> None:
    lock = standing("locked", holder(granted=1))
    view = seen(
        lock,
        now=1000,
        jobs={} if found is None else {1: found},
        is_node_busy=busy,
        observed=None if observed is None else at(observed),
    )

    assert bool(decide(view, RULES).lock.holders) == stays


def test_a_placeholder_holds_as_long_as_its_pod_is_there_even_when_released_and_over() -> None:
    lock = standing("locked_strict", holder(level="strict", granted=1))
    over = {"released": {1: at(9)}, "jobs": {1: job("left", changed=8)}}

    there = decide(seen(lock, now=10, placeholders={1: True}, **over), RULES)
    gone = decide(seen(lock, now=11, placeholders={1: False}, **over), RULES)

    assert there.lock == lock
    assert gone.lock.holders == ()


@pytest.mark.parametrize(
    ("more", "found", "doubted"),
    [
        pytest.param({"requests": (ask(),)}, CLEAR, {5, 6}, id="a prolog asks beside the Pods of two jobs"),
        pytest.param({"requests": (ask(5),)}, CLEAR, {6}, id="a prolog knows that its own job runs"),
        pytest.param({"requests": (ask(), ask(5))}, CLEAR, {6}, id="so do two that ask together"),
        pytest.param(
            {"requests": (ask(5),), "placeholders": {5: True}},
            CLEAR,
            {5, 6},
            id="one that asks although its Pod is there has the number of a job that was lost",
        ),
        pytest.param({"requests": (ask(),)}, WEB, set[int](), id="it waits for another Pod anyway"),
        pytest.param(
            {"requests": (ask(),)}, GOING, {5, 6}, id="as does not, whose level has nobody in the way"
        ),
        pytest.param({"requests": (ask(1, "strict"),)}, GOING, set[int](), id="as does, whose level has"),
        pytest.param({}, CLEAR, set[int](), id="nobody waits"),
        pytest.param(
            {"jobs": {5: job("running", changed=0)}}, CLEAR, {6}, id="who is seen to run is clear of its own"
        ),
        pytest.param(
            {"requests": (ask(),), "jobs": {1: job("left", changed=0)}},
            CLEAR,
            set[int](),
            id="a prolog whose job is over",
        ),
    ],
)
def test_slurm_is_asked_for_the_jobs_of_the_pods_beside_which_somebody_may_be_granted(
    more: dict[str, object], found: Blockers, doubted: set[int]
) -> None:
    view = replace(seen(standing("pending")), **more)

    assert to_confirm(view, frozenset({5, 6}), found, RULES) == doubted


def test_a_job_that_comes_to_the_bus_during_a_look_is_not_granted_beside_a_pod_of_an_unasked_one() -> None:
    looked = seen(
        standing("locked_strict", holder(5, "strict", granted=0)), jobs={5: job("running", changed=0)}
    )
    assert to_confirm(looked, frozenset({5}), CLEAR, RULES) == frozenset()  # Nobody waits.
    found, came = Blockers(unasked=frozenset({5})), {6: job("running", changed=1)}

    decision = decide(replace(looked, way=found, jobs={**looked.jobs, **came}), RULES)
    again = to_confirm(replace(looked, jobs={**looked.jobs, **came}), frozenset({5}), CLEAR, RULES)

    assert {one.job: one.granted for one in decision.lock.holders} == {5: at(0), 6: None}
    assert (decision.lock.value, decision.again_s) == ("pending", 0.1)
    assert again == {5}


def test_whose_own_pod_it_is_waits_for_nobody_to_be_asked() -> None:
    decision = decide(seen(standing("pending", holder(5)), way=Blockers(unasked=frozenset({5}))), RULES)

    assert decision.lock.value == "locked"


def test_whose_pod_is_there_before_its_prolog_has_ended_is_not_granted_before_slurm_was_asked() -> None:
    lock, found = standing("pending", holder(5)), Blockers(unasked=frozenset({5}))
    decision = decide(seen(lock, way=found, placeholders={5: True}), RULES)

    assert decision.lock.value == "pending"


def test_a_job_runs_by_the_word_of_its_prolog_until_it_is_over_or_its_pod_has_come() -> None:
    view = seen(standing("pending"), requests=(ask(5), ask(6)), jobs={6: job("left", changed=0)})

    assert known_to_run(view, RULES) == {5}
    assert known_to_run(replace(view, placeholders={5: False}), RULES) == {5}
    assert known_to_run(replace(view, placeholders={5: True}), RULES) == set()


def test_while_nobody_says_whether_a_job_runs_the_pods_are_looked_at_again_soon_and_later_less_often() -> (
    None
):
    lock, silence = standing("pending", holder()), replace(WEB, is_unheard=True)

    heard = decide(seen(lock, way=WEB), RULES)
    unheard = [decide(seen(lock, now=now, way=silence), RULES).again_s for now in (0, 40, 3600)]

    assert (heard.again_s, unheard) == (30, [1, 5, 15])


def test_a_pod_is_ours_while_its_job_lives_here_and_in_the_way_once_it_does_not() -> None:
    lock = standing("locked_strict", *(holder(n, "strict", granted=1) for n in (1, 2, 3)))
    view = seen(
        lock,
        now=10,
        jobs={
            1: job("running", changed=2),
            2: job("completing", changed=8),
            4: job("running", changed=2),
            5: job("running", changed=2),
        },
        placeholders={1: True, 2: True, 3: True},
        released={4: at(9)},
    )

    assert alive(view, RULES) == {1, 3, 5}  # 3 is not on the bus yet; 4 has been released.


# --- Never ------------------------------------------------------------------------------------------

moments = st.integers(-20, 120).map(float)
ids = st.integers(1, 3)
levels = st.sampled_from(["normal", "strict"])
holders = st.builds(holder, ids, levels, asked=moments, granted=st.none() | moments)
locks = st.builds(
    NodeLock,
    value=st.sampled_from(["false", "pending", "locked", "locked_strict"]),
    holders=st.lists(holders, max_size=3, unique_by=lambda found: found.job).map(
        lambda found: tuple(sorted(found, key=lambda one: one.job))
    ),
    is_tainted=st.booleans(),
)
jobs_seen = st.dictionaries(
    ids, st.builds(job, st.sampled_from(["waiting", "running", "completing", "left"]), changed=moments)
)
ways = st.sampled_from([None, CLEAR, WEB, GOING])
views = st.builds(
    Seen,
    lock=locks,
    now=st.just(at(100)),
    requests=st.lists(
        st.builds(ask, ids, levels, asked=moments), max_size=3, unique_by=lambda one: one.job
    ).map(tuple),
    released=st.dictionaries(ids, moments.map(at)),
    jobs=jobs_seen,
    placeholders=st.dictionaries(ids, st.booleans()),
    is_node_busy=st.booleans(),
    observed=st.none() | moments.map(at),
    idle_since=st.none() | moments.map(at),
    way=ways,
)


@given(views)
def test_nobody_is_granted_a_lock_while_a_workload_is_in_its_way(view: Seen) -> None:
    decision = decide(view, RULES)
    before = {found.job: found.granted for found in view.lock.holders}
    fresh = [found for found in decision.lock.holders if found.granted not in {None, before.get(found.job)}]

    assert all(view.way is not None and not view.way.of(found.level) for found in fresh)
    assert not fresh or (view.lock.is_tainted and view.lock.value != "false")


@given(views)
def test_a_prolog_is_told_locked_only_when_taint_and_annotation_stand_and_it_holds(view: Seen) -> None:
    decision = decide(view, RULES)
    granted = {job_id for job_id, answer in decision.answers.items() if answer == Granted()}

    assert granted <= {found.job for found in decision.lock.holders if found.granted is not None}
    assert not granted or (decision.lock.is_tainted and decision.lock.value != "false")


@given(views)
def test_no_lock_is_taken_off_a_job_that_runs_or_a_placeholder_whose_pod_is_there(view: Seen) -> None:
    kept = {found.job for found in decide(view, RULES).lock.holders}
    for found in view.lock.holders:
        runs = (seen_job := view.jobs.get(found.job)) is not None and seen_job.place == "running"
        has_pod = view.placeholders.get(found.job, False)
        if has_pod or (runs and found.job not in view.released):
            assert found.job in kept


@given(views)
def test_a_lock_always_says_on_the_node_what_it_is(view: Seen) -> None:
    lock = decide(view, RULES).lock
    step = decide(view, RULES).step

    assert step is Step.LOOK or lock.is_tainted == (lock.value != "false")
    assert decide(view, RULES) == decide(view, RULES)


@given(views)
def test_every_turn_ends(view: Seen) -> None:
    for _ in range(6):
        decision = decide(view, RULES)
        if decision.step is Step.LOOK:
            view = replace(view, way=WEB)
        elif decision.step is Step.CLOSE:
            view = replace(view, lock=decision.lock, way=None)
        else:
            return
    pytest.fail(f"still going: {decide(view, RULES)}")


def test_the_bus_is_told_who_is_in_the_way_of_those_who_wait_as_their_level_asks() -> None:
    normal = decide(seen(standing("pending", holder()), way=GOING), RULES)
    strict = decide(seen(standing("pending", holder(), holder(2, "strict")), way=GOING), RULES)

    assert normal.in_the_way == ()
    assert strict.in_the_way == GOING.strict


@pytest.mark.parametrize("lock", [standing("pending", holder()), standing("locked"), OPEN])
def test_before_the_lock_of_a_refused_job_goes_it_is_known_whether_the_pods_of_the_drain_are_gone(
    lock: NodeLock,
) -> None:
    drained = seen(lock, now=1, drained_for=WEB.strict, released={1: at(1)})

    first = decide(drained, RULES)
    then = decide(replace(drained, way=WEB), RULES)

    assert (first.step, first.lock) == (Step.LOOK, lock)
    assert (then.step, then.lock) == (Step.OPEN if lock.is_tainted else Step.WATCH, OPEN)
    assert (then.in_the_way, then.is_drained) == (WEB.strict, True)
    assert then.again_s is not None


def test_only_the_pods_that_the_drain_names_keep_it() -> None:
    others = Blockers(normal=("default/new",), strict=("default/new", "default/web"))
    drained = seen(drained_for=("default/web", "default/gone"), way=others)

    assert decide(drained, RULES).in_the_way == ("default/web",)
    assert decide(replace(drained, way=Blockers(normal=("default/new",))), RULES).in_the_way == ()


def test_a_node_whose_drain_is_lifted_is_looked_at_no_longer() -> None:
    decision = decide(seen(idle_since=at(0), now=1), RULES)

    assert (decision.step, decision.is_drained, decision.again_s) == (Step.REST, False, None)


def test_a_job_on_a_drained_node_keeps_its_lock() -> None:
    lock = standing("locked", holder(granted=1))

    drained = seen(lock, now=2, drained_for=WEB.strict, jobs={1: job("running", changed=1)})

    assert decide(drained, RULES).step is Step.LOOK
    decision = decide(replace(drained, way=GOING), RULES)
    assert (decision.step, decision.lock, decision.in_the_way) == (Step.KEEP, lock, GOING.strict)


def test_a_taint_of_other_settings_is_taken_off_a_node_that_nobody_needs() -> None:
    decision = decide(seen(replace(OPEN, has_old_taint=True), idle_since=at(0), now=60), RULES)

    assert (decision.step, decision.lock) == (Step.OPEN, OPEN)


def test_who_came_in_past_the_taint_is_told_of_while_the_lock_is_held() -> None:
    decision = decide(seen(standing("locked", holder(granted=1)), now=2, way=WEB), RULES)

    assert (decision.step, decision.in_the_way) == (Step.KEEP, WEB.normal)
