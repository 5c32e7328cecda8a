"""What is told of a Slurm job: its state, and what has happened to it."""

import hashlib
from datetime import timedelta

import pytest
from msgspec.structs import replace

from sunk_events.codec import MAX_BYTES, decode_state, encode
from sunk_events.jobs import Allocation, JobEnded, SlurmJobState
from sunk_slurm.testing import T0, job
from sunk_slurm.wire import CpusHeld, ExitCode, Job, JobResources, NodeHeld, NodesHeld, Number
from sunk_syncer.states.jobs import allocations, job_facts, job_state, job_vanished


def state(*words: str, has_run: bool = True, is_held: bool = False, restarts: int = 0) -> SlurmJobState:
    seen = replace(
        job(1, *words, nodes=("n1",)),
        start_time=Number.of(T0.timestamp() if has_run else 0),
        hold=is_held,
        restart_cnt=restarts,
    )
    return job_state(seen, 1, T0)


def told(before: SlurmJobState | None, after: SlurmJobState) -> list[str]:
    facts = job_facts(before, after, cluster="lab", revision=7, now=T0)
    return [type(fact).__name__ for fact in facts]


PENDING, RUNNING, ENDED = state("PENDING"), state("RUNNING"), state("COMPLETED")


@pytest.mark.parametrize(
    ("before", "after", "published"),
    [
        pytest.param(None, PENDING, ["JobSubmitted"], id="new"),
        pytest.param(None, RUNNING, ["JobSubmitted", "JobStarted"], id="new and running already"),
        pytest.param(None, ENDED, ["JobSubmitted", "JobStarted", "JobEnded"], id="came and went unseen"),
        pytest.param(PENDING, RUNNING, ["JobStarted"], id="started"),
        pytest.param(PENDING, ENDED, ["JobStarted", "JobEnded"], id="started and ended between two looks"),
        pytest.param(PENDING, state("CANCELLED", has_run=False), ["JobEnded"], id="cancelled before it ran"),
        pytest.param(
            RUNNING,
            state("COMPLETED", "COMPLETING"),
            ["JobCompleting"],
            id="its epilogs still run: not ended",
        ),
        pytest.param(state("COMPLETED", "COMPLETING"), ENDED, ["JobEnded"], id="left its nodes"),
        pytest.param(RUNNING, state("SUSPENDED"), [], id="suspended still holds its nodes"),
        pytest.param(RUNNING, PENDING, ["JobRequeued"], id="requeued"),
        pytest.param(ENDED, PENDING, ["JobRequeued"], id="requeued after its end"),
        pytest.param(ENDED, RUNNING, ["JobRequeued", "JobStarted"], id="requeued and running again"),
        pytest.param(
            RUNNING, state("RUNNING", restarts=1), ["JobRequeued", "JobStarted"], id="requeued unseen"
        ),
        pytest.param(
            RUNNING,
            state("COMPLETED", restarts=1),
            ["JobRequeued", "JobStarted", "JobEnded"],
            id="requeued unseen and over",
        ),
        pytest.param(PENDING, state("PENDING", is_held=True), ["JobHeld"], id="held"),
        pytest.param(None, state("PENDING", is_held=True), ["JobSubmitted", "JobHeld"], id="submitted held"),
        pytest.param(state("PENDING", is_held=True), PENDING, ["JobReleased"], id="released"),
        pytest.param(
            state("PENDING", is_held=True), RUNNING, ["JobReleased", "JobStarted"], id="released and started"
        ),
        pytest.param(
            RUNNING, state("PENDING", is_held=True), ["JobRequeued", "JobHeld"], id="requeued and held"
        ),
        pytest.param(RUNNING, state("ODD_NEW_STATE"), [], id="a state of a newer Slurm ends no job"),
    ],
)
def test_each_change_is_published_once(
    before: SlurmJobState | None, after: SlurmJobState, published: list[str]
) -> None:
    assert told(before, after) == published


def test_an_id_that_was_given_to_another_job_is_a_new_job() -> None:
    assert told(ENDED, replace(PENDING, name="other")) == ["JobSubmitted"]


LATER = T0 + timedelta(hours=1)


def another(before: SlurmJobState, *, user_id: int = 2001, restarts: int = 0) -> SlurmJobState:
    """Return a job like *before* that was submitted an hour later."""
    return replace(before, submitted=LATER, user_id=user_id, restarts=restarts)


