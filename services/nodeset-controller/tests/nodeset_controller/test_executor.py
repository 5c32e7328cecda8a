"""What is done of a plan where the API server refuses some of it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sunk_kube.errors import KubeRejectedError
from sunk_kube.pods import Pod
from sunk_kube.testing import T0, node, nodeset, pod
from sunk_nodeset_controller.adapters.cluster_views import BusConnections
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.adapters.rate_limit import RateLimit
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_nodeset_controller.nodeset_controller import executor
from sunk_nodeset_controller.nodeset_controller.executor import Done, Executor
from sunk_nodeset_controller.nodesets.gpus import GpuRules
from sunk_nodeset_controller.nodesets.model import (
    Action,
    CondemnPod,
    CreatePod,
    EvictPlacedPod,
    Fits,
    Observed,
    ReleasePod,
    ReplacePod,
)

pytestmark = pytest.mark.anyio


class Server:
    """An API server that refuses to write some Pods."""

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.written: list[str] = []

    async def create_pod(self, body: dict[str, Any]) -> None:
        self._write("create", body["metadata"]["name"])

    async def delete_pod(self, _: str, name: str, _uid: str) -> None:
        self._write("delete", name)

    async def condemn_pod(self, found: Pod, why: str | None) -> None:
        self._write("condemn" if why else "release", found.metadata.name)

    async def record_end(self, *_: object) -> bool:
        return True

    async def evict_pod(self, _: str, name: str, _uid: str) -> None:
        self._write("evict", name)

    def _write(self, what: str, name: str) -> None:
        if name in self.refused:
            raise KubeRejectedError(f"{name} is denied", status=403)
        self.written.append(f"{what} {name}")


class Turns:
    """Turns of one NodeSet, of which *pods* are there."""

    def __init__(self, server: Server, *pods: str) -> None:
        made = (pod(name, namespace="slurm") for name in pods)
        nodes = {f"node{number}": node(f"node{number}") for number in range(100)}
        self._seen = Observed(nodeset=nodeset(), nodes=nodes, fits=Fits(), pods=tuple(made), now=T0)
        self._executor = Executor(
            cast("FencedKube", server),
            cast("BusConnections", SimpleNamespace(find=dict[str, object]().get)),
            RateLimit(0.0),
            measure=EvictionPolicy(),
            gpu_rules=GpuRules(),
        )

    async def carry_out(self, *actions: Action) -> Done:
        return await self._executor.carry_out(self._seen, actions)


def replace(name: str) -> ReplacePod:
    return ReplacePod(name, f"uid-{name}", "Failed")


def release(name: str) -> ReleasePod:
    return ReleasePod(name, f"uid-{name}")


def condemn(name: str) -> CondemnPod:
    return CondemnPod(name, f"uid-{name}", "update")


GUEST = EvictPlacedPod("web", "guest", "u", "gpu-9", 8)


async def test_one_pod_that_may_not_be_written_holds_up_no_other() -> None:
    server = Server("bad")
    planned = replace("bad"), replace("ended"), release("well"), CreatePod("new", "node1"), GUEST
    done = await Turns(server, "well").carry_out(*planned)

    assert server.written == ["delete ended", "release well", "create new", "evict guest"]
    assert (done.actions, done.rejected) == (planned[1:], "bad is denied")


async def test_a_quota_holds_up_neither_releases_nor_evictions_nor_is_it_asked_for_each_pod() -> None:
    new = [f"new-{number}" for number in range(50)]
    server = Server(*new)
    made = (CreatePod(name, f"node{number}") for number, name in enumerate(new))
    done = await Turns(server, "well").carry_out(*made, GUEST, release("well"))

    assert server.written == ["release well", "evict guest"]
    assert done.rejected == "new-0 is denied"


async def test_evictions_that_a_budget_holds_up_for_long_starve_no_condemnation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executor, "A_TURN", 1)
    server = Server()
    await Turns(server, "next").carry_out(GUEST, condemn("next"))

    assert server.written == ["condemn next"]


async def test_pods_that_are_refused_are_tried_in_turn_after_those_that_are_not() -> None:
    bad = [f"bad-{number}" for number in range(20)]
    server = Server(*bad)
    turns, planned = Turns(server), [replace(name) for name in (*bad, "ended")]
    for _ in range(3):
        done = await turns.carry_out(*planned)
        assert done.rejected == "bad-0 is denied"  # Other words each turn would be an Event each turn.
    assert server.written == ["delete ended"]

    server.refused.remove("bad-19")
    for _ in range(2):
        await turns.carry_out(*planned[:-1])

    assert server.written == ["delete ended", "delete bad-19"]


async def test_nobody_is_condemned_while_the_release_of_another_is_refused() -> None:
    server = Server("drained")
    turns, planned = Turns(server, "drained", "next"), (condemn("next"), release("drained"))
    await turns.carry_out(*planned)
    assert server.written == []

    server.refused.clear()
    for _ in range(2):
        await turns.carry_out(*planned)

    assert server.written == ["release drained", "release drained", "condemn next"]
