"""A node is lifted after a Pod that was overdue, but where another Pod's job has left it unseen."""

import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_events.placements import PlacementState
from sunk_lab.nats import NatsServer
from sunk_runtime.clock import now
from sunk_runtime.jetstream import BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import following
from sunk_runtime.writer import StateWriter
from sunk_slurm.testing import job as one_job
from sunk_slurm.testing import node
from sunk_slurm.wire import Job
from sunk_syncer.actions import NodeAction, UndrainNode
from sunk_syncer.config import Config
from sunk_syncer.controllers.drains import DrainController
from sunk_syncer.policy.drains import OVERDUE
from sunk_syncer.testing.stage import CLUSTER, node_views, ready_pod
from sunk_syncer.writers.node_writer import FRESH_S, Seen

pytestmark = pytest.mark.anyio

BOUND = PlacementState(
    changed=now(), uid="u8", namespace="team", pod="stays", phase="bound", job=8, node="n1", kube_node="k1"
)
"""The other Pod; that the first was there says the node's reason."""
WAITS = replace(BOUND, phase="released", attempt=1, lost=now(), lost_job=4)
"""It runs, slurmctld has lost its job, and the next one requires the node."""


class Slurm:
    """A node that was drained for a Pod that is gone, and job 8 as a look shows it."""

    def __init__(self, *state: str, nodes: str = "n1") -> None:
        self.found = replace(one_job(8, *state), nodes=nodes) if state else None
        self.looks: list[int] = []
        self.done: list[NodeAction] = []
        self.turns = 0

    @asynccontextmanager
    async def place(self, _: str) -> AsyncGenerator[None]:
        yield
        self.turns += 1

    async def look(self, name: str) -> Seen:
        return Seen(node(name, "IDLE", "DRAIN", reason=OVERDUE), time.monotonic() + FRESH_S)

    async def carry_out(self, action: NodeAction, _: Seen) -> bool:
        self.done.append(action)
        return True


class Jobs:
    """Job 8, as Slurm shows it."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self.heard: list[int] = []

    async def seen_all(self, jobs: Iterable[int]) -> dict[int, Job | None]:
        await anyio.lowlevel.checkpoint()
        self._slurm.looks += jobs
        return dict.fromkeys(jobs, self._slurm.found)

    def look(self, job: int) -> None:
        self.heard.append(job)


class Watch:
    """Who follows the nodes, and whom nothing is asked."""

    clock_ahead_s = 0.0

    def look(self, name: str) -> None:
        """Take note of nothing."""


@pytest.mark.parametrize(
    ("slurm", "lifts"),
    [
        pytest.param(Slurm("RUNNING"), True, id="it runs"),
        pytest.param(Slurm("SUSPENDED"), True, id="it is suspended"),
        pytest.param(Slurm("NODE_FAIL"), False, id="it has ended"),
        pytest.param(Slurm("RUNNING", "COMPLETING"), False, id="it ends"),
        pytest.param(Slurm("RUNNING", nodes="n2"), False, id="it is elsewhere"),
        pytest.param(Slurm(), False, id="slurmctld does not know it"),
    ],
)
async def test_a_node_is_lifted_beside_another_pod_only_if_that_ones_job_runs_there_by_a_fresh_look(
    nats: NatsServer, slurm: Slurm, *, lifts: bool
) -> None:
    runs = SlurmJobState(changed=now(), job=8, state="RUNNING", is_running=True, nodes="n1")

    jobs = await settled(nats, slurm, BOUND, runs)

    assert slurm.looks[0] == 8
    assert jobs.heard[:1] == ([] if lifts else [8])  # The bus is to hear what it has not.
    assert [type(action) for action in slurm.done[:1]] == ([UndrainNode] if lifts else [])


@pytest.mark.parametrize(
    "waits",
    [
        pytest.param(WAITS, id="it is released"),
        pytest.param(replace(WAITS, phase="submitted"), id="it is held yet"),
        pytest.param(replace(WAITS, phase="submitted", gang="g", lost=None, lost_job=None), id="a gang's"),
    ],
)
async def test_a_node_is_lifted_beside_another_pod_that_runs_and_waits_for_its_next_job_there(
    nats: NatsServer, waits: PlacementState
) -> None:
    slurm = Slurm("PENDING", nodes="")

    await settled(nats, slurm, waits, SlurmJobState(changed=now(), job=8, state="PENDING"))

    assert [type(action) for action in slurm.done[:1]] == [UndrainNode]  # Else that job never starts.


async def settled(nats: NatsServer, slurm: Slurm, other: PlacementState, job: SlurmJobState) -> Jobs:
    """Return once the drained node was settled beside the *other* Pod, whose job the bus has as *job*."""
    settings = BusSettings(url=nats.url)
    writer: object = slurm
    jobs = Jobs(slurm)
    watch: object = Watch()
    drained = SlurmNodeState(
        changed=now(), node="n1", state="IDLE", flags=("DRAIN",), is_drain=True, reason=OVERDUE
    )
    async with connect(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        views = node_views(bus, CLUSTER, bucket_doubt_s=0)
        async with following(*views.parts()), anyio.create_task_group() as tasks:
            await views.complete()
            await StateWriter(bus, views.pods, fence=None).record("n1", ready_pod("n1"), revision=0)
            await StateWriter(bus, views.jobs, fence=None).record("8", job, revision=0)
            await StateWriter(bus, views.placements, fence=None).record("u8", other, revision=0)
            await until(lambda: views.placements.get("u8") is not None and views.jobs.get("8") is not None)
            controller = DrainController(writer, watch, jobs, views, Config(cluster=CLUSTER))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            tasks.start_soon(controller.run)
            await StateWriter(bus, views.nodes, fence=None).record("n1", drained, revision=0)
            await until(lambda: slurm.turns > 0)
            tasks.cancel_scope.cancel()
    return jobs
