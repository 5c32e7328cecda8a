"""What a call is told while the states it needs are not read: always "again", never "no"."""

import hashlib
from pathlib import Path

import anyio
import pytest

from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementPhase, PlacementState
from sunk_hook_gateway.access.tokens import Caller, Trust, parse_keys
from sunk_hook_gateway.adapters.keys import PodTokens
from sunk_hook_gateway.adapters.leave_count import LeaveCount
from sunk_hook_gateway.adapters.views import Locks, Placements
from sunk_hook_gateway.config import Config
from sunk_hook_gateway.controller.admission import Admission, Admitted
from sunk_hook_gateway.controller.calls import Gateway
from sunk_hook_gateway.hooks.answers import Answer
from sunk_hook_gateway.hooks.bodies import Prehook, Release
from sunk_hook_gateway.testing.hooks import CLUSTER, NOW, register, start_pod
from sunk_hook_gateway.testing.issuer import AUDIENCE, ISSUER, Issuer
from sunk_lab.nats import NatsServer
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_slurm.failed_locks import FailedLocks

pytestmark = pytest.mark.anyio

ISSUED_BY = Issuer()


def gateway_of(
    bus: Bus,
    nodes: StateView[SlurmNodeState],
    pods: StateView[KubePodState],
    placements: Placements | None = None,
) -> Gateway:
    return Gateway(
        bus,
        Config(cluster=CLUSTER, release_wait_s=0.2),
        nodes=nodes,
        pods=pods,
        locks=Locks(StateView(bus, CLUSTER, LockState)),
        placements=placements or Placements(StateView(bus, CLUSTER, PlacementState)),
        leaves=LeaveCount(bus, CLUSTER, FailedLocks()),
    )


def admission_of(bus: Bus, pods: StateView[KubePodState], callers: PodTokens | None = None) -> Admission:
    callers = callers or PodTokens(published, audience=AUDIENCE)
    placements = Placements(StateView(bus, CLUSTER, PlacementState))
    return Admission(callers, "slurm", pods=pods, placements=placements)


async def published() -> Trust:
    return Trust(ISSUER, parse_keys(ISSUED_BY.jwks()))


