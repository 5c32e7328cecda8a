from datetime import timedelta

import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.placements import PlacementPhase, PlacementState
from sunk_pod_scheduler.placement.events import EventSource, facts
from sunk_pod_scheduler.placement.marks import Claim, Mark
from sunk_pod_scheduler.placement.orphans import Judgement, is_news, judge
from sunk_pod_scheduler.testing.builders import JOB, SLURM_NODE, T0, placement

TELLER = EventSource("lab", "pod-scheduler")
OVERDUE = replace(placement("ending", node=SLURM_NODE), is_overdue=True)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(None, placement("refused", job=None), ["PlacementRefused"], id="refused"),
        pytest.param(None, placement("submitted", job=None), [], id="an intent is no fact"),
        pytest.param(
            placement("submitted", job=None), placement("submitted"), ["PlacementSubmitted"], id="submitted"
        ),
        pytest.param(placement("submitted"), placement("released"), [], id="released"),
        pytest.param(placement("released"), placement("started"), ["PlacementStarted"], id="started"),
        pytest.param(placement("started"), placement("bound"), ["PlacementBound"], id="bound"),
        pytest.param(placement("bound"), placement("ending"), [], id="ending"),
        pytest.param(placement("ending", node=SLURM_NODE), OVERDUE, ["PlacementOverdue"], id="overdue"),
        pytest.param(OVERDUE, OVERDUE, [], id="still overdue: no news"),
        pytest.param(OVERDUE, placement("ended"), ["PlacementEnded"], id="ended"),
        pytest.param(placement("released"), placement("submitted", job=None), [], id="its job was lost"),
    ],
)
def test_each_change_is_told_once(
    before: PlacementState | None, after: PlacementState, told: list[str]
) -> None:
    found = facts(before, after, revision=4, event_source=TELLER, now=T0 + timedelta(seconds=2))

    assert [type(event).__name__ for event in found] == told
    assert [event.id.rpartition(":")[2] for event in found] == ["4"] * len(told)


SIGNED, NEXT = Claim(job=JOB, job_mark="ours"), Claim(job=8, attempt=1, job_mark="ours")
MARK = Mark(uid="0e1c", pod="default/infer", attempt=0, mark="m")


@pytest.mark.parametrize(
    ("state", "claim", "expected"),
    [
        pytest.param(placement("released"), None, "ours", id="the placement's job"),
        pytest.param(placement("released", job=8), None, "doubled", id="the placement has another"),
        pytest.param(placement("released", job=8, attempt=1), None, "stray", id="one of a later attempt"),
        pytest.param(placement("submitted", job=None), None, "undecided", id="being submitted"),
        pytest.param(placement("submitted", job=None, attempt=1), None, "stray", id="an attempt given up"),
        pytest.param(placement("submitted", job=None, digest=""), None, "stray", id="an intent withdrawn"),
        pytest.param(None, Claim(job=JOB), "ours", id="the bucket was lost, the pod remembers"),
        pytest.param(None, Claim(job=8), "stray", id="the pod has another"),
        pytest.param(None, Claim(job=JOB, attempt=1), "stray", id="the pod has it of another attempt"),
        pytest.param(None, None, "stray", id="no pod at all"),
        pytest.param(placement("bound", job=6), NEXT, "stray", id="the pod has had a later one"),
        pytest.param(placement("submitted", job=None, digest=""), SIGNED, "ours", id="older than its number"),
        pytest.param(placement("submitted", job=None), SIGNED, "ours", id="an intent, and the pod knows"),
        pytest.param(
            placement("submitted", job=None, attempt=1),
            SIGNED,
            "stray",
            id="an attempt given up since",
        ),
        pytest.param(
            placement("submitted", job=None, digest=""), Claim(job=JOB), "stray", id="anybody's number"
        ),
    ],
)
def test_a_job_with_our_mark_is_somebodys_or_a_stray(
    state: PlacementState | None, claim: Claim | None, expected: Judgement
) -> None:
    assert judge(JOB, MARK, state, claim) == expected


@pytest.mark.parametrize(
    ("state", "claim", "expected"),
    [
        pytest.param(None, None, "unclaimed", id="nothing says whose it is"),
        pytest.param(None, Claim(job=8), "stray", id="the pod has another"),
        pytest.param(None, Claim(job=JOB), "ours", id="the pod says so"),
        pytest.param(placement("bound"), None, "ours", id="the bus says so"),
        pytest.param(placement("bound", job=8, attempt=1), None, "stray", id="the bus knows a later one"),
    ],
)
def test_a_job_whose_pod_is_on_a_node_is_no_stray_because_nothing_says_which_job_that_has(
    state: PlacementState | None, claim: Claim | None, expected: Judgement
) -> None:
    assert judge(JOB, MARK, state, claim, is_on_node=True) == expected


@pytest.mark.parametrize(
    "older",
    [
        pytest.param(placement("released", job=3), id="of the attempt before"),
        pytest.param(placement("submitted", job=None, attempt=1, digest=""), id="of before its intent"),
        pytest.param(placement("refused", job=None), id="of when the pod was not valid"),
    ],
)
def test_a_job_whose_pod_is_on_a_node_is_no_stray_by_a_store_of_before_that_job(
    older: PlacementState,
) -> None:
    assert judge(JOB, replace(MARK, attempt=1), older, None, is_on_node=True) == "unclaimed"


@pytest.mark.parametrize(
    ("phase", "base", "expected"),
    [
        ("submitted", "PENDING", False),
        ("released", "PENDING", False),
        ("released", "RUNNING", False),  # Its script says so itself.
        ("bound", "RUNNING", False),
        ("bound", "PENDING", True),
        ("bound", "SUSPENDED", True),
        ("bound", "CANCELLED", True),
        ("released", "FAILED", True),
        ("ending", "RUNNING", True),
    ],
)
def test_a_job_that_goes_as_it_should_is_not_looked_at(
    phase: PlacementPhase, base: str, *, expected: bool
) -> None:
    state = SlurmJobState(changed=T0, job=JOB, state=base)

    assert is_news(state, placement(phase)) is expected


def test_a_job_that_runs_under_the_number_of_the_pods_is_looked_at() -> None:
    bound = replace(placement("bound"), submitted=T0)
    ours = SlurmJobState(changed=T0, job=JOB, state="RUNNING", submitted=T0)

    assert not is_news(ours, bound)
    assert is_news(replace(ours, submitted=T0 + timedelta(seconds=1)), bound)


def test_a_job_that_somebody_holds_after_us_is_looked_at() -> None:
    before, held = placement("released"), SlurmJobState(changed=T0, job=JOB, state="PENDING", is_held=True)

    assert not is_news(held, before)
    assert is_news(replace(held, changed=T0 + timedelta(seconds=1)), before)
    assert is_news(SlurmJobState(changed=T0, job=JOB, state="RUNNING", flags=("COMPLETING",)), before)
    assert is_news(SlurmJobState(changed=T0, job=JOB, state="PENDING", restarts=1), before)