@pytest.mark.parametrize("user_id", [2001, RUNNING.user_id], ids=["another user's", "the same user's"])
@pytest.mark.parametrize(
    ("before", "after", "published"),
    [
        pytest.param(PENDING, PENDING, ["JobEnded", "JobSubmitted"], id="both wait"),
        pytest.param(RUNNING, PENDING, ["JobEnded", "JobSubmitted"], id="the next one waits"),
        pytest.param(RUNNING, RUNNING, ["JobEnded", "JobSubmitted", "JobStarted"], id="both run"),
        pytest.param(
            RUNNING, ENDED, ["JobEnded", "JobSubmitted", "JobStarted", "JobEnded"], id="both are over by now"
        ),
        pytest.param(ENDED, PENDING, ["JobSubmitted"], id="the end of the former is told already"),
        pytest.param(
            state("RUNNING", restarts=2),
            RUNNING,
            ["JobEnded", "JobSubmitted", "JobStarted"],
            id="the former was requeued",
        ),
    ],
)
def test_a_number_that_another_job_has_by_now_ends_the_former_and_submits_that_one(
    before: SlurmJobState, after: SlurmJobState, published: list[str], user_id: int
) -> None:
    facts = job_facts(before, another(after, user_id=user_id), cluster="lab", revision=7, now=T0)

    assert [type(fact).__name__ for fact in facts] == published
    assert len({fact.id for fact in facts}) == len(facts)
    assert not isinstance(facts[0], JobEnded) or facts[0].data.state == "UNKNOWN"


def test_a_requeued_job_stays_one_job_though_its_time_of_submission_moves_when_its_epilogs_have_ended() -> (
    None
):
    ending = state("PENDING", "COMPLETING", restarts=1)
    waiting = another(state("PENDING", restarts=1), user_id=RUNNING.user_id, restarts=1)

    assert told(RUNNING, ending) == ["JobRequeued"]
    assert told(ending, waiting) == []
    assert told(RUNNING, waiting) == ["JobRequeued"]
    assert told(waiting, replace(state("RUNNING", restarts=1), submitted=LATER)) == ["JobStarted"]


def test_a_job_that_slurmctld_forgot_while_it_ran_has_ended_nobody_knows_how() -> None:
    (fact,) = job_vanished(RUNNING, cluster="lab", revision=7, now=T0)

    assert (type(fact).__name__, fact.data.state) == ("JobEnded", "UNKNOWN")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType] - it is a JobEnded
    assert job_vanished(ENDED, cluster="lab", revision=7, now=T0) == ()


def test_what_a_job_holds_is_folded_over_nodes_that_hold_the_same() -> None:
    held = tuple(NodeHeld(name=f"n{index}") for index in range(1, 4))
    seen = replace(
        job(1, "RUNNING"),
        job_resources=JobResources(nodes=NodesHeld(allocation=held)),
        gres_detail=("gpu:2(IDX:0-1)", "gpu:2(IDX:0-1)", "gpu:1(IDX:0)"),
    )

    assert allocations(seen) == (
        Allocation(nodes="n[1-2]", gpus=2),
        Allocation(nodes="n3", gpus=1),
    )


def test_a_job_on_five_thousand_nodes_whose_names_do_not_fold_fits_into_a_message() -> None:
    names = tuple(f"{hashlib.sha256(str(index).encode()).hexdigest()[:30]}.example" for index in range(5000))
    held = tuple(NodeHeld(name=name, cpus=CpusHeld(count=index % 9)) for index, name in enumerate(names))
    resources = JobResources(nodes=NodesHeld(allocation=held))
    seen = Job(job_id=7, job_state=("RUNNING",), nodes=",".join(names), job_resources=resources)

    state = job_state(seen, 1, T0)

    assert len(encode(state)) <= MAX_BYTES
    assert (state.nodes, state.allocations) == (seen.nodes, ())


def test_a_user_whose_name_slurmrestd_does_not_know_now_keeps_the_name_of_before() -> None:
    known = replace(job(1), user_id=2000, user_name="ada")
    before = job_state(known, 1, T0)

    assert job_state(replace(known, user_name=""), 1, T0, before).user == "ada"
    assert job_state(replace(known, user_name="", user_id=2001), 1, T0, before).user == ""
    assert job_state(replace(known, user_name="ada2"), 1, T0, before).user == "ada2"


def test_a_job_on_five_thousand_nodes_fits_into_a_message() -> None:
    names = tuple(f"gpu-{index:05d}" for index in range(5000))
    told = job_state(job(1, "RUNNING", nodes=names, folded="gpu-[00000-04999]"), 1, T0)

    assert len(encode(told)) < 2000
    assert decode_state(SlurmJobState, encode(told)) == told


@pytest.mark.parametrize(
    ("reason", "is_pending"),
    [("Dependency", True), ("Priority", False)],
    ids=["waits for another", "waits its turn"],
)
def test_a_dependency_is_told(reason: str, *, is_pending: bool) -> None:
    assert job_state(job(1, reason=reason), 1, T0).is_dependency_pending is is_pending


def test_times_and_exit_codes_are_told_only_when_they_are_more_than_estimates() -> None:
    times = {"start_time": Number.of(T0.timestamp()), "end_time": Number.of(T0.timestamp() + 60)}
    exit_code = ExitCode(return_code=Number.of(3))
    pending, running, ended = (
        job_state(replace(job(1, word, nodes=("n1",)), exit_code=exit_code, **times), 1, T0)
        for word in ("PENDING", "RUNNING", "FAILED")
    )

    assert (pending.started, pending.ended, pending.exit_code) == (None, None, None)
    assert (running.started, running.ended, running.exit_code) == (T0, None, None)
    assert (ended.started, ended.ended is None, ended.exit_code) == (T0, False, 3)
