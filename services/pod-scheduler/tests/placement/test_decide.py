from datetime import datetime, timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.jobs import Allocation, SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_events.placements import Gang, GangMember, PlacementPhase, PlacementState
from sunk_kube.pods import ContainerState, ContainerStatus, ContainerTerminated, PodStatus
from sunk_pod_scheduler.controller.placement_index import PlacementIndex
from sunk_pod_scheduler.placement.actions import (
    Action,
    Bind,
    CancelJob,
    DeletePod,
    Forget,
    GiveUp,
    MarkStarted,
    Record,
    RecordReason,
    Refuse,
    ReleaseJob,
    ReportLoss,
    Resume,
    Submit,
    Wait,
)
from sunk_pod_scheduler.placement.decide import decide
from sunk_pod_scheduler.placement.explain import FINDINGS_MAX, explain
from sunk_pod_scheduler.placement.heartbeat import are_many
from sunk_pod_scheduler.placement.limits import (
    ASK_AGAIN_S,
    ENDED_GRACE_S,
    FORGOTTEN_CONFIRM_S,
    LOOK_AGAIN_S,
    LOST_CONFIRM_S,
    SILENT_FIRST_S,
    START_AGAIN_S,
    START_OFF_MIN_S,
    WAITING_AGAIN_S,
    WAITING_FIRST_S,
    Limits,
    backoff_s,
)
from sunk_pod_scheduler.placement.lost_jobs import (
    LEAVES,
    given_away,
    has_old_number,
    is_in_doubt,
    is_replaced,
    ran,
    why,
)
from sunk_pod_scheduler.placement.marks import Claim
from sunk_pod_scheduler.placement.model import (
    AnyJob,
    JobGone,
    JobSeen,
    JobUnknown,
    Observed,
    PodSeen,
    pod_seen,
)
from sunk_pod_scheduler.placement.node_filter import without_jobs
from sunk_pod_scheduler.placement.pending_jobs import PRIORITY_S
from sunk_pod_scheduler.podspec.job_size import Size, add_held
from sunk_pod_scheduler.podspec.scopes import PodScope
from sunk_pod_scheduler.podspec.validation import Rules
from sunk_pod_scheduler.testing.builders import (
    JOB,
    KEY,
    KUBE_NODE,
    SLURM_NODE,
    T0,
    job,
    lock,
    manifest,
    placement,
    pod,
    seen,
)
from sunk_runtime.changes import Changes

LIMITS = Limits(kill_wait_s=30, hooks_url="http://hooks:8081")
GONE = JobGone()
UNKNOWN = JobUnknown()
HELD = job("PENDING", is_held=True, reason="JobHeldUser")
PENDING = job("PENDING", reason="Priority")
PLANNED = job("PENDING", reason="None")
RUNNING = job()
STARTED = job(is_marked_started=True)
CANCELLED = job("CANCELLED")
REQUEUED = replace(job("PENDING", reason="BeginTime"), is_requeued=True)
"""No slurmd has acknowledged its launch: Slurm starts it again after two minutes."""
BOUND = pod(kube_node=KUBE_NODE)
LEAVING = pod(kube_node=KUBE_NODE, is_terminating=True)


def act(found: Observed, *, after_s: float = 0.0) -> Action:
    return decide(found, T0 + timedelta(seconds=after_s), LIMITS)


def test_a_job_with_its_priority_is_released_and_one_that_does_not_get_it_is_after_a_while() -> None:
    asks = replace(pod(), priority=77)
    found = seen(asks, placement("submitted"), replace(PENDING, priority=77))
    other = seen(asks, placement("submitted"), replace(PENDING, priority=4))

    assert phase_after(act(found)) == "Record released"
    assert phase_after(act(other, after_s=PRIORITY_S)) == "Record released"


def test_a_script_that_never_announces_itself_is_said_to_be_silent_with_where_it_should_call() -> None:
    running = replace(RUNNING, started=T0 + timedelta(seconds=10))
    found = seen(pod(), placement("released"), running)

    assert act(found, after_s=30) == Wait(10.0)
    said = act(found, after_s=40)
    assert isinstance(said, RecordReason)
    assert (said.event, said.is_warning) == ("ScriptSilent", True)
    assert all(word in said.state.reason for word in (str(JOB), SLURM_NODE, LIMITS.hooks_url))
    assert act(replace(found, placement=said.state), after_s=41) == Wait(LOOK_AGAIN_S)


def test_a_job_in_its_prolog_is_said_to_wait_for_the_lock_and_its_script_is_silent_only_later() -> None:
    prolog = seen(pod(), placement("released"), replace(RUNNING, reason="Prolog", started=T0))
    said = act(prolog, after_s=WAITING_FIRST_S)

    assert isinstance(said, RecordReason)
    assert (said.event, said.is_warning) == ("WaitingForLock", False)
    through = seen(pod(), said.state, replace(RUNNING, started=T0))
    assert act(through, after_s=31) == Wait(WAITING_FIRST_S + SILENT_FIRST_S - 31)


