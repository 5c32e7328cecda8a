"""What the bus says of jobs, and where that must not do instead of a look."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from sunk_events.jobs import Allocation, SlurmJobState
from sunk_events.placements import PlacementState
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.actions import RecordReason, Wait
from sunk_pod_scheduler.placement.decide import decide
from sunk_pod_scheduler.placement.job_on_bus import announced, expected, is_current
from sunk_pod_scheduler.placement.limits import WAITING_FIRST_S, Limits
from sunk_pod_scheduler.placement.ownership import Owner
from sunk_pod_scheduler.podspec.job_size import Size
from sunk_pod_scheduler.testing.builders import JOB, KEY, SLURM_NODE, T0, UID, placement, pod, seen

OWNER = Owner(uid=UID, attempt=0)
EXTRA = marks.extra_text(KEY, UID, "default/infer", 0, 0)
HOLDS = Allocation(nodes="gpu-000-[011-012]", cpus=4, memory_mib=1024, gpus=1)
RUNS = SlurmJobState(
    changed=T0, job=JOB, state="RUNNING", nodes=HOLDS.nodes, allocations=(HOLDS,), extra=EXTRA
)


def test_a_job_that_the_bus_knows_to_run_where_its_script_calls_from_is_not_looked_at() -> None:
    job = announced(RUNS, OWNER, SLURM_NODE, KEY)
    marked = announced(replace(RUNS, extra=EXTRA + marks.STARTED), OWNER, SLURM_NODE, KEY)

    assert job is not None
    assert marked is not None
    assert (job.is_running, job.nodes, job.extra) == (True, ("gpu-000-011", SLURM_NODE), EXTRA)
    assert (job.is_marked_started, marked.is_marked_started) == (False, True)
    assert job.held == dict.fromkeys(job.nodes, Size(cpus=4, memory_mib=1024, gpus=1))


@pytest.mark.parametrize(
    ("state", "node"),
    [
        pytest.param(None, SLURM_NODE, id="the bus does not know it yet"),
        pytest.param(replace(RUNS, state="PENDING", nodes=""), SLURM_NODE, id="nor that it has started"),
        pytest.param(replace(RUNS, flags=("COMPLETING",)), SLURM_NODE, id="it ends"),
        pytest.param(replace(RUNS, restarts=1), SLURM_NODE, id="it was requeued"),
        pytest.param(RUNS, "gpu-000-099", id="its user calls from another node"),
        pytest.param(replace(RUNS, extra="{}"), SLURM_NODE, id="its user has taken our mark away"),
        pytest.param(replace(RUNS, allocations=()), SLURM_NODE, id="nor what it holds"),
        pytest.param(
            replace(RUNS, extra=marks.extra_text(KEY, "other", "default/other", 0, 0)),
            SLURM_NODE,
            id="it is another Pod's",
        ),
    ],
)
def test_a_job_of_which_the_bus_does_not_say_enough_is_looked_at(
    state: SlurmJobState | None, node: str
) -> None:
    assert announced(state, OWNER, node, KEY) is None


BOUND = placement("bound", node=SLURM_NODE)
WAITS = replace(RUNS, state="PENDING", nodes="")
OVER = replace(RUNS, state="COMPLETED", is_over=True)


@pytest.mark.parametrize("is_first", [True, False], ids=["first look", "later"])
def test_a_bound_pods_job_that_runs_on_its_node_and_one_that_is_over_are_believed(*, is_first: bool) -> None:
    runs = expected(RUNS, BOUND, OWNER, KEY, is_first=is_first)
    over = expected(OVER, placement("ended", node=SLURM_NODE), OWNER, KEY, is_first=is_first)

    assert runs is not None
    assert over is not None
    assert (runs.is_running, over.is_gone) == (True, True)


def test_that_a_job_waits_is_believed_once_as_why_it_waits_is_old_on_the_bus() -> None:
    waits = expected(WAITS, placement("released"), OWNER, KEY, is_first=True)

    assert waits is not None
    assert (waits.base, waits.is_held) == ("PENDING", False)
    assert expected(WAITS, placement("released"), OWNER, KEY, is_first=False) is None


@pytest.mark.parametrize("reason", ["Resources", "JobHeldAdmin"])
def test_why_a_job_waits_is_told_on_its_pod_only_after_a_look(reason: str) -> None:
    waits = expected(replace(WAITS, reason=reason), placement("released"), OWNER, KEY, is_first=True)
    assert waits is not None
    late = T0 + timedelta(minutes=1)

    heard = decide(seen(pod(), placement("released"), waits), late, Limits())
    looked_at = decide(seen(pod(), placement("released"), replace(waits, is_from_bus=False)), late, Limits())

    assert heard == Wait(WAITING_FIRST_S, is_patient=True)
    assert isinstance(looked_at, RecordReason)


@pytest.mark.parametrize("skew_s", [-30, -5, 0, 5, 30])
@pytest.mark.parametrize("is_first", [True, False], ids=["first look", "later"])
def test_a_clock_of_the_syncers_that_is_off_makes_nobody_believe_more_of_a_job(
    skew_s: float, *, is_first: bool
) -> None:
    moment = T0 + timedelta(seconds=skew_s)
    for state, before in ((RUNS, BOUND), (OVER, placement("ended", node=SLURM_NODE))):
        heard = expected(replace(state, changed=moment), before, OWNER, KEY, is_first=is_first)
        assert heard == expected(state, before, OWNER, KEY, is_first=is_first)
    held = replace(WAITS, is_held=True, changed=moment)
    heard = expected(held, placement("released"), OWNER, KEY, is_first=is_first)
    # Of one that is held by a later clock it is asked; of another nothing follows but to wait.
    assert heard is None or (is_first and skew_s <= 0 and heard.base == "PENDING")
    assert is_current(moment, T0)


def test_that_a_job_is_held_is_not_believed_of_one_that_was_released_since() -> None:
    waits = expected(replace(WAITS, is_held=True), placement("released"), OWNER, KEY, is_first=True)

    assert waits is not None
    assert not waits.is_held


@pytest.mark.parametrize(
    ("state", "before"),
    [
        pytest.param(None, BOUND, id="the bus does not know it"),
        pytest.param(OVER, BOUND, id="it is over"),
        pytest.param(WAITS, BOUND, id="it waits again"),
        pytest.param(replace(RUNS, state="SUSPENDED"), BOUND, id="it is stopped"),
        pytest.param(replace(RUNS, flags=("COMPLETING",)), BOUND, id="it ends"),
        pytest.param(replace(RUNS, restarts=1), BOUND, id="it was requeued"),
        pytest.param(replace(OVER, flags=("COMPLETING",)), placement("ended"), id="it has not left its node"),
        pytest.param(replace(RUNS, nodes="gpu-000-099"), BOUND, id="it runs elsewhere"),
        pytest.param(replace(RUNS, job=8), BOUND, id="it is another job"),
        pytest.param(replace(RUNS, extra=""), BOUND, id="slurmctld has given its id to another"),
        pytest.param(RUNS, replace(BOUND, attempt=1), id="it is of an earlier attempt"),
        pytest.param(RUNS, replace(BOUND, silent=T0), id="its script is not heard"),
        pytest.param(RUNS, replace(BOUND, lost=T0), id="it was lost"),
        pytest.param(
            replace(WAITS, is_held=True, changed=T0 + timedelta(seconds=1)),
            placement("released"),
            id="somebody holds it",
        ),
        pytest.param(RUNS, placement("released"), id="it has started"),
        pytest.param(WAITS, placement("submitted"), id="it is to be released"),
        pytest.param(RUNS, placement("ending", node=SLURM_NODE), id="its pod is going"),
    ],
)
def test_a_job_of_which_the_bus_says_anything_else_is_looked_at(
    state: SlurmJobState | None, before: PlacementState
) -> None:
    assert expected(state, before, Owner(uid=UID, attempt=before.attempt), KEY, is_first=True) is None


@pytest.mark.parametrize(
    ("answered", "believed"),
    [
        (None, False),
        (T0, True),
        (T0 - timedelta(seconds=100), True),
        (T0 - timedelta(seconds=121), False),
        (T0 + timedelta(seconds=121), False),
    ],
)
def test_the_bus_is_believed_while_slurm_was_asked_of_all_jobs_lately(
    answered: datetime | None, *, believed: bool
) -> None:
    assert is_current(answered, T0) is believed
