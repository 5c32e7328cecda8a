"""What has changed since a reader asked, on a real bus, with a test's own decisions about rights."""

import hashlib
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from sunk_events import subjects
from sunk_events.base import State
from sunk_events.codec import encode
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_events.view import Changes
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_view import following as tables
from sunk_view.access import Access, Right
from sunk_view.callers import Caller
from sunk_view.following import ROWS_MAX, Following
from sunk_view.positions import key_of
from sunk_view.states import ClusterStates

pytestmark = pytest.mark.anyio
T0 = datetime(2026, 1, 1, tzinfo=UTC)
ALICE = Caller(user="alice")


class Rights:
    """Grants what *grants* grants."""

    def __init__(self, grants: Callable[[Right], bool] = lambda _: True) -> None:
        self._grants = grants

    async def may(self, _caller: Caller, right: Right) -> bool:
        return self._grants(right)


def node(name: str, state: str = "IDLE", **fields: Any) -> SlurmNodeState:  # noqa: ANN401 - of the struct
    return SlurmNodeState(changed=T0, node=name, state=state, **fields)


def job(number: int, state: str = "PENDING", **fields: Any) -> SlurmJobState:  # noqa: ANN401 - of the struct
    return SlurmJobState(changed=T0, job=number, state=state, **fields)


def pod(uid: str, phase: Any = "released", gang: str = "") -> PlacementState:  # noqa: ANN401 - a literal
    return PlacementState(changed=T0, uid=uid, namespace="team-a", pod=f"pod-{uid}", phase=phase, gang=gang)