def phase_after(action: Action) -> str:
    """The phase that is stored next, or what is done instead."""
    match action:
        case (
            ReportLoss(state=state)
            | Record(state=state)
            | Bind(state=state)
            | Refuse(state=state)
            | RecordReason(state=state)
            | GiveUp(state=state)
        ):
            overdue = " overdue" if state.is_overdue else ""
            return f"{type(action).__name__} {state.phase}{overdue}"
        case Wait():
            return "Wait"
        case _:
            return type(action).__name__


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(seen(pod(), None, GONE), Submit(0), id="a new pod gets a job"),
        pytest.param(seen(None, None, GONE), Wait(), id="no pod, no placement: nothing to do"),
        pytest.param(seen(pod(is_terminating=True), None, GONE), Wait(), id="a pod that leaves gets no job"),
        pytest.param(seen(BOUND, None, GONE), Wait(), id="a pod that others bound is not ours"),
        pytest.param(
            seen(replace(pod(), is_gated=True), None, GONE), Wait(), id="a gated pod waits for its gates"
        ),
        pytest.param(
            seen(pod(), placement("submitted", job=None), GONE),
            Resume(0),
            id="an intent without a job: look for the job first",
        ),
        pytest.param(
            seen(pod(), placement("submitted", job=None, digest=""), GONE),
            Submit(0),
            id="an intent that was withdrawn: submit",
        ),
        pytest.param(
            seen(pod(), placement("submitted", job=None, digest="", attempt=3), GONE),
            Wait(4.0),
            id="after three jobs the fourth waits",
        ),
        pytest.param(
            seen(pod(), placement("submitted"), HELD), ReleaseJob(JOB), id="its id is stored: release"
        ),
        pytest.param(
            seen(replace(pod(), priority=77), placement("submitted"), HELD),
            ReleaseJob(JOB, 77),
            id="with the priority that it asks for",
        ),
        pytest.param(
            seen(replace(pod(), priority=77), placement("submitted"), replace(PENDING, priority=4)),
            ReleaseJob(JOB, 77),
            id="released, and killed before the priority was set: again",
        ),
        pytest.param(
            seen(pod(), placement("submitted"), replace(PENDING, is_ours=False)),
            ReleaseJob(JOB),
            id="its user has released it: it gets its AdminComment",
        ),
        pytest.param(
            seen(pod(), placement("released"), HELD),
            Wait(WAITING_FIRST_S, is_patient=True),
            id="somebody holds a released job: theirs to release",
        ),
        pytest.param(
            seen(pod(), placement("released"), PENDING),
            Wait(WAITING_FIRST_S, is_patient=True),
            id="Slurm has no room",
        ),
        pytest.param(
            seen(pod(), placement("released"), RUNNING), Wait(LOOK_AGAIN_S), id="the prolog still runs"
        ),
        pytest.param(
            seen(pod(), placement("started", node=SLURM_NODE), RUNNING),
            MarkStarted(JOB, "{}"),
            id="announced: extra says started before the pod is bound",
        ),
        pytest.param(
            seen(pod(), placement("started", node=SLURM_NODE), replace(STARTED, is_ours=False)),
            MarkStarted(JOB, "{}"),
            id="its user has released it and says that it has started: it gets its AdminComment",
        ),
        pytest.param(
            seen(pod(), placement("started", node=SLURM_NODE), STARTED, kube_node=""),
            Wait(ASK_AGAIN_S),
            id="a slurm node whose Node is not known: nothing is bound",
        ),
        pytest.param(
            seen(pod(), placement("started", node=SLURM_NODE), UNKNOWN),
            Wait(ASK_AGAIN_S),
            id="Slurm does not answer: nothing is bound",
        ),
        pytest.param(
            seen(BOUND, placement("bound", node=SLURM_NODE), STARTED), Wait(), id="bound and running"
        ),
        pytest.param(
            seen(BOUND, placement("bound", node=SLURM_NODE), UNKNOWN),
            Wait(ASK_AGAIN_S),
            id="Slurm does not answer: the pod stays",
        ),
        pytest.param(
            seen(BOUND, placement("ending", node=SLURM_NODE), CANCELLED), DeletePod(), id="the pod must go"
        ),
        pytest.param(
            seen(LEAVING, placement("ending", node=SLURM_NODE), RUNNING),
            Wait(LOOK_AGAIN_S),
            id="the job keeps the node while the pod leaves",
        ),
        pytest.param(
            seen(None, placement("ended", node=SLURM_NODE), RUNNING),
            Wait(ENDED_GRACE_S),
            id="the script is given time to end",
        ),
        pytest.param(
            seen(None, placement("ended", node=SLURM_NODE), job("SUSPENDED")),
            CancelJob(JOB),
            id="a stopped script ends nothing",
        ),
        pytest.param(
            seen(None, placement("ended"), PENDING), CancelJob(JOB), id="a job that waits has no script"
        ),
        pytest.param(
            seen(None, placement("ended"), RUNNING), CancelJob(JOB), id="a script that was never heard of"
        ),
        pytest.param(seen(None, placement("ended"), UNKNOWN), Wait(ASK_AGAIN_S), id="unknown is not over"),
        pytest.param(seen(None, placement("ended"), CANCELLED), Forget(), id="both are over"),
        pytest.param(
            seen(None, placement("ended"), job("CANCELLED", is_completing=True)),
            Wait(LOOK_AGAIN_S),
            id="an epilog still runs",
        ),
        pytest.param(seen(None, placement("ended"), GONE), Forget(), id="Slurm has forgotten the job"),
        pytest.param(seen(None, placement("refused", job=None), GONE), Forget(), id="a refused pod is gone"),
        pytest.param(
            seen(pod(), placement("refused", job=None), GONE), Submit(0), id="a refused pod was mended"
        ),
    ],
)
def test_does_the_next_thing(found: Observed, expected: Action) -> None:
    assert act(found) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            seen(pod(problems=("no cpu",)), None, GONE), "Refuse refused", id="an invalid pod is refused"
        ),
        pytest.param(
            seen(pod(), placement("submitted"), PENDING), "Record released", id="released before a crash"
        ),
        pytest.param(
            seen(pod(), placement("released"), RUNNING, announced_on=SLURM_NODE),
            "Record started",
            id="its script announces itself",
        ),
        pytest.param(
            seen(pod(), placement("submitted"), RUNNING, announced_on=SLURM_NODE),
            "Record started",
            id="its script is faster than we",
        ),
        pytest.param(
            seen(pod(), placement("released"), RUNNING, announced_on="other"),
            "Wait",
            id="announced from a node that the job does not have",
        ),
        pytest.param(
            seen(pod(), placement("released"), job(is_marked_started=True, reason="Prolog")),
            "Wait",
            id="extra says started, Slurm says prolog: extra is the user's to write",
        ),
        pytest.param(
            seen(pod(), placement("released"), STARTED),
            "Record started",
            id="the bucket was lost after it started",
        ),
        pytest.param(
            seen(pod(), placement("released"), job("PENDING", is_held=True, reason="JobHeldAdmin")),
            "RecordReason released",
            id="Slurm does not know the user",
        ),
        pytest.param(
            seen(pod(), placement("started", node=SLURM_NODE), STARTED), "Bind bound", id="all is well: bind"
        ),
        pytest.param(
            seen(BOUND, placement("started", node=SLURM_NODE), STARTED),
            "Record bound",
            id="bound before a crash",
        ),
        pytest.param(
            seen(pod(kube_node="node9"), placement("started", node=SLURM_NODE), STARTED),
            "Record ending",
            id="somebody bound it elsewhere",
        ),
        pytest.param(
            seen(pod(), placement("started", node=SLURM_NODE), STARTED, node_problem="a taint"),
            "GiveUp submitted",
            id="the Node will not do: another job",
        ),
        pytest.param(
            seen(
                replace(pod(), size=Size(cpus=8, gpus=8)),
                placement("started", node=SLURM_NODE),
                replace(STARTED, held={SLURM_NODE: Size(cpus=1)}),
            ),
            "GiveUp submitted",
            id="somebody made the job smaller than its pod: another job",
        ),
        pytest.param(
            seen(pod(), placement("started", node=SLURM_NODE), STARTED, is_release_requested=True),
            "Record submitted",
            id="the job ends before its pod is bound: another job",
        ),
        pytest.param(
            seen(pod(), placement("started", node=SLURM_NODE), replace(STARTED, nodes=("gpu-9",))),
            "GiveUp submitted",
            id="the job runs elsewhere: another job, and this one ends at once",
        ),
        pytest.param(
            seen(pod(), placement("released"), job("SUSPENDED")),
            "GiveUp submitted",
            id="the job was stopped before its pod was bound: it ends",
        ),
        pytest.param(
            replace(seen(pod(), placement("released"), replace(PENDING, excluded="gpu-1")), excluded="gpu-2"),
            "ExcludeNodes",
            id="other nodes do for the pod by now",
        ),
        pytest.param(
            replace(seen(pod(), placement("submitted"), replace(PENDING, excluded="gpu-1")), excluded=""),
            "ExcludeNodes",
            id="all do by now, and the job is not released yet",
        ),
        pytest.param(
            replace(seen(pod(), placement("released"), replace(PENDING, excluded="gpu-1")), excluded="gpu-1"),
            "Wait",
            id="the same nodes do for the pod",
        ),
        pytest.param(
            replace(seen(pod(), placement("released"), PENDING), excluded="gpu-1"),
            "Wait",
            id="nobody has looked what the job was told",
        ),
        pytest.param(seen(pod(), placement("released"), GONE), "Record submitted", id="the job vanished"),
        pytest.param(
            seen(pod(), placement("released"), CANCELLED), "Record submitted", id="the job was cancelled"
        ),
        pytest.param(
            seen(BOUND, placement("started", node=SLURM_NODE), CANCELLED),
            "Record ending",
            id="bound, not stored, and the job is over",
        ),
        pytest.param(seen(None, placement("submitted"), HELD), "Record ended", id="the pod left early"),
        pytest.param(
            seen(None, placement("submitted", job=None), GONE),
            "Record ended",
            id="the pod left before its job came",
        ),
        pytest.param(
            seen(pod(is_terminating=True), placement("released"), PENDING),
            "Record ended",
            id="an unbound pod leaves",
        ),
        *(
            pytest.param(
                seen(BOUND, placement("bound", node=SLURM_NODE), found),
                "Record ending",
                id=f"bound, job {name}",
            )
            for name, found in {
                "cancelled, completing": job("CANCELLED", is_completing=True),
                "cancelled": CANCELLED,
                "timed out": job("TIMEOUT", is_completing=True),
                "preempted": job("PREEMPTED", is_completing=True),
                "lost its node": job("NODE_FAIL"),
                "failed": job("FAILED"),
                "ended, and forgotten since": JobGone(has_ended=True),
                "suspended": job("SUSPENDED"),
                "pending again": PENDING,
                "on another node": job(nodes=("gpu-000-013",)),
            }.items()
        ),
        pytest.param(
            seen(BOUND, placement("bound", node=SLURM_NODE), STARTED, is_release_requested=True),
            "Record ending",
            id="the script asks for the pod's end",
        ),
        pytest.param(
            seen(LEAVING, placement("bound", node=SLURM_NODE), UNKNOWN),
            "Record ending",
            id="the pod is deleted",
        ),
        pytest.param(
            seen(None, placement("bound", node=SLURM_NODE), UNKNOWN),
            "Record ended",
            id="the pod is gone: its end needs no answer of Slurm",
        ),
        pytest.param(
            seen(LEAVING, placement("ending", node=SLURM_NODE), CANCELLED),
            "Record ending overdue",
            id="the job has left its node and the pod has not",
        ),
        pytest.param(
            seen(LEAVING, placement("ending", node=SLURM_NODE), GONE),
            "Record ending overdue",
            id="the job vanished and the pod is still there",
        ),
        pytest.param(
            seen(LEAVING, placement("ending", node=SLURM_NODE), UNKNOWN), "Wait", id="unknown is not gone"
        ),
        pytest.param(
            seen(pod(is_over=True), placement("ending", node=SLURM_NODE), RUNNING),
            "Record ended",
            id="it finished",
        ),
    ],
)
def test_stores_what_is_the_case(found: Observed, expected: str) -> None:
    assert phase_after(act(found)) == expected


