"""Who has a node of a Pod that has lost its job, as the bus tells and as Slurm says then."""

from datetime import datetime, timedelta
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from sunk_events.jobs import Allocation, SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_kube.pods import PodStatus
from sunk_pod_scheduler.controller.bus_jobs import BusJobs
from sunk_pod_scheduler.controller.context import Views
from sunk_pod_scheduler.controller.mailbox import Mailbox
from sunk_pod_scheduler.controller.node_locks import NodeLocks
from sunk_pod_scheduler.controller.node_takers import NodeTakers
from sunk_pod_scheduler.controller.reconciler import Reconciler
from sunk_pod_scheduler.gang_controller.snapshotter import GangSnapshotter
from sunk_pod_scheduler.placement.limits import Limits
from sunk_pod_scheduler.placement.marks import Mark
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobUnknown
from sunk_pod_scheduler.podspec.job_size import Size
from sunk_pod_scheduler.podspec.validation import Rules
from sunk_pod_scheduler.testing.builders import (
    JOB,
    KEY,
    KUBE_NODE,
    SLURM_NODE,
    T0,
    UID,
    job,
    manifest,
    placement,
)
from sunk_pod_scheduler.testing.memory_pods import MemoryPods
from sunk_runtime.changes import Changes
from sunk_runtime.clock import now as this_moment

pytestmark = pytest.mark.anyio

FULL = Size(cpus=8, memory_mib=10)
TAKES = replace(job(nodes=(SLURM_NODE,)), job=9, held={SLURM_NODE: FULL})
NEEDS = {SLURM_NODE: Size(cpus=4, memory_mib=10)}
LOST = replace(placement("released", node=SLURM_NODE), lost=T0, attempt=1)


class Held:
    """A view of what the test says."""

    is_complete, age_s = True, 0.0

    def __init__(self, *states: SlurmJobState | SlurmNodeState | SlurmStatisticsState) -> None:
        self._states = list(states)

    def values(self) -> list[Any]:
        return self._states

    def get(self, _: str) -> Any:  # noqa: ANN401 - of either kind
        return self._states[0] if self._states else None


class Slurm:
    """Slurm, as it says of job 9 now."""

    def __init__(self, seen: AnyJob) -> None:
        self._seen = seen
        self.asked: list[int] = []

    async def see(self, number: int) -> AnyJob:
        self.asked.append(number)
        await checkpoint()
        return self._seen


def told(number: int, cpus: int) -> SlurmJobState:
    held = Allocation(nodes=SLURM_NODE, cpus=cpus, memory_mib=10)
    return SlurmJobState(changed=T0, job=number, state="RUNNING", allocations=(held,))


def takers(slurm: Slurm, *jobs: SlurmJobState, answered: datetime | None = None) -> NodeTakers:
    node = SlurmNodeState(changed=T0, node=SLURM_NODE, state="MIXED", cpus=8, memory_mib=100)
    statistics = SlurmStatisticsState(changed=T0, jobs_answered=answered or this_moment())
    views: Any = (Held(*jobs), Held(statistics), Held(node))
    port: Any = slurm
    return NodeTakers(BusJobs(views[0], views[1]), port, views[2])


async def found(slurm: Slurm, *jobs: SlurmJobState, phase: Any = "released") -> str:  # noqa: ANN401 - a phase
    return await takers(slurm, *jobs).find(replace(LOST, phase=phase), NEEDS)


async def test_others_have_their_turns_while_it_is_read_who_has_which_node() -> None:
    """Of 128 jobs on 4,000 nodes each: read in one go, that took a second in which nobody renewed a lease."""
    wide = Allocation(nodes="gpu-[0001-4000]", cpus=1)
    jobs = [SlurmJobState(changed=T0, job=one, state="RUNNING", allocations=(wide,)) for one in range(10, 20)]
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        assert await found(Slurm(TAKES), *jobs, told(9, 8))
        tasks.cancel_scope.cancel()

    assert turns >= len(jobs)


async def test_who_has_which_node_is_read_once_for_all_that_ask_at_a_time() -> None:
    views: Any = (Held(told(9, 8)), Held())
    bus_jobs, read = BusJobs(*views), views[0].values
    reads: list[float] = []

    def values() -> list[Any]:
        reads.append(anyio.current_time())
        return [*read()] * 5000

    views[0].values = values
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(bus_jobs.on, SLURM_NODE)

    assert len(reads) == 1
    assert await bus_jobs.on(SLURM_NODE) == {9: FULL}


