"""Whose a job is, whatever users write into what they own, and whatever becomes of job numbers."""

from datetime import timedelta
from typing import Literal

import msgspec
import pytest
from msgspec.structs import replace

from sunk_pod_scheduler.placement import marks, tokens
from sunk_pod_scheduler.placement.actions import (
    CancelJob,
    Forget,
    GiveUp,
    Record,
    Refuse,
    ReportLoss,
    Submit,
    Wait,
)
from sunk_pod_scheduler.placement.decide import decide
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S, Limits
from sunk_pod_scheduler.placement.marks import Claim
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen, JobUnknown
from sunk_pod_scheduler.placement.ownership import Owner, believed, own
from sunk_pod_scheduler.testing.builders import (
    JOB,
    KEY,
    KUBE_NODE,
    SLURM_NODE,
    T0,
    UID,
    job,
    placement,
    pod,
    seen,
)

USER, OTHER = 1001, 1002
NAME = "default/infer"
OWNER = Owner(uid=UID, attempt=3, user_id=USER, name=NAME)
EXTRA = marks.extra_text(KEY, UID, NAME, 3, USER)


class Earlier(msgspec.Struct, frozen=True):
    """What an earlier version writes and reads of a claim and of an Extra: neither job nor user is signed."""

    attempt: int
    mark: str
    job: int | None = None
    uid: str | None = None
    pod: str | None = None


class EarlierExtra(msgspec.Struct, frozen=True):
    sunk: Earlier


EARLIER_MARK = tokens.mark(KEY, UID, 3)
EARLIER_EXTRA = msgspec.json.encode(
    EarlierExtra(Earlier(uid=UID, pod=NAME, attempt=3, mark=EARLIER_MARK))
).decode()
EARLIER_CLAIM = msgspec.json.encode(Earlier(job=JOB, attempt=3, mark=EARLIER_MARK)).decode()


ADMIN_COMMENT = marks.admin_comment(f"Pod {NAME}", UID, 3)


def looked_at(extra: str, *, user_id: int = USER, name: str = NAME, admin_comment: str = "") -> JobSeen:
    mark = marks.read_extra(KEY, extra, user_id)
    found = replace(job(), extra=extra, user_id=user_id, name=name, mark=mark)
    return replace(found, admin_comment=admin_comment)


def test_a_claim_to_another_number_is_none() -> None:
    text = marks.claim(KEY, UID, 3, 17)

    assert marks.read_claim(KEY, UID, text) is not None
    assert marks.read_claim(KEY, UID, text.replace("17", "4711")) is None
    assert marks.read_claim(KEY, "another Pod", text) is None


def test_a_marked_job_is_ours_once_its_admin_comment_says_so() -> None:
    found = [own(looked_at(EXTRA, admin_comment=text), OWNER) for text in ("", "theirs", ADMIN_COMMENT)]

    assert [isinstance(one, JobSeen) and one.is_marked and one.is_ours for one in found] == [
        False,
        False,
        True,
    ]


def test_earlier_versions_read_what_is_written_now_and_theirs_is_still_read() -> None:
    claim = msgspec.json.decode(marks.claim(KEY, UID, 3, JOB), type=Earlier)
    extra = msgspec.json.decode(EXTRA, type=EarlierExtra).sunk
    theirs = marks.read_claim(KEY, UID, EARLIER_CLAIM)

    assert (claim.job, claim.attempt, claim.mark) == (JOB, 3, EARLIER_MARK)
    assert (extra.uid, extra.attempt, extra.mark) == (UID, 3, EARLIER_MARK)
    assert theirs is not None
    assert (theirs.job, theirs.is_signed) == (JOB, False)
    found = own(looked_at(EARLIER_EXTRA), OWNER)
    assert isinstance(found, JobSeen)
    assert (found.is_marked, found.is_ours) == (True, False)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(looked_at("", name="train"), id="somebody's ordinary job"),
        pytest.param(looked_at(EXTRA, user_id=OTHER), id="another user has copied the Extra"),
        pytest.param(looked_at(EARLIER_EXTRA, user_id=OTHER), id="another user has copied an earlier Extra"),
        pytest.param(
            looked_at(EXTRA.replace('"user_id":1001', '"user_id":1002'), user_id=OTHER), id="and edited"
        ),
        pytest.param(looked_at(marks.extra_text(KEY, "other", "default/other", 3, USER)), id="another Pod's"),
        pytest.param(looked_at(marks.extra_text(KEY, UID, NAME, 2, USER)), id="an earlier attempt's"),
        pytest.param(looked_at("", user_id=OTHER), id="of the same name, and another user"),
    ],
)
def test_a_number_that_is_another_job_by_now_is_no_job_of_the_pod(found: JobSeen) -> None:
    assert own(found, OWNER) == JobGone(is_taken=True)