def test_an_adopted_job_goes_on_where_it_was_when_the_bucket_was_lost() -> None:
    claimed = replace(pod(), claim=Claim(job=JOB, attempt=2, mark="m"))

    action = act(seen(claimed, None, PENDING))

    assert isinstance(action, Record)
    assert (action.state.phase, action.state.job, action.state.attempt) == ("submitted", JOB, 2)
    assert act(seen(claimed, None, UNKNOWN)) == Wait(ASK_AGAIN_S)
    assert act(seen(claimed, None, CANCELLED)) == Submit(3)


def test_a_node_is_overdue_five_seconds_before_kill_wait_ends() -> None:
    ending = placement("ending", node=SLURM_NODE)
    found = seen(LEAVING, ending, job("CANCELLED", is_completing=True, ended=T0))

    assert isinstance(act(found, after_s=24.9), Wait)
    assert act(found, after_s=25) == Record(state=replace(ending, is_overdue=True))


def test_a_script_that_does_not_end_its_job_is_not_waited_for_for_ever() -> None:
    found = seen(None, placement("ended", node=SLURM_NODE), RUNNING)

    assert act(found, after_s=ENDED_GRACE_S) == CancelJob(JOB)


@pytest.mark.parametrize("code", [0, 3])
def test_the_job_is_told_the_pods_exit_code(code: int) -> None:
    over = pod(kube_node=KUBE_NODE, is_over=True, exit_code=code)

    action = act(seen(over, placement("bound", node=SLURM_NODE), STARTED))

    assert isinstance(action, Record)
    assert (action.state.phase, action.state.exit_code, action.state.is_pod_present) == ("ended", code, False)


def test_a_lost_job_is_followed_by_another_with_another_token_later_each_time() -> None:
    action = act(seen(pod(), placement("released"), CANCELLED))

    assert isinstance(action, Record)
    assert (action.state.attempt, action.state.job, action.state.token_sha256) == (1, None, "")
    assert [backoff_s(attempt) for attempt in (0, 1, 2, 5, 50)] == [0, 1, 2, 16, 300]


@pytest.mark.parametrize("attempt", [1024, 1025, 1_000_000])
def test_a_pod_that_was_tried_for_weeks_is_tried_again(attempt: int) -> None:
    waits = replace(placement("submitted", job=None, attempt=attempt, digest=""), reason="no such partition")

    assert act(seen(pod(), waits, GONE), after_s=299) == Wait(1.0)
    assert act(seen(pod(), waits, GONE), after_s=300) == Submit(attempt)


def test_a_refusal_is_said_again_only_when_the_pod_changed() -> None:
    first = act(seen(pod(problems=("no cpu",)), None, GONE))
    assert isinstance(first, Refuse)

    assert act(seen(pod(problems=("no cpu",)), first.state, GONE)) == Wait()
    assert isinstance(act(seen(pod(problems=("no memory",)), first.state, GONE)), Refuse)


def test_a_pod_that_waits_says_slurms_own_reason_and_not_each_of_its_turns() -> None:
    described = replace(job("PENDING", reason="ReqNodeNotAvail"), description="UnavailableNodes:gpu-1")

    said = act(seen(pod(), placement("released"), described), after_s=WAITING_FIRST_S)

    assert isinstance(said, RecordReason)
    assert said.event == "WaitingForSlurm"
    assert said.state.reason == "job 7 waits in Slurm: ReqNodeNotAvail (UnavailableNodes:gpu-1)"
    soon, later = WAITING_FIRST_S + 1, WAITING_FIRST_S + WAITING_AGAIN_S
    assert act(seen(pod(), said.state, described), after_s=later) == Wait(LOOK_AGAIN_S, is_patient=True)
    assert act(seen(pod(), said.state, PENDING), after_s=soon) == Wait(LOOK_AGAIN_S, is_patient=True)
    assert isinstance(act(seen(pod(), said.state, PENDING), after_s=later), RecordReason)


def expects(hours: float, *, seconds: float = 0) -> JobSeen:
    """Return a job that waits, and that Slurm expects to start so long after `T0`."""
    return replace(PENDING, started=T0 + timedelta(hours=hours, seconds=seconds))


def test_a_pod_that_waits_says_when_slurm_expects_to_start_its_job_by_condition_alone() -> None:
    first = act(seen(pod(), placement("released"), PENDING), after_s=WAITING_FIRST_S)
    assert isinstance(first, RecordReason)
    assert (first.more, first.is_quiet) == ("", False)

    planned = seen(pod(), first.state, expects(4))
    assert act(planned, after_s=WAITING_FIRST_S + 1) == Wait(LOOK_AGAIN_S, is_patient=True)
    told = act(planned, after_s=WAITING_FIRST_S + WAITING_AGAIN_S)

    assert isinstance(told, RecordReason)
    assert told.state.reason == first.state.reason
    assert told.state.start_told == T0 + timedelta(hours=4)
    assert told.more == "; Slurm expects to start it at about 2026-01-05 16:00 UTC"
    assert told.is_quiet


def test_an_expected_start_that_moves_a_little_is_not_said_again() -> None:
    told = replace(placement("released"), reason=reason_of(PENDING), start_told=T0 + timedelta(hours=4))
    nearby = [expects(4, seconds=sign * START_OFF_MIN_S) for sign in (-1, 1)] + [expects(4.9), expects(3.3)]

    for near in nearby:
        assert act(seen(pod(), told, near), after_s=START_AGAIN_S) == Wait(LOOK_AGAIN_S, is_patient=True)
    assert isinstance(act(seen(pod(), told, expects(9)), after_s=START_AGAIN_S), RecordReason)
    assert isinstance(act(seen(pod(), told, expects(9)), after_s=START_AGAIN_S - 1), Wait)


def test_a_start_that_is_overdue_is_no_expected_one() -> None:
    told = replace(placement("released"), reason=reason_of(PENDING), start_told=T0)
    gone = act(seen(pod(), told, expects(0, seconds=START_AGAIN_S)), after_s=START_AGAIN_S)

    assert isinstance(gone, RecordReason)
    assert (gone.more, gone.state.start_told) == ("", None)


@given(starts=st.lists(st.integers(0, 86_400) | st.none(), min_size=200, max_size=200))
def test_however_an_expected_start_moves_a_pod_is_written_once_in_five_minutes_at_most(
    starts: list[int | None],
) -> None:
    told, writes, step_s = replace(placement("released"), reason=reason_of(PENDING)), 0, LOOK_AGAIN_S
    for turn, start in enumerate(starts):
        after_s = turn * step_s
        started = None if start is None else T0 + timedelta(seconds=after_s + start)
        action = act(seen(pod(), told, replace(PENDING, started=started)), after_s=after_s)
        if isinstance(action, RecordReason):
            told, writes = action.state, writes + 1

    assert writes <= 1 + len(starts) * step_s / 300


def reason_of(found: JobSeen) -> str:
    return f"job {found.job} waits in Slurm: {found.reason}"


def test_a_job_that_slurm_has_not_looked_at_yet_says_nothing() -> None:
    found = seen(pod(), placement("released"), job("PENDING", reason="None"))

    assert act(found, after_s=WAITING_AGAIN_S) == Wait(WAITING_FIRST_S)


VANISHED = JobGone(is_lost=True)
FORGOTTEN = JobGone(is_forgotten=True)
LOST = replace(placement("bound", node=SLURM_NODE), lost=T0)


def known(gone: JobGone) -> PlacementState:
    """Return the placement of a Pod that says already what is known of its job."""
    return replace(LOST, reason=why(gone, LOST, is_orphan=False))


def test_slurm_that_has_lost_its_jobs_does_not_lose_a_running_pod_at_once() -> None:
    first = act(seen(BOUND, placement("bound", node=SLURM_NODE), VANISHED))
    assert isinstance(first, ReportLoss)
    assert (first.state.phase, first.state.lost, first.state.bound) == ("bound", T0, T0)
    assert act(seen(BOUND, first.state, VANISHED)) == Wait(LOST_CONFIRM_S)

    adopting = act(seen(BOUND, first.state, VANISHED), after_s=LOST_CONFIRM_S)
    assert isinstance(adopting, Record)
    assert (adopting.state.phase, adopting.state.job, adopting.state.attempt) == ("submitted", None, 1)
    assert (adopting.state.node, adopting.state.kube_node) == (SLURM_NODE, KUBE_NODE)


