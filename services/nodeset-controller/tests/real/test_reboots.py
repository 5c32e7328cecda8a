"""Reboots on a real API server; the tests play the gateway and the platform that takes the condition away."""

from collections.abc import AsyncGenerator, Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
import pytest

from sunk_events.base import Reply
from sunk_events.nodesets import KubePodState
from sunk_events.requests import Noted, RebootNode, Refused
from sunk_kube import wellknown as wk
from sunk_kube.client import KubeClient, connect
from sunk_kube.objects import Condition, Node, condition
from sunk_kube.reflector import Reflector
from sunk_kube.resources import NODES
from sunk_lab.kube.lab import KubeLab
from sunk_lab.nats import NatsServer
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.node_controller.reboots import Reboots, RebootSettings
from sunk_runtime.errors import ConflictError
from sunk_runtime.jetstream import BusSettings
from sunk_runtime.jetstream import connect as connect_bus
from sunk_runtime.leases import Leadership
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

CLUSTER: Final = "lab"
NAME: Final = "gpu-000-011"
ALLOWED: Final = RebootSettings(is_permitted=True, condition="test.example/Phase", reason="off-and-on")


class Stage:
    """A Node, and who reboots it."""

    def __init__(
        self, kube: KubeClient, nodes: Reflector[Node], pods: StateView[KubePodState], name: str
    ) -> None:
        self.kube = kube
        self.nodes = nodes
        self.name = name
        self._pods = pods

    async def ask(self, settings: RebootSettings = ALLOWED, node: str = NAME) -> Reply:
        fenced = FencedKube(self.kube, Leadership("test", 1, float("inf")))
        reboots = Reboots(self.nodes, self._pods, fenced, settings)
        while True:
            try:
                return await reboots.answer(RebootNode(node=node, who="slurm/gpu-000-011"))
            except ConflictError:  # Its kubelet has just written it. A gateway asks again, too.
                await anyio.sleep(0.1)

    async def stands(self) -> Condition | None:
        """Return the condition, as the API server has it and the view too."""

        async def is_seen() -> bool:
            version = (await self.kube.get(NODES, self.name)).metadata.resource_version
            seen = self.nodes.get(self.name)
            return seen is not None and seen.metadata.resource_version == version

        await until(is_seen)
        found = self.nodes.get(self.name)
        return condition(found.status.conditions, ALLOWED.condition) if found is not None else None


@pytest.fixture
def nats(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def stage(kube_lab: KubeLab, nats: NatsServer) -> AsyncGenerator[Stage]:
    kubeconfig = Path(kube_lab.kubeconfig)
    settings = BusSettings(url=nats.url)
    async with connect("test", kubeconfig=kubeconfig) as kube, connect_bus(settings, "test") as bus:
        await bus.provision(CLUSTER, settings)
        name = min(node.metadata.name for node in await kube.list_all(NODES))
        labels = {wk.LABEL_CLUSTER: CLUSTER, wk.LABEL_POD: NAME}
        await kube.patch(NODES, name, {"metadata": {"labels": labels}})
        nodes = Reflector(kube, NODES)
        pods = StateView(bus, CLUSTER, KubePodState)
        async with anyio.create_task_group() as tasks, following(pods):
            tasks.start_soon(nodes.run)
            await nodes.complete()
            await pods.complete()
            pod = KubePodState(
                changed=datetime.now(UTC),
                pod=NAME,
                namespace="slurm",
                nodeset="gpu",
                kube_node=name,
                phase="running",
            )
            await StateWriter(bus, pods, fence=None).record(NAME, pod, revision=0)
            yield Stage(kube, nodes, pods, name)
            tasks.cancel_scope.cancel()
        gone = {"status": {"conditions": [{"type": ALLOWED.condition, "$patch": "delete"}]}}
        await kube.patch_status(NODES, name, gone, kind="strategic")
        await kube.patch(NODES, name, {"metadata": {"labels": dict.fromkeys(labels)}})


async def test_a_reboot_is_a_condition_on_the_node_that_names_who_asked_and_asked_again_is_the_same(
    stage: Stage,
) -> None:
    assert await stage.ask() == Noted()
    first = await stage.stands()
    assert await stage.ask() == Noted()

    assert first is not None
    assert (first.status, first.reason) == ("True", "off-and-on")
    assert first.message == "slurm/gpu-000-011 requested a reboot of gpu-000-011"
    assert await stage.stands() == first


async def test_without_node_permissions_nothing_is_written_and_the_answer_names_the_value(
    stage: Stage,
) -> None:
    reply = await stage.ask(RebootSettings())

    assert reply == Refused(
        code="forbidden", reason="Slurm cluster lab may not reboot Nodes: set syncer.nodePermissions.enabled"
    )
    assert await stage.stands() is None


async def test_a_node_of_no_nodeset_is_not_rebooted(stage: Stage) -> None:
    reply = await stage.ask(node="nobody")

    assert isinstance(reply, Refused)
    assert reply.code == "unknown_node"
