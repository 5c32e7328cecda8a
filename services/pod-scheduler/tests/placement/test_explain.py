import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_pod_scheduler.placement.explain import FINDINGS_MAX, explain, place_in_queue
from sunk_pod_scheduler.placement.model import JobGone, JobUnknown, Observed
from sunk_pod_scheduler.testing.builders import KUBE_NODE, SLURM_NODE, T0, job, lock, placement, pod, seen

RUNNING = placement("released")
STARTED = placement("started", node=SLURM_NODE)


@pytest.mark.parametrize(
    ("found", "because", "would_change"),
    [
        pytest.param(seen(replace(pod(), is_gated=True), None, JobGone()), "gates", "removes", id="gated"),
        pytest.param(
            seen(pod(problems=("no cpu",)), placement("refused", job=None), JobGone()),
            "no cpu",
            "change the Pod",
            id="refused",
        ),
        pytest.param(
            seen(
                pod(),
                replace(
                    placement("submitted", job=None, digest="", attempt=3),
                    reason="Invalid partition name specified",
                ),
                JobGone(),
            ),
            "Invalid partition name",
            "the next attempt is at 2026-01-05 12:00:04",
            id="rejected by Slurm",
        ),
        pytest.param(
            seen(pod(), placement("released"), job("PENDING", reason="Resources")),
            "Resources",
            "squeue --start",
            id="no room",
        ),
        pytest.param(
            seen(pod(), placement("released"), job("PENDING", is_held=True, reason="JobHeldUser")),
            "JobHeldUser",
            "scontrol release 7",
            id="held by somebody",
        ),
        pytest.param(
            seen(pod(), RUNNING, job(reason="Prolog")), "locks", "in the way", id="its prolog locks the Node"
        ),
        pytest.param(seen(pod(), RUNNING, job()), "not announced", "gateway", id="its script is silent"),
        pytest.param(
            seen(pod(), RUNNING, job(), announced_on=SLURM_NODE, ungranted=(lock(),)),
            f"the lock of {SLURM_NODE} is pending",
            "granted to job 7",
            id="its script runs, and its lock is not granted",
        ),
        pytest.param(
            seen(pod(), STARTED, job(), ungranted=(lock(value="locked_strict", job=5),)),
            "not granted to it, held for job 5",
            "granted to job 7",
            id="another job has the lock",
        ),
        pytest.param(
            seen(pod(), STARTED, job(), ungranted=(lock(value="false"),)),
            "not requested",
            "granted to job 7",
            id="nobody has asked for its lock",
        ),
        pytest.param(
            seen(pod(), STARTED, job(), ungranted=(lock(value="locked_strict", granted=T0),)),
            "earlier run of job 7",
            "granted to job 7",
            id="an earlier run had the lock",
        ),
        pytest.param(
            seen(pod(), STARTED, job(), ungranted=None),
            "not read yet",
            "a moment",
            id="locks are not read yet",
        ),
        pytest.param(
            seen(pod(), STARTED, job(), kube_node=""), "NodeSet", "nodeset-controller", id="no Node"
        ),
        pytest.param(
            seen(pod(), STARTED, job(), node_problem="a taint"), "a taint", "another job", id="a taint came"
        ),
        pytest.param(
            seen(pod(kube_node=KUBE_NODE), placement("bound", node=SLURM_NODE), JobUnknown()),
            "does not answer",
            "answer again",
            id="Slurm is away",
        ),
        pytest.param(
            seen(pod(), replace(placement("ending", node=SLURM_NODE), is_overdue=True), JobGone()),
            "may still run",
            "object is gone",
            id="overdue",
        ),
    ],
)
def test_says_why_a_pod_is_as_it_is_and_what_would_change_it(
    found: Observed, because: str, would_change: str
) -> None:
    first = explain(found)[0]

    assert because in first.because
    assert would_change in first.would_change


def waiting(number: int, priority: int = 0, *, is_held: bool = False) -> SlurmJobState:
    return SlurmJobState(
        changed=T0,
        job=number,
        state="PENDING",
        partition="main",
        user="ada",
        priority=priority,
        is_held=is_held,
    )


PENDING = seen(pod(), placement("released"), replace(job("PENDING", reason="Priority"), priority=50))


@pytest.mark.parametrize(
    ("jobs", "what", "because"),
    [
        pytest.param(
            [waiting(7, 50), waiting(3, 90)], "place 2 of 2 in the queue of main", "job 3", id="behind"
        ),
        pytest.param(
            [waiting(7, 0, is_held=True), waiting(3, 90), waiting(4, 10)],
            "place 2 of 3 in the queue of main",
            "job 3",
            id="its release is not heard of",
        ),
        pytest.param([waiting(7, 50)], "place 1 of 1 in the queue of main", "no job is known", id="alone"),
        pytest.param([], "its place in Slurm's queue is not known", "has not published job 7", id="too new"),
        pytest.param(
            None,
            "its place in Slurm's queue is not known",
            "has no recent list of Slurm's jobs",
            id="an old bus",
        ),
    ],
)
def test_says_where_a_pod_that_waits_stands_in_slurms_queue(
    jobs: list[SlurmJobState] | None, what: str, because: str
) -> None:
    (finding,) = place_in_queue(PENDING, jobs, frozenset({7}))

    assert finding.what == what
    assert because in finding.because


@pytest.mark.parametrize(
    "found",
    [
        seen(pod(), placement("released"), job("PENDING", is_held=True)),
        seen(pod(), placement("released"), job("PENDING", reason="BeginTime")),
        seen(pod(), placement("released"), job()),
        seen(pod(), placement("released"), JobUnknown()),
        seen(pod(), placement("submitted", job=None), JobGone()),
    ],
)
def test_who_does_not_wait_in_slurms_queue_has_no_place_in_it(found: Observed) -> None:
    assert place_in_queue(found, [waiting(7, 50)], frozenset[int]()) == ()


def test_everything_that_is_wrong_with_a_pod_is_listed() -> None:
    wrong = tuple(f"problem {number}" for number in range(50))

    found = explain(seen(pod(problems=wrong), placement("refused", job=None), JobGone()))

    assert [finding.because for finding in found] == list(wrong[:FINDINGS_MAX])