def test_a_missing_job_of_which_nothing_tells_keeps_its_pod_and_says_so_for_ever() -> None:
    first = act(seen(BOUND, placement("bound", node=SLURM_NODE), GONE))
    assert isinstance(first, ReportLoss)
    assert "the Pod stays" in first.state.reason

    assert act(seen(BOUND, first.state, GONE), after_s=90 * 24 * 3600) == Wait(LOOK_AGAIN_S)

    later = act(seen(BOUND, first.state, VANISHED), after_s=3600)
    assert isinstance(later, ReportLoss)
    assert later.state.lost == T0
    assert "has lost its state" in later.state.reason


def test_a_job_that_was_forgotten_while_others_were_not_ends_its_pod_unless_its_script_is_an_orphan() -> None:
    first = act(seen(BOUND, placement("bound", node=SLURM_NODE), FORGOTTEN))
    assert isinstance(first, ReportLoss)
    assert isinstance(act(seen(BOUND, first.state, FORGOTTEN), after_s=FORGOTTEN_CONFIRM_S - 1), Wait)

    ends = act(seen(BOUND, first.state, FORGOTTEN), after_s=FORGOTTEN_CONFIRM_S)
    assert phase_after(ends) == "Record ending"
    orphan = act(seen(BOUND, first.state, FORGOTTEN, is_release_requested=True), after_s=FORGOTTEN_CONFIRM_S)
    assert isinstance(orphan, ReportLoss)
    again = act(seen(BOUND, orphan.state, FORGOTTEN, is_release_requested=True), after_s=FORGOTTEN_CONFIRM_S)
    assert phase_after(again) == "Record submitted"


@pytest.mark.parametrize("gone", [GONE, VANISHED, FORGOTTEN, JobGone(is_taken=True)])
@pytest.mark.parametrize(
    "stored",
    [
        pytest.param(placement("started", node=SLURM_NODE), id="bound, and that is not stored yet"),
        pytest.param(placement("released"), id="the bus has an older store"),
        pytest.param(placement("submitted"), id="and a still older one"),
    ],
)
def test_a_pod_that_is_bound_is_treated_so_when_its_job_is_lost_though_that_is_not_stored(
    stored: PlacementState, gone: JobGone
) -> None:
    found = replace(seen(BOUND, stored, gone), slurm_node=SLURM_NODE)

    first = act(found)

    assert isinstance(first, ReportLoss)
    is_bound = replace(placement("bound", node=SLURM_NODE), bound=T0)
    assert first.state == replace(is_bound, lost=T0, reason=why(gone, is_bound, is_orphan=False))
    if not stored.node:
        assert act(replace(found, slurm_node="")) == Wait(ASK_AGAIN_S)  # Where it runs nobody can say.


def test_what_became_of_the_job_is_asked_as_soon_as_a_pod_is_bound_though_that_is_not_stored() -> None:
    for phase in ("submitted", "released", "started", "bound"):
        stored = placement(phase, node=SLURM_NODE)
        assert is_in_doubt(BOUND, stored, GONE)
        assert ran(stored) == T0  # Then Slurm had its job.
        assert not is_in_doubt(pod(), stored, GONE)
    assert not is_in_doubt(BOUND, placement("ending", node=SLURM_NODE), GONE)
    assert ran(LOST) is None


def test_a_pod_that_others_bound_to_another_node_than_its_seat_goes_with_its_job() -> None:
    elsewhere = seen(pod(kube_node="node9"), placement("started", node=SLURM_NODE), GONE)

    assert phase_after(act(elsewhere)) == "Record ending"


def test_a_job_that_ended_as_accounting_says_ends_its_pod_at_once() -> None:
    for state in (placement("bound", node=SLURM_NODE), LOST):
        ended = act(seen(BOUND, state, JobGone(has_ended=True)))
        assert isinstance(ended, Record)
        assert (ended.state.phase, ended.state.reason) == (
            "ending",
            "job 7 has ended, and Slurm has forgotten it",
        )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(PENDING, ("submitted", JOB, T0, 3), id="its other job waits"),
        pytest.param(GONE, ("bound", JOB, T0, 3), id="it has no other job yet"),
        pytest.param(JobGone(is_taken=True), ("submitted", None, T0, 4), id="its number is another's"),
        pytest.param(JobGone(has_ended=True), ("submitted", JOB, None, 3), id="its job was seen to end"),
    ],
)
def test_a_bucket_that_is_lost_while_a_pod_runs_without_its_job_takes_no_pod(
    found: JobSeen | JobGone, expected: tuple[str, int | None, datetime | None, int]
) -> None:
    told = replace(BOUND, claim=Claim(job=JOB, attempt=3, job_mark="verified"), is_reported_lost=True)
    looked = replace(seen(told, None, found), slurm_node=SLURM_NODE)
    first = act(looked)
    assert isinstance(first, Record)
    assert (first.state.phase, first.state.job, first.state.lost, first.state.attempt) == expected

    if first.state.lost is not None:
        assert first.state.node == SLURM_NODE
        assert act(replace(looked, slurm_node="")) == Wait(ASK_AGAIN_S)
        assert phase_after(act(seen(told, first.state, found))) != "Record ending"


@pytest.mark.parametrize(
    ("state", "job_now", "after_s", "expected"),
    [
        pytest.param(LOST, UNKNOWN, 9999, "Wait", id="Slurm does not answer: the pod stays"),
        pytest.param(LOST, STARTED, 1, "ReportLoss bound", id="Slurm knows the job again"),
        pytest.param(LOST, CANCELLED, 1, "Record ending", id="Slurm knows that it ended"),
        pytest.param(replace(LOST, phase="submitted", job=None), GONE, 11, "Resume", id="cut short"),
        pytest.param(
            replace(LOST, phase="submitted", job=None, token_sha256=""), GONE, 11, "Submit", id="another job"
        ),
        pytest.param(replace(LOST, phase="submitted"), HELD, 11, "ReleaseJob", id="its id is stored"),
        pytest.param(replace(LOST, phase="released"), PLANNED, 99999, "Wait", id="the other job waits"),
        pytest.param(replace(LOST, phase="released"), UNKNOWN, 9999, "Wait", id="nobody can say whether"),
        pytest.param(
            replace(LOST, phase="released"),
            replace(CANCELLED, nodes=()),
            20,
            "Record ending",
            id="it was cancelled",
        ),
        pytest.param(
            replace(LOST, phase="released"), CANCELLED, 20, "Record submitted", id="slurmd did not launch it"
        ),
        pytest.param(replace(LOST, phase="released"), CANCELLED, 9999, "Record submitted", id="nor for long"),
        pytest.param(replace(LOST, phase="started"), CANCELLED, 20, "Record ending", id="it had started"),
        pytest.param(replace(LOST, phase="released"), REQUEUED, 20, "GiveUp submitted", id="no launch"),
        pytest.param(
            replace(LOST, phase="submitted"), REQUEUED, 20, "GiveUp submitted", id="its release is not stored"
        ),
        pytest.param(
            replace(LOST, phase="released"),
            replace(RUNNING, is_requeued=True),
            200,
            "GiveUp submitted",
            id="not acknowledged, and nobody looked until it ran again",
        ),
        pytest.param(
            replace(LOST, phase="released"),
            replace(REQUEUED, base="CANCELLED", is_over=True),
            20,
            "Record submitted",
            id="given up, and the scheduler was killed before that was stored",
        ),
        pytest.param(
            replace(LOST, phase="released"),
            replace(REQUEUED, is_marked=False, is_ours=False),
            20,
            "Record ending",
            id="not acknowledged, and its user has wiped the mark",
        ),
        pytest.param(
            replace(LOST, phase="started"),
            replace(RUNNING, is_requeued=True),
            20,
            "GiveUp submitted",
            id="its script runs, and no slurmd acknowledged its launch",
        ),
        pytest.param(replace(LOST, phase="released"), GONE, 20, "Record submitted", id="lost once more"),
        pytest.param(replace(LOST, phase="started"), RUNNING, 20, "MarkStarted", id="it announced itself"),
        pytest.param(replace(LOST, phase="started"), STARTED, 20, "ReportLoss bound", id="it is as before"),
        pytest.param(
            replace(LOST, phase="submitted", job=None, token_sha256="", attempt=9),
            GONE,
            9999,
            "Submit",
            id="Slurm takes no other",
        ),
    ],
)
def test_a_running_pod_without_its_job_gets_another_on_its_node_however_long_that_takes(
    state: PlacementState, job_now: JobSeen | JobGone | JobUnknown, after_s: float, expected: str
) -> None:
    action = act(seen(BOUND, state, job_now), after_s=after_s)

    assert phase_after(action) == expected
    if isinstance(action, ReportLoss):
        assert action.state.lost is None