def test_a_placeholder_whose_user_took_its_mark_away_ends_its_pod_and_is_written_no_more() -> None:
    found = own(looked_at("{}"), OWNER)
    assert isinstance(found, JobSeen)
    assert not found.is_marked
    over = replace(found, base="CANCELLED", is_over=True)
    bound = seen(pod(kube_node=KUBE_NODE), placement("bound", node=SLURM_NODE), over)
    ended = seen(None, placement("ended", node=SLURM_NODE), found)
    waits = seen(pod(), placement("submitted"), replace(found, base="PENDING", is_held=True, nodes=()))

    after_bound = decide(bound, T0, Limits())
    after_waits = decide(waits, T0, Limits())

    assert isinstance(after_bound, Record)
    assert after_bound.state.phase == "ending"
    assert isinstance(after_waits, Record)
    assert after_waits.state.job is None
    assert isinstance(decide(ended, T0.replace(year=2027), Limits()), Wait)


TAKEN = T0 - timedelta(seconds=30)
"""When Slurm took the job, as was seen when it started."""


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(looked_at("", name="mine"), id="wiped and renamed"),
        pytest.param(
            looked_at(marks.extra_text(KEY, "other", "default/other", 0, USER)), id="another's mark"
        ),
        pytest.param(looked_at(marks.extra_text(KEY, UID, NAME, 2, USER)), id="an earlier attempt's mark"),
        pytest.param(
            replace(looked_at("", name="mine", admin_comment=ADMIN_COMMENT), is_requeued=True, submitted=T0),
            id="requeued too",
        ),
        pytest.param(
            replace(
                looked_at("", name="mine", admin_comment=f"placeholder of Pod {NAME}"),
                is_requeued=True,
                submitted=T0,
            ),
            id="requeued too, of an earlier version",
        ),
        pytest.param(looked_at("", user_id=OTHER), id="and the Pod names another user by now"),
    ],
)
def test_no_user_has_his_pods_job_taken_for_a_lost_one_and_gets_another_ahead_of_all(found: JobSeen) -> None:
    job_of_old = replace(found, submitted=found.submitted or TAKEN)
    bound = replace(placement("bound", node=SLURM_NODE), submitted=TAKEN)

    seen_now = own(job_of_old, replace(OWNER, submitted=TAKEN))

    assert isinstance(seen_now, JobSeen)
    assert not seen_now.is_marked
    after = decide(seen(pod(kube_node=KUBE_NODE), bound, replace(seen_now, base="CANCELLED")), T0, Limits())
    assert isinstance(after, Record)
    assert after.state.phase == "ending"


THEIRS = marks.extra_text(KEY, "other", "default/other", 0, USER)


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(looked_at("{}"), id="of the same name"),
        pytest.param(replace(looked_at("", name="train.sh"), is_requeued=True), id="requeued"),
        pytest.param(
            replace(
                looked_at(THEIRS, admin_comment=marks.admin_comment("Pod default/other", "other", 0)),
                is_requeued=True,
            ),
            id="another Pod's, that Slurm could not launch",
        ),
        pytest.param(
            replace(looked_at("", admin_comment="placeholder of Pod default/other"), is_requeued=True),
            id="another Pod's, of an earlier version",
        ),
        pytest.param(
            replace(
                looked_at("", admin_comment=marks.admin_comment(f"Pod {NAME}", UID, 13)), is_requeued=True
            ),
            id="of another attempt",
        ),
    ],
)
def test_a_job_that_slurm_took_later_only_has_the_number(later: JobSeen) -> None:
    assert own(replace(later, submitted=T0), replace(OWNER, submitted=TAKEN)) == JobGone(is_taken=True)


@pytest.mark.parametrize("name", [NAME, "mine"])
def test_a_job_whose_user_took_its_mark_away_while_it_waits_ends_before_its_pod_gets_another(
    name: str,
) -> None:
    found = own(looked_at("", name=name, admin_comment=ADMIN_COMMENT), OWNER)
    assert isinstance(found, JobSeen)
    waits = replace(found, base="PENDING", nodes=())

    again = decide(seen(pod(), placement("released"), waits), T0, Limits())
    over = decide(seen(None, placement("ended"), found), T0, Limits())
    lost = decide(seen(replace(pod(), claim=Claim(job=JOB, attempt=3)), None, waits), T0, Limits())

    assert isinstance(again, GiveUp)
    assert (again.job, again.state.attempt, again.state.job) == (JOB, 1, None)
    assert over == CancelJob(JOB)
    assert isinstance(lost, Record)
    assert (lost.state.attempt, lost.state.job) == (3, JOB)


def test_when_slurm_took_its_job_is_remembered_once_it_has_started() -> None:
    waits = seen(pod(), placement("released"), replace(job(), submitted=TAKEN))

    started = decide(replace(waits, announced_on=SLURM_NODE), T0, Limits())

    assert isinstance(started, Record)
    assert (started.state.phase, started.state.submitted) == ("started", TAKEN)


@pytest.mark.parametrize("phase", ["released", "started"])
def test_a_placeholder_that_its_user_requeued_binds_no_pod_by_what_its_script_said_before(
    phase: Literal["released", "started"],
) -> None:
    again = replace(job(), is_requeued=True, reason="Prolog")
    found = replace(seen(pod(), placement(phase, node=SLURM_NODE), again), announced_on=SLURM_NODE)

    action = decide(replace(found, kube_node=KUBE_NODE), T0, Limits())

    assert isinstance(action, GiveUp)
    assert action.state.job is None


