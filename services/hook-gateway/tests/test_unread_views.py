"""What a call is told while the states it needs are not read: always "again", never "no"."""

import pytest

from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_hook_gateway.bodies import Prehook, Release
from sunk_hook_gateway.calls import Gateway
from sunk_hook_gateway.config import Config
from sunk_hook_gateway.counting import LeaveCount
from sunk_hook_gateway.testing.hooks import CLUSTER, NOW, register
from sunk_hook_gateway.waiting import Locks, Placements
from sunk_runtime.errors import TransientError
from sunk_runtime.jetstream import Bus
from sunk_runtime.views import StateView, following
from sunk_slurm.failed_locks import FailedLocks

pytestmark = pytest.mark.anyio


def gateway_of(bus: Bus, nodes: StateView[SlurmNodeState], pods: StateView[KubePodState]) -> Gateway:
    return Gateway(
        bus,
        Config(cluster=CLUSTER, release_wait_s=0.2),
        nodes=nodes,
        pods=pods,
        locks=Locks(StateView(bus, CLUSTER, LockState)),
        placements=Placements(StateView(bus, CLUSTER, PlacementState)),
        leaves=LeaveCount(bus, CLUSTER, FailedLocks()),
    )


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
        with pytest.raises(TransientError):
            await gateway.outcome(1, "t")
        with pytest.raises(TransientError):
            await gateway.release_job(1, "t")


async def test_a_drain_too_many_is_not_asked_for_while_nodes_are_not_read(bus: Bus) -> None:
    nodes, pods = StateView(bus, CLUSTER, SlurmNodeState), StateView(bus, CLUSTER, KubePodState)
    nodes.apply_own("n1", SlurmNodeState(changed=NOW, node="n1", state="IDLE"), 1)

    answer = await gateway_of(bus, nodes, pods).prehook("n1", Prehook(job=1, deadline_s=0.2))

    assert answer.status == 409
    assert answer.content is not None
    assert (answer.content["drain"], answer.content["hold"]) == (False, True)