@pytest.mark.parametrize("phase", ["submitted", "released", "started"])
def test_a_pod_that_waits_gets_another_job_if_no_slurmd_acknowledged_the_launch_of_its_first(
    phase: Literal["submitted", "released", "started"],
) -> None:
    waits = seen(pod(), placement(phase), REQUEUED)

    for found in (
        waits,
        replace(waits, job=replace(REQUEUED, is_completing=True), is_release_requested=True),
        replace(waits, job=replace(RUNNING, is_requeued=True, reason="Prolog")),
    ):
        assert phase_after(act(found, after_s=1)) == "GiveUp submitted"


@pytest.mark.parametrize(
    ("attempt", "since_s", "wait_s"),
    [(0, 10, 0), (1, 0, 1), (9, 0, 1), (9, 40, 20), (9, 3600, 256), (3, 60, 4)],
)
def test_the_next_job_of_a_running_pod_is_submitted_soon_however_often_the_pod_was_tried_before(
    attempt: int, since_s: int, wait_s: float
) -> None:
    again = replace(LOST, phase="submitted", job=None, token_sha256="", attempt=attempt)
    state = replace(again, changed=T0 + timedelta(seconds=since_s))

    if wait_s:
        assert act(seen(BOUND, state, GONE), after_s=since_s) == Wait(wait_s)
    assert act(seen(BOUND, state, GONE), after_s=since_s + wait_s) == Submit(attempt)


def test_the_next_job_of_a_running_pod_comes_ahead_of_every_other_whatever_the_pod_asks_for() -> None:
    submitted = replace(LOST, phase="submitted")
    for asks in (BOUND, replace(BOUND, priority=77)):
        assert act(seen(asks, submitted, HELD), after_s=11) == ReleaseJob(JOB, 4_294_967_293)
    late = replace(PENDING, priority=77)  # Released, and what it was released with has not come.
    assert act(seen(BOUND, submitted, late), after_s=11) == ReleaseJob(JOB, 4_294_967_293)


@pytest.mark.parametrize(
    ("state", "job_now"),
    [
        pytest.param(replace(LOST, phase="released"), PENDING, id="the other job waits"),
        pytest.param(replace(LOST, phase="submitted"), HELD, id="it is held yet"),
        pytest.param(
            replace(LOST, phase="submitted", job=None, token_sha256=""), GONE, id="none is submitted yet"
        ),
    ],
)
def test_a_running_pod_without_its_job_ends_once_its_node_is_given_away(
    state: PlacementState, job_now: JobSeen | JobGone
) -> None:
    taken = "slurmctld has lost the Pod's job and given node gpu-1 to job 8"

    action = act(replace(seen(BOUND, state, job_now), given_away=taken), after_s=61)

    assert isinstance(action, Record)
    assert (action.state.phase, action.state.reason) == ("ending", taken)


ON_NODE = placement("bound", node=SLURM_NODE)
OF_SLURM = (
    pytest.param(pod(), placement("submitted"), HELD, id="its job is held"),
    pytest.param(pod(), placement("released"), PENDING, id="it waits"),
    pytest.param(pod(), placement("released"), RUNNING, id="it runs, and its script has not called"),
    pytest.param(pod(), placement("started", node=SLURM_NODE), STARTED, id="it has"),
    pytest.param(pod(), placement("released"), CANCELLED, id="it is cancelled"),
    pytest.param(BOUND, ON_NODE, STARTED, id="the Pod runs"),
    pytest.param(BOUND, ON_NODE, CANCELLED, id="its job was cancelled"),
    pytest.param(LEAVING, placement("ending", node=SLURM_NODE), STARTED, id="the Pod goes"),
    pytest.param(None, placement("ended", node=SLURM_NODE), STARTED, id="it has gone"),
    pytest.param(BOUND, replace(LOST, phase="submitted"), HELD, id="the next job is held"),
    pytest.param(BOUND, replace(LOST, phase="released"), CANCELLED, id="slurmd did not launch it"),
)
SKEWS_S = (-30, -5, 5, 30)


@pytest.mark.parametrize("skew_s", SKEWS_S)
@pytest.mark.parametrize("after_s", [0, 1, 4, 11])
@pytest.mark.parametrize(("is_there", "state", "job_now"), OF_SLURM)
def test_a_clock_of_slurmctlds_that_is_off_binds_replaces_and_ends_no_pod_and_no_job(
    is_there: PodSeen | None, state: PlacementState, job_now: JobSeen, after_s: float, skew_s: float
) -> None:
    def when(off_s: float) -> str:
        moment = T0 + timedelta(seconds=off_s)
        told = replace(job_now, submitted=moment, started=moment, ended=moment if job_now.is_over else None)
        return phase_after(act(seen(is_there, state, told), after_s=after_s))

    assert when(skew_s) == when(0)


@pytest.mark.parametrize("skew_s", SKEWS_S)
def test_a_clock_of_slurmctlds_that_is_off_calls_no_script_silent_too_early(skew_s: float) -> None:
    def says(after_s: float) -> bool:
        runs = replace(RUNNING, started=T0 + timedelta(seconds=skew_s))
        return isinstance(act(seen(pod(), placement("released"), runs), after_s=after_s), RecordReason)

    assert not says(SILENT_FIRST_S - 1)
    assert says(SILENT_FIRST_S + max(skew_s, 0))


@pytest.mark.parametrize("skew_s", SKEWS_S)
def test_a_clock_of_slurmctlds_that_is_off_shifts_when_a_node_is_overdue_and_does_no_more(
    skew_s: float,
) -> None:
    ending = placement("ending", node=SLURM_NODE)
    ended = job("CANCELLED", is_completing=True, ended=T0 + timedelta(seconds=skew_s))
    done = {phase_after(act(seen(LEAVING, ending, ended), after_s=after_s)) for after_s in range(70)}

    assert done == {"Wait", "Record ending overdue"} or (skew_s == -30 and done == {"Record ending overdue"})


def test_a_running_pod_without_its_job_says_why_it_has_no_other_and_stays() -> None:
    waits = replace(PENDING, reason="ReqNodeNotAvail")
    first = act(seen(BOUND, replace(LOST, phase="released", reason=""), waits), after_s=60)
    assert isinstance(first, ReportLoss)
    assert first.state.lost == LOST.lost
    assert first.state.reason == "Slurm has lost the Pod's job, and job 7 waits in Slurm: ReqNodeNotAvail"
    told = replace(waits, reason="Priority")
    assert isinstance(act(seen(BOUND, first.state, waits), after_s=999), Wait)
    assert isinstance(act(seen(BOUND, first.state, told), after_s=61), Wait)  # It was said a second ago.

    invalid = replace(BOUND, problems=("no such user",))
    none = replace(LOST, phase="submitted", job=None, token_sha256="", reason="")
    refused = act(seen(invalid, none, GONE), after_s=60)
    assert isinstance(refused, ReportLoss)
    assert refused.state.reason == (
        "Slurm has lost the Pod's job, and no other can be submitted: no such user"
    )


def running(number: int, cpus: int, *, memory_mib: int = 10, state: str = "RUNNING") -> SlurmJobState:
    held = Allocation(nodes="gpu-[1-2]", cpus=cpus, memory_mib=memory_mib)
    return SlurmJobState(changed=T0, job=number, state=state, allocations=(held,))


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        pytest.param((), "", id="to nobody"),
        pytest.param((running(8, 4),), "", id="there is room beside it"),
        pytest.param((running(8, 5),), "job 8", id="to one"),
        pytest.param((running(8, 1, memory_mib=95),), "job 8", id="its memory"),
        pytest.param(
            (running(8, 1, memory_mib=95), running(9, 1, memory_mib=0)),
            "jobs 8, 9",
            id="its memory, beside a job of a partition that counts none",
        ),
        pytest.param(tuple(running(one, 2) for one in range(8, 12)), "jobs 8, 9, 10 and 1 more", id="to all"),
        pytest.param((running(8, 5, state="PENDING"),), "", id="it waits too"),
        pytest.param((replace(running(8, 5), is_completing=True),), "", id="it goes"),
        pytest.param((replace(running(8, 5), allocations=()),), "", id="nobody says what it holds"),
    ],
)
def test_a_node_is_given_away_where_jobs_of_others_leave_no_room_for_the_pod(
    jobs: tuple[SlurmJobState, ...], expected: str
) -> None:
    node = SlurmNodeState(changed=T0, node="gpu-1", state="MIXED", cpus=8, memory_mib=100)
    needs = Size(cpus=4, memory_mib=10)

    by_node: dict[str, dict[int, Size]] = {}
    for one in jobs:
        add_held(by_node, one)
    held = by_node.get("gpu-1", {})
    why = given_away(node, needs, held)

    assert why == (f"slurmctld has lost the Pod's job and given node gpu-1 to {expected}" if expected else "")
    assert not given_away(None, needs, held)