async def test_a_pod_is_no_stranger_while_pods_are_not_read_nor_while_its_state_is_another_ones(
    bus: Bus,
) -> None:
    pods, callers = pods_of(bus), PodTokens(published, audience=AUDIENCE)
    admission = admission_of(bus, pods, callers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(callers.run)
        with pytest.raises(TransientError):
            await admission.node(ISSUED_BY.token("n1", uid="new"), "n1")
        async with following(pods):
            await start_pod(bus, "n1", uid="old")
            with pytest.raises(TransientError):
                await admission.node(ISSUED_BY.token("n1", uid="new"), "n1")
            await start_pod(bus, "n1", uid="new")
            await until(lambda: (pod := pods.get("n1")) is not None and pod.uid == "new")
            admitted = await admission.node(ISSUED_BY.token("n1", uid="new"), "n1")
            with pytest.raises(TransientError):
                await admission.node(ISSUED_BY.token("n1", uid="old"), "n1")
            assert admitted == Admitted(Caller("n1", "slurm", "new", "slurmd"))
        tasks.cancel_scope.cancel()


async def test_a_node_is_not_unknown_while_nodes_are_not_read(bus: Bus) -> None:
    gateway = gateway_of(bus, StateView(bus, CLUSTER, SlurmNodeState), StateView(bus, CLUSTER, KubePodState))

    assert (await gateway.prehook("n1", Prehook(job=1, deadline_s=1))).status == 503
    assert (await gateway.release_node("n1", Release(job=1))).status == 503


async def test_a_pod_is_not_gone_and_a_job_no_stranger_while_placements_are_not_read(bus: Bus) -> None:
    nodes, pods = StateView(bus, CLUSTER, SlurmNodeState), StateView(bus, CLUSTER, KubePodState)
    await register(bus, "n1")
    async with following(nodes, pods):
        gateway = gateway_of(bus, nodes, pods)
        await nodes.complete()

        assert (await gateway.release_node("n1", Release(job=1))).status == 503
        for accepts_unplaced in (False, True):
            with pytest.raises(TransientError):
                await admission_of(bus, pods).job("t", 1, accepts_unplaced=accepts_unplaced)


async def test_a_node_that_neither_slurm_nor_kubernetes_has_is_unknown(bus: Bus) -> None:
    nodes, pods = StateView(bus, CLUSTER, SlurmNodeState), pods_of(bus)
    async with following(nodes, pods):
        gateway = gateway_of(bus, nodes, pods)
        await nodes.complete()
        await pods.complete()

        assert (await gateway.prehook("nowhere", Prehook(job=1))).status == 404
        assert (await gateway.release_node("nowhere", Release(job=1))).status == 404


async def test_a_drain_too_many_is_not_asked_for_while_nodes_are_not_read(bus: Bus) -> None:
    nodes, pods = StateView(bus, CLUSTER, SlurmNodeState), StateView(bus, CLUSTER, KubePodState)
    nodes.apply_own("n1", SlurmNodeState(changed=NOW, node="n1", state="IDLE"), 1)

    answer = await gateway_of(bus, nodes, pods).prehook("n1", Prehook(job=1, deadline_s=0.2))

    assert answer.status == 409
    assert answer.content is not None
    assert (answer.content["drain"], answer.content["hold"]) == (False, True)


async def test_a_placeholder_that_waits_for_its_outcome_is_told_nothing_by_an_older_copy_of_the_bus(
    tmp_path: Path,
) -> None:
    answers, told_of_old, told_of_new = list[Answer](), list[Answer](), list[Answer]()
    with NatsServer(tmp_path / "nats") as server:
        settings = BusSettings(url=server.url)
        async with connect(settings, "test") as bus:
            await bus.provision(CLUSTER, settings)
            mine, view = (StateView(bus, CLUSTER, PlacementState) for _ in "ab")
            placements, writer = Placements(view), StateWriter(bus, mine, fence=None)
            gateway = gateway_of(bus, StateView(bus, CLUSTER, SlurmNodeState), pods_of(bus), placements)
            async with following(mine, view), anyio.create_task_group() as tasks:
                tasks.start_soon(placements.run)
                await writer.record("u", placed("ending", is_pod_present=False), revision=0)
                server.keep_store()
                await until(lambda: view.is_complete and bus.reconnects == 1)
                await writer.record("u", placed("bound"), revision=mine.revision("u"))
                await until(lambda: placements.of_job(7) == mine.get("u"))

                async def poll() -> None:
                    answers.append(await gateway.outcome(7, placed("bound"), "token"))

                tasks.start_soon(poll)
                await anyio.wait_all_tasks_blocked()
                server.put_store_back()
                await until(lambda: view.get("u") != placed("bound"))
                await until(lambda: mine.is_complete)
                told_of_old += answers
                await writer.record("u", placed("bound"), revision=mine.revision("u"))
                await until(lambda: view.is_complete)
                told_of_new += answers
                ended = placed("ended", exit_code=3)
                await writer.record("u", ended, revision=mine.revision("u"))
                await until(lambda: answers != [])
                tasks.cancel_scope.cancel()

    assert (told_of_old, told_of_new, answers) == ([], [], [Answer(200, {"exit_code": 3})])


def placed(
    phase: PlacementPhase, *, is_pod_present: bool = True, exit_code: int | None = None
) -> PlacementState:
    return PlacementState(
        changed=NOW,
        uid="u",
        namespace="ns",
        pod="p",
        phase=phase,
        job=7,
        token_sha256=hashlib.sha256(b"token").hexdigest(),
        is_pod_present=is_pod_present,
        exit_code=exit_code,
    )


def pods_of(bus: Bus) -> StateView[KubePodState]:
    return StateView(bus, CLUSTER, KubePodState)


async def test_of_two_placements_with_one_number_the_live_one_has_the_job(bus: Bus) -> None:
    """slurmctld lost its state and gives numbers anew: a lost Pod's placement still says the old one."""
    view = StateView(bus, CLUSTER, PlacementState)
    writer, placements = StateWriter(bus, view, fence=None), Placements(view)

    async def put(uid: str, job: int | None, *, is_lost: bool = False) -> None:
        state = PlacementState(
            changed=NOW,
            uid=uid,
            namespace="ns",
            pod=uid,
            phase="bound",
            job=job,
            lost=NOW if is_lost else None,
        )
        await writer.record(uid, state, revision=view.revision(uid))

    def owner() -> str:
        found = placements.of_job(5)
        return found.uid if found else ""

    async with following(view), anyio.create_task_group() as tasks:
        tasks.start_soon(placements.run)
        await view.complete()
        await put("lost", 5)
        await put("new", 5)
        await until(lambda: owner() == "new")
        await put("lost", 5, is_lost=True)
        await put("other", 6)
        await until(lambda: placements.of_job(6) is not None)
        assert owner() == "new"
        await put("lost", None, is_lost=True)
        await put("other", 7)
        await until(lambda: placements.of_job(7) is not None)
        assert owner() == "new"
        tasks.cancel_scope.cancel()
