from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunk_events.base import Reply
from sunk_events.placements import PlacementPhase, PlacementState
from sunk_events.requests import (
    BlockingPod,
    JobNotRunning,
    Later,
    LockGranted,
    LockWaiting,
    Noted,
    PlacementReleased,
    Refused,
)
from sunk_hook_gateway.hooks import answers
from sunk_hook_gateway.hooks.answers import RETRY, Answer
from sunk_hook_gateway.metrics import REFUSALS

GONE = Answer(200, {"gone": True})


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        pytest.param(LockGranted(), Answer(200, {"locked": True}), id="locked"),
        pytest.param(
            JobNotRunning(state="CANCELLED"),
            Answer(200, {"locked": False, "state": "CANCELLED"}),
            id="a prolog of a cancelled job must not fail",
        ),
        pytest.param(LockWaiting(in_the_way=("a/b",)), None, id="waiting: ask again"),
        pytest.param(Later(reason="views"), None, id="later: ask again"),
        pytest.param(
            Refused(code="unknown_node", reason="no such node"),
            Answer(404, {"error": "no such node"}),
            id="unknown to the lock too",
        ),
    ],
)
def test_a_prolog_is_told_what_the_lock_said(reply: Reply, answer: Answer | None) -> None:
    assert answers.acquired(reply) == answer


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [
        pytest.param(
            LockWaiting(in_the_way=("default/web-1",)),
            "k8s: prolog pre-hook failed: default/web-1 (sunk:verify-undrain)",
            id="one Pod",
        ),
        pytest.param(
            LockWaiting(
                in_the_way=("ns/a", "ns/b"),
                blocking=(
                    BlockingPod(
                        pod="ns/b", since=datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC), because="finalizer x/y"
                    ),
                ),
            ),
            "k8s: prolog pre-hook failed: ns/a, ns/b (finalizer x/y, since 12:00:05 UTC)"
            " (sunk:verify-undrain)",
            id="what keeps it and since when",
        ),
        pytest.param(
            LockWaiting(in_the_way=()),
            "k8s: prolog pre-hook failed: not locked in time (sunk:verify-undrain)",
            id="nobody is in the way any more",
        ),
        pytest.param(
            LockWaiting(in_the_way=tuple(f"ns/p{number}" for number in range(7))),
            "k8s: prolog pre-hook failed: ns/p0, ns/p1, ns/p2, ns/p3 and 3 more (sunk:verify-undrain)",
            id="many Pods",
        ),
        pytest.param(
            None, "k8s: prolog pre-hook failed: the lock did not answer (sunk:verify-undrain)", id="no answer"
        ),
    ],
)
def test_the_reason_names_the_pods_in_the_way(waiting: LockWaiting | None, reason: str) -> None:
    assert answers.drain_reason(waiting) == reason


@given(st.lists(st.tuples(st.text(max_size=300), st.text(max_size=300)), max_size=9))
def test_no_reason_needs_quoting_or_loses_its_marks(pods: list[tuple[str, str]]) -> None:
    blocking = tuple(BlockingPod(pod=pod, because=because) for pod, because in pods)
    reason = answers.drain_reason(LockWaiting(in_the_way=tuple(pod for pod, _ in pods), blocking=blocking))

    assert reason.isascii()
    assert not set(reason) & set("\"'\\\n`$")
    assert reason.startswith("k8s: prolog pre-hook failed: ")
    assert reason.endswith(" (sunk:verify-undrain)")
    assert len(reason) <= 512


def test_beyond_the_bound_the_job_is_held_instead() -> None:
    waiting = LockWaiting(in_the_way=("ns/b", "ns/a"), is_drain_allowed=False, is_hold_needed=True)

    assert answers.in_the_way(waiting, may_drain=True) == Answer(
        409,
        {
            "in_the_way": ["ns/a", "ns/b"],
            "reason": "k8s: prolog pre-hook failed: ns/a, ns/b (sunk:verify-undrain)",
            "drain": False,
            "hold": True,
            "blocking": (),
        },
    )


@pytest.mark.parametrize(
    ("waiting", "may_drain", "told"),
    [
        pytest.param(None, True, "drain", id="within the bound"),
        pytest.param(None, False, "hold", id="beyond it"),
        pytest.param(LockWaiting(in_the_way=()), False, "hold", id="a leave that is not ours to give"),
    ],
)
def test_a_refusal_is_counted_by_what_it_asks_for(
    waiting: LockWaiting | None, told: str, *, may_drain: bool
) -> None:
    assert answers.prolog_action(answers.in_the_way(waiting, may_drain=may_drain)) == told
    assert answers.prolog_action(answers.kept_back("others")) == "requeue"
    counted = {sample.labels["answer"] for metric in REFUSALS.collect() for sample in metric.samples}
    assert told in counted  # Before the first one, too.


def test_a_lock_that_never_answered_is_bounded_by_the_gateway_itself() -> None:
    said = answers.in_the_way(None, may_drain=False).content or {}

    assert (said["drain"], said["hold"], said["in_the_way"]) == (False, True, [])


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        pytest.param(PlacementReleased(is_pod_gone=True), GONE, id="gone"),
        pytest.param(
            PlacementReleased(is_pod_gone=False, pod="ns/p"),
            Answer(202, {"gone": False, "pod": "ns/p"}),
            id="still there",
        ),
        pytest.param(Later(reason=""), RETRY, id="later is not gone"),
        pytest.param(None, RETRY, id="no answer is not gone"),
        pytest.param(Noted(), RETRY, id="an answer to something else is not gone"),
        pytest.param(
            Refused(code="forbidden", reason="no"), Answer(403, {"error": "no"}), id="not this token"
        ),
    ],
)
def test_a_pod_is_gone_only_when_its_owner_says_so(reply: Reply | None, answer: Answer) -> None:
    assert answers.released(reply) == answer


def placement(
    phase: PlacementPhase,
    *,
    job: int = 7,
    attempt: int = 1,
    is_pod_present: bool = True,
    exit_code: int | None = None,
) -> PlacementState:
    return PlacementState(
        changed=datetime(2026, 1, 1, tzinfo=UTC),
        uid="u",
        namespace="ns",
        pod="p",
        phase=phase,
        job=job,
        attempt=attempt,
        is_pod_present=is_pod_present,
        exit_code=exit_code,
    )


BOUND = placement("bound")


@pytest.mark.parametrize(
    ("present", "exit_code"),
    [
        pytest.param(BOUND, None, id="the Pod lives"),
        pytest.param(placement("ending"), None, id="the Pod is still terminating"),
        pytest.param(placement("ending", is_pod_present=False, exit_code=3), 3, id="the Pod failed"),
        pytest.param(placement("ended", exit_code=0), 0, id="the Pod is over"),
        pytest.param(None, None, id="the placement is lost: that says nothing of the Pod"),
        pytest.param(placement("submitted", job=9, attempt=2), 0, id="another job has the Pod's place"),
        pytest.param(placement("bound", job=5, attempt=0), None, id="the job before: the bus went back"),
        pytest.param(
            placement("ending", job=5, attempt=0, is_pod_present=False), None, id="the job before, over"
        ),
    ],
)
def test_a_placeholder_ends_as_its_pod_did_and_not_before(
    present: PlacementState | None, exit_code: int | None
) -> None:
    expected = None if exit_code is None else Answer(200, {"exit_code": exit_code})

    assert answers.outcome(BOUND, present) == expected
