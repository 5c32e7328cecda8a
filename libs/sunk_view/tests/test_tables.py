"""States of the bus as rows, counts and sentences."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockHolder, LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import Gang, GangMember, PlacementPhase, PlacementState
from sunk_events.view import DrainCause, LockRow
from sunk_view.placements import findings
from sunk_view.tables import (
    KUBERNETES_LATE_S,
    SLURM_LATE_S,
    drain_causes,
    job_rows,
    lag,
    lock_rows,
    node_rows,
    pod_rows,
    silences,
    slurm_lag,
    state_word,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)
PHASES: tuple[PlacementPhase, ...] = (
    *("refused", "submitted", "released", "started"),
    *("bound", "ending", "ended"),
)


def node(name: str, *, reason: str = "", is_drain: bool = False, is_busy: bool = False) -> SlurmNodeState:
    return SlurmNodeState(
        changed=T0,
        node=name,
        state="IDLE",
        reason=reason,
        is_drain=is_drain,
        is_busy=is_busy,
        reason_changed=T0,
    )


def placement(pod: str, phase: PlacementPhase = "bound", namespace: str = "a") -> PlacementState:
    return PlacementState(changed=T0, uid=f"uid-{pod}", namespace=namespace, pod=pod, phase=phase, job=7)


def test_nodes_with_the_same_reason_are_one_cause_and_the_most_come_first() -> None:
    nodes = [node("d3"), *(node(f"d{n}", reason="k8s: cordoned", is_drain=True) for n in (2, 1))]
    nodes.append(node("d4", reason="bad disk", is_drain=True))

    assert drain_causes(nodes) == (
        DrainCause(reason="k8s: cordoned", nodes=2, some=("d1", "d2"), oldest=T0),
        DrainCause(reason="bad disk", nodes=1, some=("d4",), oldest=T0),
    )
    assert [state_word(one) for one in (nodes[0], nodes[1], node("x", is_drain=True, is_busy=True))] == [
        "idle",
        "drained",
        "draining",
    ]


def test_a_lock_that_waits_longest_comes_first_and_a_free_node_is_no_row() -> None:
    def lock(name: str, minutes: int, granted: datetime | None) -> LockState:
        holder = LockHolder(job=minutes, level="normal", granted=granted)
        value = "pending" if granted is None else "locked"
        at = T0 + timedelta(minutes=minutes)
        return LockState(changed=at, node=name, kube_node=f"n-{name}", lock=value, holders=(holder,))

    free = LockState(changed=T0, node="d9", kube_node="n", lock="false")
    rows = lock_rows("c1", [lock("d1", 1, T0), lock("d2", 3, None), free, lock("d3", 2, None)])

    assert [row.node for row in rows] == ["d3", "d2", "d1"]
    assert rows[2] == LockRow(
        cluster="c1",
        node="d1",
        kube_node="n-d1",
        lock="locked",
        since=T0 + timedelta(minutes=1),
        granted=(1,),
    )


def test_a_node_of_either_side_is_a_row() -> None:
    pod = KubePodState(
        changed=T0, pod="d2", namespace="slurm", nodeset="gpu", kube_node="node2", phase="waiting"
    )
    rows = node_rows("c1", [node("d1")], [pod], [])

    assert [(row.node, row.state, row.kube_node) for row in rows] == [("d1", "IDLE", ""), ("d2", "", "node2")]


def test_jobs_that_are_over_are_listed_only_while_they_hold_nodes() -> None:
    def job(number: int, *, is_over: bool, is_completing: bool = False) -> SlurmJobState:
        return SlurmJobState(changed=T0, job=number, state="X", is_over=is_over, is_completing=is_completing)

    rows = job_rows(
        "c1", [job(3, is_over=True, is_completing=True), job(2, is_over=True), job(1, is_over=False)]
    )

    assert [(row.job, row.state) for row in rows] == [(1, "X"), (3, "COMPLETING")]


def test_pods_of_one_namespace_are_listed_without_those_of_others() -> None:
    found = [placement("x"), placement("y", namespace="b")]

    assert [row.pod for row in pod_rows("c1", found, b"x", "a")] == ["x"]
    assert [row.pod for row in pod_rows("c1", found, b"x")] == ["x", "y"]


def test_a_list_of_one_namespace_sorts_no_pods_of_others_and_has_the_names_of_gangs() -> None:
    class Unsorted(str):
        """Fails where it is compared."""

        __slots__ = ()

        def __lt__(self, other: str) -> bool:
            raise AssertionError(other)

    others = [placement(f"x{number}", namespace=Unsorted("b")) for number in range(3)]
    gang = PlacementState(
        changed=T0, uid="g", namespace="a", pod="ring", phase="bound", roster=Gang(kind="Job", members=())
    )
    member = msgspec.structs.replace(placement("m"), gang="g")
    rows = pod_rows("c1", [*others, member, gang], b"x", "a")

    assert [(row.pod, row.gang) for row in rows] == [("m", "ring"), ("ring", "")]


def test_a_service_that_has_seen_nothing_for_long_is_named() -> None:
    def problem(ago_s: float) -> str:
        return lag("Slurm", T0 - timedelta(seconds=ago_s), T0, SLURM_LATE_S)

    assert (problem(10), problem(600)) == ("", "has not seen Slurm for 600 s")
    assert lag("Slurm", None, T0, SLURM_LATE_S) == "has not seen Slurm yet"
    assert lag("Kubernetes", T0 - timedelta(seconds=61), T0, KUBERNETES_LATE_S) == (
        "has not seen Kubernetes for 61 s"
    )
    assert silences("c1", {"syncer": problem(600), "nodeset-controller": ""}) == (
        "c1: syncer has not seen Slurm for 600 s: its data may be old",
    )


@pytest.mark.parametrize(
    ("nodes_s", "jobs_s", "problem"),
    [
        (10, 10, ""),
        (10, 600, "has not seen Slurm's jobs for 600 s"),
        (600, 10, "has not seen Slurm's nodes for 600 s"),
        (700, 600, "has not seen Slurm for 600 s"),
        pytest.param(10, None, "", id="an older syncer"),
        pytest.param(600, None, "has not seen Slurm for 600 s", id="an older syncer without Slurm"),
        (None, None, "has not seen Slurm yet"),
        (None, 10, "has not seen Slurm's nodes yet"),
    ],
)
def test_each_list_of_slurm_that_fails_is_named(
    nodes_s: float | None, jobs_s: float | None, problem: str
) -> None:
    def ago(seconds: float | None) -> datetime | None:
        return None if seconds is None else T0 - timedelta(seconds=seconds)

    assert slurm_lag(ago(nodes_s), ago(jobs_s), T0) == problem


def test_each_phase_has_a_sentence_that_says_what_would_change_it() -> None:
    for phase in PHASES:
        (finding,) = findings(placement("x", phase))
        assert finding.what
        assert finding.would_change


def test_a_member_and_its_gang_say_each_other() -> None:
    members = (GangMember(uid="uid-x", pod="x"), GangMember(uid="uid-y", pod="y", vacant=T0))
    roster = Gang(kind="Job", members=members)
    gang = PlacementState(
        changed=T0, uid="g", namespace="a", pod="train", phase="released", job=7, roster=roster
    )

    assert findings(gang)[1].what == "1 of 2 members have a Pod, 2 are needed"
    assert findings(placement("x"), gang)[1].what == "a member of the gang train"
