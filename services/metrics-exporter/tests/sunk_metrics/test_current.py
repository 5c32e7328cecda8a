from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockHolder, LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_metrics_exporter.sunk_metrics.current import Drained, look
from sunk_metrics_exporter.sunk_metrics.drain_causes import Cause, cause_of
from sunk_metrics_exporter.sunk_metrics.drains_without_cause import cause_lost, kubernetes_side
from sunk_metrics_exporter.sunk_metrics.durations import Drains, Waits

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEGAN = NOW - timedelta(hours=1)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def drained(reason: str, since: datetime | None = NOW) -> SlurmNodeState:
    return SlurmNodeState(
        changed=NOW, node="n1", state="IDLE", is_drain=True, reason=reason, reason_changed=since
    )


HEALTHY = SlurmNodeState(changed=after(60), node="n1", state="IDLE")
CORDON = Cause("kubernetes", "cordon")


@pytest.mark.parametrize(
    ("reason", "owner", "cause"),
    [
        ("k8s: cordon: disk is full", "kubernetes", "cordon"),
        ("k8s: pod terminated: cordon", "kubernetes", "pod terminated"),
        ("k8s:pod not ready", "kubernetes", "pod not ready"),
        ("k8s: something new", "kubernetes", "other"),
        ("Prolog error", "slurm", "prolog error"),
        ("Kill task failed", "slurm", "kill task failed"),
        ("Low RealMemory (reported:1 < 100.00% of configured:2)", "slurm", "low realmemory"),
        ("NHC: check_fs_mount failed", "slurm", "nhc"),
        ("ada looks at job 17", "person", "other"),
        ("", "person", "other"),
    ],
)
def test_the_words_for_a_drains_cause_are_few_whatever_its_reason(
    reason: str, owner: str, cause: str
) -> None:
    assert cause_of(drained(reason)) == Cause(owner, cause)


def test_a_drain_that_ends_tells_how_long_it_was_and_is_told_once() -> None:
    drains = Drains()

    assert drains.see("n1", drained("k8s: cordon")) is None
    assert drains.see("n1", drained("k8s: cordon: why", since=after(30))) is None
    assert drains.see("n1", HEALTHY) == (CORDON, 60)
    assert drains.see("n1", HEALTHY) is None


def test_a_drained_node_that_goes_was_not_mended() -> None:
    drains = Drains()
    drains.see("n1", drained("k8s: cordon"))

    assert drains.see("n1", None) is None
    assert drains.see("n1", HEALTHY) is None


def started(at: datetime) -> SlurmJobState:
    return SlurmJobState(
        changed=NOW,
        job=1,
        state="RUNNING",
        nodes="n1",
        submitted=at - timedelta(seconds=90),
        started=at,
    )


def test_a_job_that_starts_tells_how_long_it_waited_and_tells_it_once() -> None:
    waits = Waits(BEGAN)

    assert waits.see("1", replace(started(NOW), state="PENDING")) is None
    assert waits.see("1", started(NOW)) == 90
    assert waits.see("1", replace(started(NOW), state="COMPLETED")) is None


def test_a_job_that_is_requeued_waits_again() -> None:
    waits = Waits(BEGAN)
    waits.see("1", started(NOW))

    assert waits.see("1", started(after(600))) == 90


def test_no_wait_is_told_of_a_job_that_started_before_us_or_never() -> None:
    waits = Waits(BEGAN)

    assert waits.see("1", started(BEGAN - timedelta(seconds=1))) is None
    assert waits.see("1", replace(started(NOW), state="CANCELLED", nodes="")) is None
    assert waits.see("1", None) is None