def test_memory_gives_no_node_away_where_slurm_does_not_count_it() -> None:
    node = SlurmNodeState(changed=T0, node="gpu-1", state="MIXED", cpus=8, memory_mib=1)
    needs = Size(cpus=4, memory_mib=10)

    assert given_away(node, needs, {8: Size(cpus=4)}) == ""
    assert given_away(node, needs, {8: Size(cpus=5)}).endswith("to job 8")


def test_nobody_asks_to_whom_a_node_is_given_before_what_is_told_is_of_after_the_loss() -> None:
    at = T0 + LEAVES
    waits = replace(LOST, phase="released")

    assert [is_replaced(waits, moment) for moment in (at - timedelta(seconds=1), at)] == [False, True]
    assert not any(is_replaced(one, at) for one in (LOST, replace(waits, lost=None)))


def test_a_job_with_the_number_of_a_lost_one_that_may_be_on_a_node_is_given_up_and_never_released() -> None:
    held = replace(LOST, phase="submitted", attempt=1)
    theirs = replace(held, uid="another", job=9, lost_job=JOB)

    def is_old(state: PlacementState) -> bool:
        return has_old_number(HELD, state, lambda _: [theirs], T0)

    again = act(replace(seen(BOUND, held, HELD), has_old_number=is_old(held)))
    waits = placement("submitted", attempt=1)
    anew = act(replace(seen(pod(), waits, HELD), has_old_number=is_old(waits)))

    assert isinstance(again, GiveUp)
    assert (again.job, again.state.job, again.state.attempt, again.state.lost) == (JOB, None, 2, T0)
    assert (again.state.node, again.state.kube_node) == (SLURM_NODE, KUBE_NODE)
    assert isinstance(anew, GiveUp)
    assert (anew.job, anew.state.job, anew.state.attempt, anew.state.node) == (JOB, None, 2, "")


OTHER = replace(placement("bound", node=SLURM_NODE), uid="another")
ANEW = placement("submitted", attempt=1)


class _Stored:
    """A view of placements, without a bus."""

    def __init__(self, *states: PlacementState) -> None:
        self.states = {state.uid: state for state in states}
        self.changed = Changes(self.states)

    def get(self, uid: str) -> PlacementState | None:
        return self.states.get(uid)

    def changes(self) -> Changes:
        return self.changed

    def put(self, state: PlacementState) -> None:
        self.states[state.uid] = state
        self.changed.add(state.uid)


@pytest.mark.parametrize(
    ("state", "other", "is_old"),
    [
        pytest.param(ANEW, OTHER, True, id="another Pod's, of which nobody knows yet that it is lost"),
        pytest.param(ANEW, replace(OTHER, job=8), False, id="nobody's"),
        pytest.param(ANEW, replace(OTHER, job=8, lost_job=JOB), True, id="another's lost one"),
        pytest.param(
            ANEW, replace(OTHER, job=8, lost_job=JOB, bound=T0 - timedelta(hours=1)), False, id="long ago"
        ),
        pytest.param(replace(ANEW, lost_job=JOB), replace(OTHER, job=8), True, id="its own lost one"),
        pytest.param(ANEW, replace(OTHER, gang=ANEW.uid), False, id="its gang's members have it too"),
        pytest.param(replace(ANEW, attempt=0), OTHER, True, id="it is the first of a new Pod"),
        pytest.param(replace(ANEW, phase="released"), OTHER, False, id="it was released"),
    ],
)
def test_a_number_is_old_while_what_is_left_of_its_lost_job_may_be_on_a_node(
    state: PlacementState, other: PlacementState, *, is_old: bool
) -> None:
    view: Any = _Stored(state, other)
    of_number = PlacementIndex(view).of_number

    assert has_old_number(HELD, state, of_number, T0) == is_old
    assert not has_old_number(PENDING, state, of_number, T0)


def test_a_placement_is_found_by_its_job_and_its_lost_one_until_it_has_another() -> None:
    stored = _Stored(replace(ANEW, job=8, lost_job=JOB), OTHER)
    view: Any = stored
    placement_index = PlacementIndex(view)

    assert {one.uid for one in placement_index.of_number(JOB)} == {ANEW.uid, "another"}
    assert [[one.uid for one in placement_index.of(number)] for number in (JOB, 8, 9)] == [
        ["another"],
        [ANEW.uid],
        [],
    ]
    stored.put(replace(ANEW, job=9))
    assert [[one.uid for one in placement_index.of_number(number)] for number in (JOB, 8, 9)] == [
        ["another"],
        [],
        [ANEW.uid],
    ]


def test_a_node_has_pods_without_jobs_from_the_loss_until_each_has_another_job_or_is_over() -> None:
    lost = replace(ANEW, uid="lost", node="gpu-1", lost=T0)
    seats = Gang(
        kind="Job", members=(GangMember(uid="one", pod="one", node="gpu-1"), GangMember(uid="", pod=""))
    )
    gang = replace(lost, uid="gang", node="", roster=seats)
    member = replace(lost, uid="one", gang="gang", node="gpu-3")
    view: Any = (stored := _Stored(lost, gang, member, replace(lost, uid="runs", node="gpu-2", lost=None)))
    placement_index = PlacementIndex(view)

    assert {*placement_index.nodes_without_jobs()} == {"gpu-1"}
    assert without_jobs("gpu-1", placement_index.nodes_without_jobs())
    assert not without_jobs("gpu-2", placement_index.nodes_without_jobs())
    stored.put(replace(lost, lost=None))
    assert {*placement_index.nodes_without_jobs()} == {"gpu-1"}
    stored.put(replace(gang, phase="ended"))
    assert {*placement_index.nodes_without_jobs()} == set()


def test_the_number_of_a_lost_job_is_remembered_until_it_has_left_and_over_all_that_follows() -> None:
    found = act(seen(BOUND, known(VANISHED), VANISHED), after_s=LOST_CONFIRM_S)
    assert isinstance(found, Record)
    held = replace(found.state, job=8)
    again = act(replace(seen(BOUND, held, replace(HELD, job=8)), has_old_number=True))
    assert isinstance(again, GiveUp)
    told = replace(BOUND, claim=Claim(job=JOB, attempt=3, job_mark="verified"), is_reported_lost=True)
    adopted = act(replace(seen(told, None, JobGone(is_taken=True)), slurm_node=SLURM_NODE))
    assert isinstance(adopted, Record)

    assert [one.lost_job for one in (found.state, again.state, adopted.state)] == [JOB, JOB, JOB]


def test_a_pod_whose_job_is_lost_may_be_deleted_after_a_bound_instead() -> None:
    limits = Limits(adopts_lost=False, lost_s=60)

    for gone in (GONE, VANISHED):
        found = seen(BOUND, known(gone), gone)
        assert decide(found, T0 + timedelta(seconds=59), limits) == Wait(1.0)
        assert phase_after(decide(found, T0 + timedelta(seconds=60), limits)) == "Record ending"


