"""Whom we ask to leave a Node, what keeps a Pod, and how many nodes failed locks may drain."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sunk_events.requests import BlockingPod
from sunk_kube.pods import ContainerState, ContainerStatus, ContainerTerminated, Pod
from sunk_kube.testing import T0, pod
from sunk_nodeset_controller.lock_controller.handlers import LAST_S, MARGIN_S, hold_s
from sunk_nodeset_controller.locks.blockers import Refusal, blocking
from sunk_nodeset_controller.locks.eviction import EvictionAttempt, PodEviction, evictions, refusals
from sunk_nodeset_controller.locks.model import Clearing

WEB = pod()
BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def asked(*, since: float, tried: float, because: str = BUDGET) -> dict[str, EvictionAttempt]:
    return {WEB.metadata.uid: EvictionAttempt(since=at(since), tried=at(tried), because=because)}


@pytest.mark.parametrize(
    ("before", "after_s", "how"),
    [
        pytest.param({}, None, "evict", id="asked first"),
        pytest.param(asked(since=99, tried=99.5), None, None, id="not asked in a hot loop"),
        pytest.param(asked(since=98, tried=98.5), None, "evict", id="asked soon at first"),
        pytest.param(asked(since=0, tried=90), None, None, id="asked more rarely later"),
        pytest.param(asked(since=-9000, tried=84), None, "evict", id="but not ever more so"),
        pytest.param(
            asked(since=0, tried=80),
            None,
            "evict",
            id="forbidden, and never deleted by itself",
        ),
        pytest.param(asked(since=0, tried=80), 120.0, "evict", id="the bound has not passed"),
        pytest.param(asked(since=0, tried=80), 60.0, "delete", id="the bound has passed"),
    ],
)
def test_a_pod_is_evicted_again_and_again_and_deleted_only_after_the_bound(
    before: dict[str, EvictionAttempt], after_s: float | None, how: str | None
) -> None:
    clearing = Clearing(delete_after_s=after_s)
    found = evictions([WEB], placed={}, attempts=before, clearing=clearing, now=at(100))

    assert [(deed.how, deed.pod) for deed in found] == ([(how, WEB)] if how else [])


def test_nobody_is_asked_twice_and_a_pod_that_slurm_places_never() -> None:
    going, placed = pod("going", deleted=T0), pod("placed")

    assert (
        evictions([going, placed], placed={placed.metadata.uid: 8}, attempts={}, clearing=Clearing(), now=T0)
        == ()
    )


def test_all_others_are_asked_by_their_names() -> None:
    first, second = pod("a"), pod("b")
    found = evictions([second, first], placed={}, attempts={}, clearing=Clearing(), now=T0)

    assert found == (PodEviction("evict", first), PodEviction("evict", second))


def test_only_an_eviction_that_was_not_done_keeps_a_pod() -> None:
    assert refusals(asked(since=1, tried=2, because="")) == {}
    assert refusals(asked(since=1, tried=2)) == {WEB.metadata.uid: Refusal(at(1), BUDGET)}


def leaving(*, finalizers: tuple[str, ...] = (), has_ended: bool = False) -> Pod:
    """Return a Pod that was asked at T0 to be gone after 20 s."""
    found = pod(deleted=at(20))
    state = ContainerState(terminated=ContainerTerminated(exit_code=0, finished_at=at(2)))
    statuses = (ContainerStatus(name="main", state=state),) if has_ended else ()
    return replace(
        found,
        metadata=replace(found.metadata, deletion_grace_period_seconds=20, finalizers=finalizers),
        status=replace(found.status, container_statuses=statuses),
    )


@pytest.mark.parametrize(
    ("found", "now", "since", "because"),
    [
        pytest.param(WEB, 5, None, "it is not evicted yet", id="not asked"),
        pytest.param(leaving(), 5, 0, "grace period of 20 s", id="within its grace period"),
        pytest.param(
            leaving(), 25, 0, "its kubelet has not ended it in its grace period", id="its kubelet is dead"
        ),
        pytest.param(
            leaving(finalizers=("a/b", "c/d")), 5, 0, "grace period of 20 s", id="has a finalizer, still runs"
        ),
        pytest.param(
            leaving(finalizers=("a/b", "c/d"), has_ended=True), 5, 0, "finalizer a/b, c/d", id="kept by it"
        ),
        pytest.param(leaving(finalizers=("a/b",)), 25, 0, "finalizer a/b", id="kept by it past its time"),
    ],
)
def test_what_keeps_a_pod_is_said(found: Pod, now: float, since: float | None, because: str) -> None:
    told = blocking([found], refused={}, placed={}, now=at(now))

    assert told == (
        BlockingPod(pod="default/web", since=None if since is None else at(since), because=because),
    )


@pytest.mark.parametrize("grace_s", [10**11, 10**12, 10**15, -(10**12)])
def test_what_keeps_a_pod_is_said_whatever_its_grace_period(grace_s: int) -> None:
    found = leaving()
    found = replace(found, metadata=replace(found.metadata, deletion_grace_period_seconds=grace_s))

    assert blocking([found], refused={}, placed={}, now=at(5)) == (
        BlockingPod(pod="default/web", because=f"grace period of {grace_s} s"),
    )


def test_a_budget_and_an_ended_job_are_said_too() -> None:
    refused = {WEB.metadata.uid: Refusal(at(1), BUDGET)}

    assert blocking([WEB], refused=refused, placed={}, now=at(5))[0].because == BUDGET
    assert (
        blocking([WEB], refused={}, placed={WEB.metadata.uid: 8}, now=at(5))[0].because
        == "its placeholder job 8 no longer runs here"
    )


@given(st.floats(0.05, 4000))
def test_a_prolog_asks_a_last_time_right_before_its_deadline(left_s: float) -> None:
    pause_s, rounds = 1.3, 0
    while left_s > LAST_S:
        held_s = hold_s(left_s)
        assert held_s < LAST_S
        left_s, rounds = left_s - held_s - pause_s, rounds + 1
        if rounds > 20:
            return
    assert left_s > MARGIN_S or rounds == 0
    assert hold_s(left_s) <= max(0.1, left_s)