def test_what_waits_longest_is_told_and_what_waits_no_more_is_not() -> None:
    granted = LockHolder(job=1, level="normal", asked=after(-300), granted=after(-200))
    waiting = LockHolder(job=2, level="normal", asked=after(-40))
    locks = [
        LockState(changed=after(-1), node="d", kube_node="k", lock="pending", holders=(granted, waiting)),
        LockState(changed=after(-30), node="a", kube_node="k", lock="pending"),
        LockState(changed=after(-10), node="b", kube_node="k", lock="pending"),
        LockState(changed=after(-99), node="c", kube_node="k", lock="locked"),
    ]
    waits = PlacementState(changed=NOW, uid="u", namespace="n", pod="p", phase="released", created=after(-20))
    bound = replace(waits, phase="bound", created=after(-500))
    nodes = [drained("k8s: cordon", after(-7)), drained("k8s: cordon", after(-5)), HEALTHY]
    runs = replace(waits, created=after(-900), lost=after(-3), kube_node="k1")

    seen = look(nodes, locks, [waits, bound, runs], [], NOW)

    assert seen.drains == {CORDON: Drained(2, 7)}
    assert (seen.locks, seen.lock_oldest_s) == ({"pending": 3, "locked": 1, "locked_strict": 0}, 40)
    assert {phase: count for phase, count in seen.placements.items() if count} == {"released": 2, "bound": 1}
    assert seen.placement_oldest_s == 20
    empty = look([], [], [], [], NOW)
    assert (empty.drains, empty.lock_oldest_s, empty.placement_oldest_s) == ({}, 0, 0)


POD = KubePodState(
    changed=after(-40),
    pod="n1",
    namespace="slurm",
    nodeset="gpu",
    kube_node="k",
    phase="running",
    is_ready=True,
)
LOCK = LockState(changed=after(-20), node="n1", kube_node="k", lock="pending", in_the_way=("default/web",))
PLACED = PlacementState(changed=NOW, uid="u", namespace="n", pod="p", phase="bound", node="n1")
OURS = drained("k8s: cordon: disk", after(-60))


def test_a_drain_of_ours_that_nothing_wants_any_more_is_told_since_its_cause_went() -> None:
    unlocked = replace(LOCK, in_the_way=())
    assert cause_lost(OURS, kubernetes_side([POD], [], [])) == ("cordon", after(-40))
    assert cause_lost(OURS, kubernetes_side([POD], [unlocked], [PLACED])) == (
        "cordon",
        after(-20),
    )
    assert look([OURS], [], [], [POD], NOW).without_cause == {"cordon": Drained(1, 40)}


@pytest.mark.parametrize(
    ("node", "pods", "locks", "placements"),
    [
        pytest.param(OURS, [replace(POD, is_cordoned=True)], [], [], id="cordoned"),
        pytest.param(OURS, [replace(POD, is_ready=False)], [], [], id="not ready"),
        pytest.param(OURS, [replace(POD, is_condemned=True)], [], [], id="condemned"),
        pytest.param(OURS, [replace(POD, phase="terminating")], [], [], id="terminating"),
        pytest.param(OURS, [replace(POD, phase="gone")], [], [], id="gone"),
        pytest.param(OURS, [POD], [LOCK], [], id="a Pod is in the way of a lock"),
        pytest.param(OURS, [POD], [], [replace(PLACED, is_overdue=True)], id="a Pod is overdue"),
        pytest.param(OURS, [POD], [], [replace(PLACED, phase="ending")], id="a Pod is ending"),
        pytest.param(OURS, [], [], [], id="in no NodeSet: nothing is known"),
        pytest.param(
            replace(drained("k8s: cordon; was down: bad dimm"), state="DOWN", is_down=True),
            [POD],
            [],
            [],
            id="down, and its reason keeps why",
        ),
        pytest.param(drained("bad power supply"), [POD], [], [], id="a person's"),
        pytest.param(HEALTHY, [POD], [], [], id="not drained"),
    ],
)
def test_a_drain_that_may_have_a_cause_does_not_outlive_it(
    node: SlurmNodeState,
    pods: list[KubePodState],
    locks: list[LockState],
    placements: list[PlacementState],
) -> None:
    assert cause_lost(node, kubernetes_side(pods, locks, placements)) is None