class Cluster:
    """A cluster on the bus, and a reader of it."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.states = ClusterStates(bus, "c1", silent_s=60)

    async def write(self, key: str, state: State) -> None:
        """Have a state, and see it."""
        bucket = subjects.bucket("c1", type(state))
        await self.bus.publish(subjects.key_subject(bucket, key), encode(state))
        view = next(view for view in self.states.all if view.kind is type(state))
        await until(lambda: view.get(key) == state)

    async def end(self, key: str, kind: type[State]) -> None:
        """Have a state no more, and see that."""
        subject = subjects.key_subject(subjects.bucket("c1", kind), key)
        await self.bus.publish(subject, b"", headers={"KV-Operation": "DEL"})
        view = next(view for view in self.states.all if view.kind is kind)
        await until(lambda: view.get(key) is None)

    def positions(self, *names: str) -> dict[str, str]:
        return {name: tables.after([self.states], name) for name in names}

    async def changes(self, query: dict[str, str], rights: Rights | None = None) -> Changes:
        access = cast("Access", rights or Rights())
        answer = await Following(access, [self.states]).answer(query, ALICE)
        assert isinstance(answer.body, Changes), answer
        return answer.body


@pytest.fixture
async def cluster(bus: Bus) -> AsyncGenerator[Cluster]:
    found = Cluster(bus)
    async with following(*found.states.all):
        await until(lambda: all(view.is_complete for view in found.states.all))
        await found.write(subjects.STATISTICS_KEY, SlurmStatisticsState(changed=T0, nodes_answered=T0))
        for number in range(3):
            await found.write(f"d{number}", node(f"d{number}"))
        yield found


async def test_a_node_has_one_row_whichever_of_its_states_changed(cluster: Cluster) -> None:
    at = cluster.positions("nodes")
    nothing = await cluster.changes(at)
    await cluster.write("d1", node("d1", is_drain=True, reason="bad fan"))
    await cluster.write("d1", LockState(changed=T0, node="d1", kube_node="n1", lock="locked"))
    pod_state = KubePodState(
        changed=T0, pod="d2", namespace="slurm", nodeset="g", kube_node="n2", phase="running"
    )
    await cluster.write("d2", pod_state)
    found = await cluster.changes(at)
    after = await cluster.changes(found.after)

    assert (nothing.nodes, nothing.whole, nothing.refused) == ((), (), ())
    assert [(row.node, row.is_drain, row.lock, row.kube_node) for row in found.nodes] == [
        ("d1", True, "locked", ""),
        ("d2", False, "", "n2"),
    ]
    assert after.nodes == ()
    assert found.slurm_seen == {"c1": T0}


async def test_what_went_is_named_once(cluster: Cluster) -> None:
    await cluster.write("7", job(7))
    await cluster.write("8", job(8, "RUNNING"))
    await cluster.write("u1", pod("u1"))
    at = cluster.positions("nodes", "jobs", "placements")
    await cluster.end("d1", SlurmNodeState)
    await cluster.end("7", SlurmJobState)
    await cluster.write("8", job(8, "COMPLETED", is_over=True))
    await cluster.end("u1", PlacementState)
    found = await cluster.changes(at)
    after = await cluster.changes(found.after)

    assert found.gone == {
        "nodes": ("c1/d1",),
        "jobs": ("c1/7", "c1/8"),
        "placements": (f"c1/{key_of('u1', cluster.states.row_secret)}",),
    }
    assert (found.nodes, found.jobs, found.placements) == ((), (), ())
    assert after.gone == {}


async def test_a_member_that_changes_has_the_name_of_its_gang(cluster: Cluster) -> None:
    await cluster.write("g", pod("g"))
    at = cluster.positions("placements")
    await cluster.write("m", pod("m", gang="g"))
    found = await cluster.changes(at)

    assert [(row.pod, row.gang) for row in found.placements] == [("pod-m", "pod-g")]


async def test_members_of_a_gang_that_changes_or_goes_are_told_again(cluster: Cluster) -> None:
    await cluster.write("m", pod("m", gang="g"))
    at = cluster.positions("placements")
    await cluster.write("g", pod("g"))
    came = await cluster.changes(at)
    await cluster.end("g", PlacementState)
    went = await cluster.changes(came.after)

    assert {row.pod: row.gang for row in came.placements} == {"pod-m": "pod-g", "pod-g": ""}
    assert [(row.pod, row.gang) for row in went.placements] == [("pod-m", "")]


async def test_who_follows_no_table_hears_of_a_silent_bus_and_nothing_of_slurm(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateView, "age_s", 12.0)
    found = await cluster.changes({})

    assert (found.silent_s, found.slurm_seen) == (12.0, {})


async def test_a_job_is_a_placeholder_by_its_placement_and_never_by_its_name(cluster: Cluster) -> None:
    await cluster.write("7", job(7, "RUNNING", name="team-a/web"))
    await cluster.write("8", job(8, "RUNNING", name="exp/lr0.1"))
    at = cluster.positions("jobs")
    placement = msgspec.structs.replace(pod("u1", "bound"), job=7)
    await cluster.write("u1", placement)
    found = await cluster.changes(at)
    await cluster.write("8", job(8, "RUNNING", is_completing=True, name="exp/lr0.1"))
    await cluster.write("u1", msgspec.structs.replace(placement, lost=T0))
    after = await cluster.changes(found.after)

    assert [(row.job, row.is_placeholder) for row in found.jobs] == [(7, True)]
    assert [(row.job, row.is_placeholder) for row in after.jobs] == [(7, False), (8, False)]


async def test_the_key_of_a_hidden_gang_is_not_the_digest_of_its_names(cluster: Cluster) -> None:
    at = cluster.positions("placements")
    await cluster.write("gang-of-team-a", pod("gang-of-team-a"))
    found = await cluster.changes(at)
    unkeyed = hashlib.blake2s(b"gang-of-team-a", digest_size=12).hexdigest()
    ours = cluster.positions("nodes", "placements")
    cluster.states.row_secret = b"of another process"
    again = await cluster.changes(ours)

    assert [row.key == unkeyed for row in found.placements] == [False]
    assert again.whole == ("placements",)


async def test_only_tables_that_the_caller_may_see_are_answered(cluster: Cluster) -> None:
    at = cluster.positions("nodes", "jobs")
    await cluster.write("7", job(7))
    await cluster.write("d1", node("d1", "MIXED"))
    found = await cluster.changes(at, Rights(lambda right: right.resource == "nodes"))

    assert (len(found.nodes), found.jobs, found.refused) == (1, (), ("jobs",))
    assert found.after.keys() == {"nodes"}


async def test_what_is_not_known_is_to_be_read_whole(cluster: Cluster) -> None:
    at = cluster.positions("nodes")["nodes"]
    mark, time_s, revisions = at.split(".")[1:]
    other_bucket = at.replace(mark, "0" * len(mark))
    too_old = at.replace(f".{time_s}.", f".{int(time_s) - 100_000}.")
    other_cluster = at.replace("c1.", "c9.")
    found = [(await cluster.changes({"nodes": one})).whole for one in (other_bucket, too_old, other_cluster)]
    wrong = await Following(cast("Access", Rights()), [cluster.states]).answer({"nodes": "x"}, ALICE)

    assert found == [("nodes",)] * 3
    assert (wrong.status, wrong.body["message"]) == (400, "nodes: is not from an earlier answer")
    assert revisions


async def test_a_replica_that_is_behind_says_so_and_moves_no_reader_back(cluster: Cluster) -> None:
    at = cluster.positions("jobs")["jobs"]
    ahead = f"{at.rpartition('-')[0]}-1000000"
    found = await cluster.changes({"jobs": ahead})

    assert (found.late, found.jobs, found.whole) == (("jobs",), (), ())
    assert found.after["jobs"].endswith("-1000000")


async def test_a_reader_from_before_a_bucket_went_back_reads_it_whole(cluster: Cluster) -> None:
    await cluster.write("1", job(1, "PENDING"))
    at = cluster.positions("jobs", "nodes")
    jobs = cluster.states.jobs
    jobs.correct("1", job(1, "RUNNING"), jobs.revision("1") - 1)  # An older store, of the same bucket.
    await cluster.write("2", job(2))  # Its revision is the reader's, or a later one.

    assert (await cluster.changes(at)).whole == ("jobs",)


async def test_a_revision_that_another_message_had_means_that_the_bucket_went_back(cluster: Cluster) -> None:
    await cluster.write("1", job(1, "PENDING"))
    at, jobs = cluster.positions("jobs"), cluster.states.jobs
    before = (await cluster.changes(at)).whole
    jobs.apply_own("2", job(2, "RUNNING"), jobs.revision("1"))  # Its owner wrote on before we saw it.

    assert before == ()
    assert (await cluster.changes(at)).whole == ("jobs",)


async def test_a_replica_that_is_behind_in_one_bucket_of_a_row_sends_none_and_what_it_lacked_comes_later(
    cluster: Cluster,
) -> None:
    behind, states = cluster.positions("nodes")["nodes"], cluster.states
    head, _, revisions = behind.rpartition(".")
    nodes, pods, locks = map(int, revisions.split("-"))
    states.nodes.apply_own("d1", node("d1", "MIXED"), nodes + 1)
    ahead = f"{head}.{nodes}-{pods}-{locks + 1}"
    late = await cluster.changes({"nodes": ahead})
    states.locks.apply_own("d1", LockState(changed=T0, node="d1", kube_node="n1", lock="locked"), locks + 1)
    found = await cluster.changes(late.after)

    assert (late.late, late.nodes, late.gone, late.after) == (("nodes",), (), {}, {"nodes": ahead})
    assert [(row.node, row.state, row.lock) for row in found.nodes] == [("d1", "MIXED", "locked")]
    assert found.late == ()


async def test_more_changes_than_one_answer_holds_are_the_whole(cluster: Cluster) -> None:
    at = cluster.positions("jobs")
    view = cluster.states.jobs
    for number in range(1, ROWS_MAX + 2):
        view.apply_own(str(number), job(number), number)
    found = await cluster.changes(at)

    assert (found.whole, found.jobs) == (("jobs",), ())
    assert "jobs" not in found.after
    assert msgspec.json.encode(found)