def test_a_placeholder_that_slurm_could_not_launch_and_holds_is_left_as_it_is() -> None:
    held = replace(job(), base="PENDING", is_held=True, reason="JobHeldAdmin", is_requeued=True, nodes=())

    assert not isinstance(decide(seen(pod(), placement("released"), held), T0, Limits()), GiveUp)


@pytest.mark.parametrize("found", [JobGone(), JobGone(is_taken=True)])
def test_a_number_that_a_tenant_wrote_is_never_stored_for_others_to_believe(found: AnyJob) -> None:
    claimed = replace(pod(kube_node=KUBE_NODE), claim=Claim(job=JOB, attempt=3))
    signed = replace(claimed, claim=Claim(job=JOB, attempt=3, job_mark="verified"))

    stored = decide(seen(claimed, None, found), T0, Limits())
    ours = decide(replace(seen(signed, None, found), slurm_node=SLURM_NODE), T0, Limits())

    assert isinstance(stored, Record)
    assert stored.state.job is None
    assert isinstance(ours, Record)
    assert ours.state.job == (None if found == JobGone(is_taken=True) else JOB)


def test_a_finished_pod_that_claims_anothers_job_is_left_and_one_that_waits_gets_a_job_of_its_own() -> None:
    over = replace(pod(kube_node=KUBE_NODE, is_over=True), claim=Claim(job=JOB, attempt=3))
    waits = replace(pod(), claim=Claim(job=JOB, attempt=3))

    assert decide(seen(over, None, JobGone(is_taken=True)), T0, Limits()) == Wait()
    assert decide(seen(waits, None, JobGone(is_taken=True)), T0, Limits()) == Submit(4)


def test_a_pod_that_is_wrong_where_its_bucket_was_lost_is_refused_once_and_its_job_is_its_next() -> None:
    wrong = replace(pod(problems=("x: wrong",)), claim=Claim(job=JOB, attempt=3, job_mark="verified"))

    refused = decide(seen(wrong, None, JobGone()), T0, Limits())
    assert isinstance(refused, Refuse)
    stored = believed(refused.state, wrong.claim, is_bound=False)

    assert stored is not None
    assert decide(seen(wrong, stored, JobGone()), T0, Limits()) == Wait()
    assert decide(seen(replace(wrong, problems=()), stored, JobGone()), T0, Limits()) == Submit(4)


@pytest.mark.parametrize("is_terminating", [True, False])
def test_what_is_made_of_a_claim_whose_number_is_anothers_is_not_overtaken_by_that_claim(
    *, is_terminating: bool
) -> None:
    claim = Claim(job=JOB, attempt=3, job_mark="verified")
    found = replace(pod(kube_node=KUBE_NODE, is_terminating=is_terminating), claim=claim)

    adopted = decide(replace(seen(found, None, JobGone(is_taken=True)), slurm_node=SLURM_NODE), T0, Limits())

    assert isinstance(adopted, Record)
    assert believed(adopted.state, claim, is_bound=True) == adopted.state
    assert (adopted.state.job, adopted.state.attempt) == (None, 4)


def test_an_older_placement_goes_where_its_pod_has_nothing_to_be_adopted() -> None:
    over = replace(pod(kube_node=KUBE_NODE, is_over=True), claim=Claim(job=JOB, attempt=3, job_mark="ours"))
    found = replace(seen(over, None, JobGone()), is_overtaken=True)

    assert decide(found, T0, Limits()) == Forget()
    assert decide(replace(found, job=JobUnknown()), T0, Limits()) == Wait(ASK_AGAIN_S)


def test_a_pod_that_leaves_is_not_taken_for_the_job_that_has_its_number_now() -> None:
    leaving = seen(pod(kube_node=KUBE_NODE, is_terminating=True), placement("ending"), JobGone(is_taken=True))
    action = decide(leaving, T0, Limits())

    assert isinstance(action, Record)
    assert action.state.job is None


@pytest.mark.parametrize(
    ("found", "is_asked"), [(JobGone(), True), (JobGone(is_taken=True), False)], ids=["orphan", "taken"]
)
def test_slurm_is_asked_before_a_script_that_it_killed_as_an_orphan_is_heeded(
    found: JobGone, *, is_asked: bool
) -> None:
    before = placement("bound", node=SLURM_NODE)
    told = decide(seen(pod(kube_node=KUBE_NODE), before, found, is_release_requested=is_asked), T0, Limits())
    assert isinstance(told, ReportLoss)
    again = decide(
        seen(pod(kube_node=KUBE_NODE), told.state, found, is_release_requested=is_asked), T0, Limits()
    )

    assert isinstance(again, Record)
    assert (again.state.phase, again.state.job, again.state.attempt) == ("submitted", None, 1)
    assert decide(
        seen(pod(kube_node=KUBE_NODE), before, JobUnknown(), is_release_requested=True), T0, Limits()
    ) == Wait(ASK_AGAIN_S)