pods = st.none() | st.builds(
    PodSeen,
    namespace=st.just("default"),
    name=st.just("infer"),
    kube_node=st.sampled_from(["", KUBE_NODE, "node9"]),
    is_terminating=st.booleans(),
    is_over=st.booleans(),
    is_gated=st.booleans(),
    exit_code=st.integers(0, 255),
    claim=st.none() | st.builds(Claim, job=st.just(JOB), attempt=st.integers(0, 3)),
    problems=st.sampled_from([(), ("no cpu",)]),
)
jobs = st.builds(
    JobSeen,
    job=st.just(JOB),
    base=st.sampled_from(["PENDING", "RUNNING", "SUSPENDED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "UNKNOWN"]),
    is_completing=st.booleans(),
    is_over=st.booleans(),
    is_held=st.booleans(),
    reason=st.sampled_from(["None", "Prolog", "JobHeldUser", "JobHeldAdmin"]),
    nodes=st.sampled_from([(), (SLURM_NODE,), ("other",)]),
    ended=st.none() | st.just(T0),
    is_marked_started=st.booleans(),
)
anything = st.builds(
    Observed,
    uid=st.just("0e1c"),
    pod=pods,
    placement=st.none()
    | st.builds(
        placement,
        st.sampled_from(["refused", "submitted", "released", "started", "bound", "ending", "ended"]),
        job=st.sampled_from([None, JOB]),
        node=st.sampled_from(["", SLURM_NODE]),
        attempt=st.integers(0, 3),
        digest=st.sampled_from(["", "d1"]),
    ),
    job=jobs | st.just(GONE) | st.just(UNKNOWN),
    announced_on=st.sampled_from(["", SLURM_NODE]),
    kube_node=st.sampled_from(["", KUBE_NODE]),
    node_problem=st.sampled_from(["", "a taint"]),
    is_release_requested=st.booleans(),
    ungranted=st.sampled_from([(), (), (lock(),), None]),
)
moments = st.floats(0, 1000).map(lambda after_s: T0 + timedelta(seconds=after_s))


@given(anything, moments)
def test_no_pod_is_ever_bound_without_a_running_job_that_announced_itself_from_that_node(
    found: Observed, now: datetime
) -> None:
    action = decide(found, now, LIMITS)

    if isinstance(action, Bind):
        assert found.pod is not None
        assert found.placement is not None
        assert isinstance(found.job, JobSeen)
        assert found.job.is_running
        assert found.placement.phase == "started"
        assert found.placement.node in found.job.nodes
        assert found.kube_node
        assert action.state.kube_node == found.kube_node
        assert not found.pod.kube_node
        assert not found.pod.is_terminating
        assert not found.pod.is_over
        assert not found.node_problem
        assert found.ungranted == ()


def is_started_now(before: PlacementState | None, action: Action) -> bool:
    return (
        isinstance(action, Record)
        and action.state.phase == "started"
        and (before is None or before.phase != "started")
    )


@given(anything)
def test_a_placement_only_starts_when_a_running_job_was_heard_from_one_of_its_nodes(found: Observed) -> None:
    action = decide(found, T0, LIMITS)

    if is_started_now(found.placement, action):
        assert isinstance(found.job, JobSeen)
        assert found.job.is_running
        assert isinstance(action, Record)
        assert action.state.node in found.job.nodes
        assert found.announced_on == action.state.node or found.job.is_marked_started
        assert found.ungranted == ()


@given(anything)
def test_no_job_is_released_before_its_id_is_stored(found: Observed) -> None:
    action = decide(found, T0, LIMITS)

    if isinstance(action, ReleaseJob):
        assert found.placement is not None
        assert action.job == found.placement.job


@given(anything)
def test_what_nobody_could_say_of_the_job_never_deletes_a_pod_nor_forgets_or_replaces_a_job(
    found: Observed,
) -> None:
    if found.placement is None or found.placement.job is None or found.placement.phase == "refused":
        return
    action = decide(replace(found, job=UNKNOWN), T0, LIMITS)

    assert not isinstance(action, (Forget, Submit, CancelJob, Bind))
    if isinstance(action, DeletePod):
        assert found.placement.phase == "ending"  # That was decided when the job was known.
    if isinstance(action, Record):
        assert action.state.job == found.placement.job


@given(anything)
def test_a_pod_that_is_not_bound_is_never_deleted_by_a_placement_that_has_not_bound_it(
    found: Observed,
) -> None:
    action = decide(found, T0, LIMITS)

    if isinstance(action, Record) and action.state.phase == "ending":
        assert found.placement is not None
        assert found.pod is not None
        assert found.placement.phase in {"bound", "ending"} or found.pod.kube_node


@given(anything, st.sampled_from(["submitted", "released", "started", "bound"]), moments)
def test_no_pod_on_its_node_is_deleted_because_its_job_is_missing_and_nothing_tells_why(
    found: Observed, phase: Literal["submitted", "released", "started", "bound"], now: datetime
) -> None:
    runs = replace(found, pod=BOUND, placement=placement(phase, node=SLURM_NODE), kube_node=KUBE_NODE)
    action = decide(replace(runs, job=GONE), now, LIMITS)

    assert isinstance(action, ReportLoss)
    assert (action.state.phase, action.state.node) == ("bound", SLURM_NODE)


@given(anything)
def test_whatever_is_the_case_there_is_something_to_say_and_never_too_much(found: Observed) -> None:
    assert 1 <= len(explain(found)) <= FINDINGS_MAX


def test_a_script_whose_poll_was_cut_and_that_is_not_heard_again_is_dead_though_slurm_says_running() -> None:
    well = placement("bound", node=SLURM_NODE)
    found = seen(pod(kube_node=KUBE_NODE), well, job())
    cut = decide(replace(found, heartbeat="cut"), T0, LIMITS)
    silent = replace(found, placement=replace(well, silent=T0))
    due = T0 + timedelta(seconds=LIMITS.silent_s)

    assert cut == Record(state=replace(well, silent=T0))
    assert decide(silent, T0, LIMITS) == Wait(LIMITS.silent_s)
    assert decide(replace(silent, heartbeat="heard"), due, LIMITS) == Record(state=well)
    dead = decide(silent, due, LIMITS)
    assert isinstance(dead, Record)
    assert (dead.state.phase, "is dead" in dead.state.reason) == ("ending", True)


@pytest.mark.parametrize("heard", ["", "heard"])
def test_a_script_is_not_dead_because_another_leader_was_told_that_its_poll_was_cut(
    heard: Literal["", "heard"],
) -> None:
    well = placement("bound", node=SLURM_NODE)
    later = LIMITS.silent_s + 1  # The next one leads only now.
    listening = T0 + timedelta(seconds=later)
    found = replace(seen(BOUND, replace(well, silent=T0), STARTED), listening=listening)

    assert act(found, after_s=later) == Wait(LIMITS.silent_s)
    after = act(replace(found, heartbeat=heard), after_s=later + LIMITS.silent_s)
    assert phase_after(after) == ("Record bound" if heard else "Record ending")


def test_scripts_that_are_silent_together_are_cut_off_and_only_slurms_word_ends_their_pods() -> None:
    well = placement("bound", node=SLURM_NODE)
    silent = replace(seen(BOUND, replace(well, silent=T0), STARTED), are_many_silent=True)
    told = act(silent, after_s=LIMITS.silent_s)

    assert isinstance(told, RecordReason)
    assert (told.event, told.state.phase) == ("CutOff", "bound")
    still = replace(silent, placement=told.state)
    assert act(still, after_s=3600) == Wait(LOOK_AGAIN_S)
    assert phase_after(act(replace(still, job=job("NODE_FAIL")), after_s=3600)) == "Record ending"
    back = T0 + timedelta(seconds=3600)
    assert decide(replace(still, heartbeat="heard"), back, LIMITS) == Record(state=well)
    # The others are heard again: this one has as long as any to be.
    assert decide(replace(still, are_many_silent=False), back, LIMITS) == Record(
        state=replace(well, silent=back)
    )


@pytest.mark.parametrize(
    ("silent", "every", "expected"),
    [
        pytest.param(2, 2, False, id="two die"),
        pytest.param(3, 40, True, id="three are cut off"),
        pytest.param(5, 100, False, id="5 %"),
        pytest.param(6, 100, True, id="more than 5 %"),
    ],
)
def test_more_silent_scripts_than_die_at_once_are_many(silent: int, every: int, *, expected: bool) -> None:
    well = placement("bound", node=SLURM_NODE)
    member = replace(well, silent=T0, gang="gang-1")  # Its gang has the script.
    waiting = placement("released")
    scripts = [replace(well, silent=T0)] * silent + [well] * (every - silent)

    assert are_many([*scripts, member, member, waiting]) is expected


def test_while_slurm_does_not_answer_no_script_counts_as_dead() -> None:
    silent = replace(placement("bound", node=SLURM_NODE), silent=T0)
    found = seen(pod(kube_node=KUBE_NODE), silent, UNKNOWN)

    assert isinstance(decide(found, T0 + timedelta(hours=1), LIMITS), Wait)


def test_a_pod_whose_kubelet_is_dead_keeps_its_node_from_others_until_it_is_removed() -> None:
    leaving = placement("ending", node=SLURM_NODE)
    stuck = seen(LEAVING, leaving, RUNNING)
    alone = seen(LEAVING, leaving, job("NODE_FAIL"))

    assert act(stuck, after_s=86400) == Wait(LOOK_AGAIN_S)  # Its job holds the node.
    assert act(alone) == Record(state=replace(leaving, is_overdue=True))  # The node is drained.
    removed = act(replace(alone, pod=None))
    assert isinstance(removed, Record)
    assert (removed.state.phase, removed.state.is_overdue) == ("ended", False)


@pytest.mark.parametrize(
    ("found", "is_asked", "is_deleted"),
    [
        (replace(job(), base="TIMEOUT", is_completing=True), False, True),
        (JobGone(has_ended=True), False, True),
        (job(), True, True),
        (job(), False, False),
    ],
    ids=["its job ends", "its job is forgotten", "its script asks", "its job runs on"],
)
def test_a_pod_that_is_deleted_with_a_grace_of_a_day_has_its_specs_once_its_job_is_over(
    found: AnyJob, *, is_asked: bool, is_deleted: bool
) -> None:
    leaving = replace(pod(kube_node=KUBE_NODE, is_terminating=True), outstays=True)
    before = replace(placement("ending", node=SLURM_NODE), is_overdue=True)

    action = decide(seen(leaving, before, found, is_release_requested=is_asked), T0, Limits())

    assert isinstance(action, DeletePod) == is_deleted


@pytest.mark.parametrize("phase", ["bound", "ending"])
@pytest.mark.parametrize("found", [job(), replace(job(), base="TIMEOUT", is_completing=True), GONE, UNKNOWN])
def test_a_pod_whose_containers_have_ended_is_over_though_a_finalizer_keeps_its_object(
    phase: PlacementPhase, found: AnyJob
) -> None:
    kept = pod(kube_node=KUBE_NODE, is_terminating=True, is_over=True, exit_code=137)
    before = replace(placement(phase, node=SLURM_NODE), is_overdue=phase == "ending")

    action = act(seen(kept, before, found))

    over = replace(before, phase="ended", is_pod_present=False, is_overdue=False, exit_code=0)
    assert action == Record(state=over)


def test_a_pod_that_has_failed_and_whose_container_is_still_shown_to_run_is_not_over() -> None:
    runs = replace(pod(kube_node=KUBE_NODE, is_terminating=True, is_over=True), still_runs=True)
    before = placement("ending", node=SLURM_NODE)

    assert phase_after(act(seen(runs, before, GONE))) == "Record ending overdue"


ENDED_STATE = ContainerState(terminated=ContainerTerminated(exit_code=137))


@pytest.mark.parametrize(
    ("phase", "statuses", "is_finished"),
    [
        ("Failed", (ContainerStatus(name="main", state=ENDED_STATE),), True),
        ("Succeeded", (), True),
        ("Failed", (ContainerStatus(name="main"),), False),
        ("Failed", (ContainerStatus(name="main", state=ENDED_STATE), ContainerStatus(name="two")), False),
        ("Running", (ContainerStatus(name="main", state=ENDED_STATE),), False),
    ],
    ids=["its container has ended", "it never had one", "it runs", "one of two runs", "another may come"],
)
@pytest.mark.parametrize("place", ["container_statuses", "init_container_statuses"])
def test_a_pod_that_is_being_deleted_is_finished_once_kubernetes_says_so_and_shows_no_container_that_runs(
    phase: str, statuses: tuple[ContainerStatus, ...], place: str, *, is_finished: bool
) -> None:
    found = manifest()
    kept = replace(found.metadata, deletion_timestamp=T0, finalizers=("test.example/keeps",))
    status = replace(PodStatus(phase=phase), **{place: statuses})

    shown = pod_seen(replace(found, metadata=kept, status=status), KEY, Rules())

    assert shown.is_finished == is_finished


@pytest.mark.parametrize("phase", ["submitted", "released", "started"])
@pytest.mark.parametrize("kube_node", ["", "of-another"])
@pytest.mark.parametrize("found", [job("PENDING"), job(), JobGone(), JobUnknown()])
def test_a_pod_that_another_scheduler_serves_by_now_is_left_to_it_and_its_job_here_ends(
    phase: PlacementPhase, kube_node: str, found: AnyJob
) -> None:
    anothers = replace(pod(kube_node=kube_node), is_served=False)

    left = decide(seen(anothers, placement(phase, node=SLURM_NODE), found), T0, Limits())

    assert isinstance(left, Record)
    assert (left.state.phase, left.state.is_pod_present) == ("ended", False)
    assert "no longer serves" in left.state.reason
    for at, job_seen in ((T0, job("PENDING")), (T0 + timedelta(seconds=ENDED_GRACE_S), job())):
        assert decide(seen(anothers, left.state, job_seen), at, Limits()) == CancelJob(JOB)
    assert decide(seen(anothers, left.state, JobGone()), T0, Limits()) == Forget()


@given(
    phase=st.sampled_from(["refused", "submitted", "released", "started"]),
    found=st.sampled_from(
        [*map(job, ("PENDING", "RUNNING", "CANCELLED", "SUSPENDED")), JobGone(), JobUnknown()]
    ),
    number=st.sampled_from([None, JOB]),
    is_terminating=st.booleans(),
    is_requested=st.booleans(),
)
def test_no_pod_on_a_node_of_anothers_is_deleted_by_us(
    phase: PlacementPhase, found: AnyJob, number: int | None, *, is_terminating: bool, is_requested: bool
) -> None:
    anothers = replace(pod(kube_node="of-another", is_terminating=is_terminating), is_served=False)
    state, moment = placement(phase, job=number, node=SLURM_NODE), T0

    for _ in range(4):
        look = seen(anothers, state, found, is_release_requested=is_requested)
        action = decide(look, moment, Limits())
        assert isinstance(action, Record | Wait | CancelJob | Forget)
        if isinstance(action, Record):
            assert action.state.phase == "ended"
            state = action.state
        moment += timedelta(minutes=1)


@pytest.mark.parametrize("phase", ["submitted", "released", "started"])
def test_a_pod_that_claims_our_job_on_its_node_stays_ours_whatever_an_older_store_says(
    phase: PlacementPhase,
) -> None:
    claim = Claim(job=JOB, attempt=0, mark="mark", job_mark="job mark")
    ours = replace(pod(kube_node=KUBE_NODE), is_served=False, claim=claim)

    stored = placement(phase, node=SLURM_NODE if phase == "started" else "")

    next_ = decide(seen(ours, stored, job(is_marked_started=True)), T0, Limits())
    waits = decide(seen(replace(ours, kube_node=""), stored, job()), T0, Limits())

    assert not isinstance(next_, CancelJob)
    assert not (isinstance(next_, Record) and next_.state.phase in {"ending", "ended"})
    assert isinstance(waits, Record)
    assert waits.state.phase == "ended"


def test_a_pod_that_we_have_bound_stays_ours_though_another_scheduler_has_its_name_by_now() -> None:
    ours = replace(pod(kube_node=KUBE_NODE), is_served=False)
    started, bound = placement("started", node=SLURM_NODE), placement("bound", node=SLURM_NODE)

    stored = decide(seen(ours, started, job(is_marked_started=True)), T0, Limits())
    ended = decide(seen(ours, bound, job("COMPLETED")), T0, Limits())

    assert isinstance(stored, Record)
    assert (stored.state.phase, stored.state.kube_node) == ("bound", KUBE_NODE)
    assert isinstance(ended, Record)
    assert ended.state.phase == "ending"
    unknown = decide(seen(ours, started, job(), kube_node=""), T0, Limits())
    assert unknown == Wait(ASK_AGAIN_S)


@pytest.mark.parametrize(
    ("scope", "is_served"),
    [
        (None, True),
        (PodScope(cluster="a", names=("slurm-a", "sunk-scheduler")), True),
        (PodScope(cluster="a", names=("slurm-a",)), False),
        (PodScope(cluster="a", names=("sunk-scheduler",), namespaces=("default",)), True),
        (PodScope(cluster="a", names=("sunk-scheduler",), namespaces=("others",)), False),
    ],
)
def test_a_pod_is_ours_by_its_name_and_its_namespace(scope: PodScope | None, *, is_served: bool) -> None:
    assert pod_seen(manifest(), KEY, Rules(pod_scope=scope)).is_served == is_served