@pytest.mark.parametrize(
    ("now", "is_given"),
    [
        pytest.param(TAKES, True, id="it runs there"),
        pytest.param(JobGone(), False, id="slurmctld does not know it: the bus has a lost one"),
        pytest.param(JobUnknown(), False, id="Slurm does not answer"),
        pytest.param(replace(TAKES, base="COMPLETED", is_over=True), False, id="it has ended since"),
        pytest.param(replace(TAKES, held={"other": FULL}), False, id="its number is that of a job elsewhere"),
        pytest.param(replace(TAKES, held={SLURM_NODE: Size(cpus=1)}), False, id="that of a small one"),
        pytest.param(
            replace(TAKES, mark=Mark(uid=UID, pod="default/infer")), False, id="it was the Pod's own"
        ),
        pytest.param(
            replace(TAKES, admin_comment=f"placeholder of Pod default/infer, attempt 0 of {UID}"),
            False,
            id="it was the Pod's own, and its user wiped the mark",
        ),
        pytest.param(replace(TAKES, is_preempted=True), False, id="another takes its place"),
        pytest.param(replace(TAKES, mark=Mark(uid="0e1d", pod="a/b")), True, id="it is another Pod's"),
        pytest.param(
            replace(TAKES, mark=Mark(uid=UID, pod="default/infer", attempt=1)),
            True,
            id="its user copied the mark of the job that the Pod waits for",
        ),
    ],
)
async def test_a_node_is_given_away_only_to_jobs_that_run_there_by_a_fresh_look(
    now: AnyJob, *, is_given: bool
) -> None:
    slurm = Slurm(now)

    why = await found(slurm, told(9, 8))

    assert bool(why) == is_given
    assert slurm.asked == [9]


async def test_slurm_is_asked_of_nobody_where_there_is_room_or_no_job_is_waited_for() -> None:
    slurm = Slurm(TAKES)

    assert await found(slurm, told(9, 4)) == ""
    assert await found(slurm, told(JOB, 8)) == ""  # The Pod's own.
    assert await found(slurm, told(9, 8), phase="bound") == ""
    assert slurm.asked == []


async def test_one_look_at_a_job_serves_all_pods_that_have_lost_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sunk_pod_scheduler.controller.node_takers.LASTS_S", 3600.0)
    slurm = Slurm(JobGone())
    many = takers(slurm, *(told(number, 1) for number in range(11, 19)))

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(many.find, LOST, NEEDS)
    await many.find(LOST, NEEDS)

    assert sorted(slurm.asked) == list(range(11, 19))


async def test_slurm_is_asked_of_nobody_while_the_bus_is_old() -> None:
    slurm = Slurm(TAKES)
    old = takers(slurm, told(9, 8), answered=this_moment() - timedelta(hours=1))

    assert await old.find(LOST, NEEDS) == ""
    assert slurm.asked == []


class Order:
    """Remembers what was asked, and of whom nobody knows anything."""

    is_complete = True

    def __init__(self, **states: Any) -> None:  # noqa: ANN401 - of any kind
        self._states = states
        self.asked: list[str] = []

    async def find(self, *_: object) -> str:
        self.asked.append("who has its node")
        return ""

    async def look(self, *_: object) -> AnyJob:
        self.asked.append("its job")
        return JobUnknown()

    def get(self, key: str) -> Any:  # noqa: ANN401 - of any kind
        return self._states.get(key)

    def values(self) -> list[Any]:
        return []

    def changes(self) -> Changes:
        return Changes(self._states)

    def require_complete(self) -> None:
        """Return: all is known."""


async def test_a_pods_own_job_is_looked_at_last_for_what_follows_is_written_to_it() -> None:
    runs = manifest()
    runs = replace(runs, spec=replace(runs.spec, node_name=KUBE_NODE), status=PodStatus(phase="Running"))
    order = Order(**{UID: LOST, "gang-1": replace(LOST, uid="gang-1")})
    stub: Any = order
    views: Any = Views(kube_pods=Order(), slurm_nodes=Order(), locks=NodeLocks(stub))  # type: ignore[arg-type]
    parts: Any = {"placements": order, "jobs": order, "takers": order, "views": views, "key": KEY}
    parts |= {"pods": MemoryPods(runs), "mailbox": Mailbox(), "rules": Rules()}

    await Reconciler(bus_jobs=stub, executor=stub, limits=Limits(), **parts).look(UID)
    await GangSnapshotter(workloads=stub, **parts).look("gang-1")

    assert order.asked == ["who has its node", "its job"] * 2
