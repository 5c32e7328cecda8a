"""What an answer says of the services that wrote it, on a real bus."""

import re
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta

import anyio
import pytest

from sunk_events import subjects
from sunk_events.base import State
from sunk_events.codec import encode
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubeWatchState
from sunk_kube.objects import Lease
from sunk_kube.resources import Resource
from sunk_runtime.clock import now
from sunk_runtime.jetstream import Bus
from sunk_runtime.testing import until
from sunk_runtime.views import following
from sunk_view import leaders
from sunk_view.leaders import KubeLeases
from sunk_view.states import ClusterStates

pytestmark = pytest.mark.anyio
PLACES = {"pod-scheduler": ("slurm", "sunk-pod-scheduler-c1")}
NO_SYNCER = "c1: syncer has had no leader for N s: its data may be old"
NO_SCHEDULER = "c1: pod-scheduler has had no leader for N s: its data may be old"


class NoLeases:
    """An API server without a Lease; counts its calls."""

    calls = 0

    async def find(self, resource: Resource[Lease], name: str, namespace: str | None = None) -> Lease | None:
        del resource, name, namespace
        self.calls += 1


class Cluster:
    """A cluster whose services wrote just now, and no pod-scheduler."""

    def __init__(self, bus: Bus) -> None:
        self.kube = NoLeases()
        self.states = ClusterStates(bus, "c1", silent_s=60, leases=KubeLeases(self.kube, PLACES))
        self._bus = bus

    async def write(self, key: str, state: State) -> None:
        """Have a state, and see it."""
        await self.write_text(key, type(state), encode(state))
        view = next(view for view in self.states.all if view.kind is type(state))
        await until(lambda: view.get(key) == state)

    async def write_text(self, key: str, kind: type[State], text: bytes) -> None:
        """Have the bus hold this."""
        await self._bus.publish(subjects.key_subject(subjects.bucket("c1", kind), key), text)

    async def answered(self, nodes: datetime | None, jobs: datetime | None) -> None:
        """Have the syncer say when Slurm answered with its lists."""
        state = SlurmStatisticsState(changed=now(), nodes_answered=nodes, jobs_answered=jobs)
        await self.write(subjects.STATISTICS_KEY, state)

    def problem_of(self, service: str) -> str:
        """Return what status says."""
        return next(row.problem for row in self.states.status().services if row.service == service)


@pytest.fixture
async def cluster(bus: Bus) -> AsyncGenerator[Cluster]:
    found = Cluster(bus)
    async with following(*found.states.all):
        await until(lambda: all(view.is_complete for view in found.states.all))
        await found.answered(now(), now())
        await found.write(subjects.LEADER_KEY, KubeWatchState(changed=now(), seen=now()))
        yield found


async def test_a_list_of_jobs_that_fails_is_named_in_each_answer_and_in_the_status(cluster: Cluster) -> None:
    before = cluster.states.problems()
    await cluster.answered(now(), now() - timedelta(seconds=600))
    (problem,) = cluster.states.problems()

    assert before == ()
    assert problem.startswith("c1: syncer has not seen Slurm's jobs for 60")
    assert cluster.problem_of("syncer").startswith("has not seen Slurm's jobs for 60")


async def test_an_older_syncer_that_says_nothing_of_jobs_has_no_problem(cluster: Cluster) -> None:
    await cluster.answered(now(), None)

    assert (cluster.states.problems(), cluster.problem_of("syncer")) == ((), "its lease is not read yet")


async def test_a_nodeset_controller_that_has_not_written_for_a_minute_is_named(cluster: Cluster) -> None:
    long_ago = now() - timedelta(seconds=70)
    await cluster.write(subjects.LEADER_KEY, KubeWatchState(changed=long_ago, seen=long_ago))
    (problem,) = cluster.states.problems()

    assert problem.startswith("c1: nodeset-controller has not seen Kubernetes for 7")


async def test_a_state_that_cannot_be_read_is_named_where_its_last_value_is_shown(cluster: Cluster) -> None:
    states = cluster.states
    await cluster.write("d1", SlurmNodeState(changed=now(), node="d1", state="IDLE"))
    await cluster.write_text("d1", SlurmNodeState, b"{")
    await until(lambda: states.nodes.undecodable == {"d1"})
    nodes = states.problems(is_of_nodes=True)
    await cluster.write_text("7", SlurmJobState, b"{")
    await until(lambda: states.jobs.undecodable == {"7"})

    assert nodes == (
        "c1: states on the bus cannot be read (1 of nodes): they are missing, or as they were before",
    )
    assert states.problems(is_of_nodes=True) == nodes
    assert states.problems() == states.unreadable()
    assert "(1 of nodes, 1 of jobs)" in states.problems()[0]
    assert states.status().nodes == {"idle": 1}


async def test_a_service_without_a_leader_is_named_and_no_question_asks_the_api_server(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = cluster.states
    before, problems, status, why, calls = states.problems(), [()], [""], "", 0
    monkeypatch.setattr(leaders, "NAMED_AFTER", timedelta(0))
    monkeypatch.setattr(leaders, "LOOK_S", 5.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(states.run)
        await until(lambda: len(states.problems()) == 2)
        problems = [
            tuple(re.sub(r"for \d+ s", "for N s", one) for one in states.problems(is_of_nodes=is_of_nodes))
            for is_of_nodes in (False, True)
        ]
        calls = cluster.kube.calls
        status = [cluster.problem_of("pod-scheduler") for _ in range(20)]
        why = states.without_scheduler()
        tasks.cancel_scope.cancel()

    assert before == ()
    assert problems == [(NO_SCHEDULER, NO_SYNCER), (NO_SYNCER,)]
    assert why.startswith("has had no leader for ")
    assert set(status) == {leaders.NONE}
    assert cluster.kube.calls == calls == 2  # Two looks: one alone says little.
