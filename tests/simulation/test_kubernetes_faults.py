"""What only the model of Kubernetes can do: its faults, each as a client sees it."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from sunk_kube.client import KubeClient, connect
from sunk_kube.errors import (
    KubeBusyError,
    KubeExistsError,
    KubeGoneError,
    KubeNotFoundError,
    KubeUnavailableError,
)
from sunk_kube.objects import ConfigMap
from sunk_kube.pods import Pod
from sunk_kube.reflector import Reflector
from sunk_kube.resources import CONFIG_MAPS, NODES, PODS
from sunk_runtime.errors import ConflictError
from sunk_runtime.testing import until
from sunk_simulation.kubernetes.model import KUBECONFIG, ModelKubernetes
from sunk_simulation.simulation import Simulation

Story = Callable[[ModelKubernetes, KubeClient], Awaitable[None]]


def run(story: Story) -> None:
    """Run *story* with a client of a cluster of which it has the inside."""
    with Simulation() as sim:
        kubernetes = ModelKubernetes(sim.loop, sim.trace, sim.random("kubernetes"))
        kubernetes.start()
        kubernetes.add_node("node1")

        async def whole() -> None:
            async with connect("test", kubeconfig=KUBECONFIG, timeout_s=2.0) as client:
                await story(kubernetes, client)

        sim.run(whole())


def config_map(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def pod(name: str, **more: object) -> dict[str, Any]:
    container = {"name": "main", "image": "none"}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "nodeName": "node1", **more}}


async def is_ready(client: KubeClient, name: str) -> bool:
    found = await client.find(PODS, name, "default")
    return found is not None and found.is_ready


async def made(client: KubeClient, body: dict[str, Any]) -> Pod:
    """Make a Pod and return it when it is ready."""
    await anyio.sleep(1)  # Its namespace has a ServiceAccount then.
    await client.create(PODS, body, "default")
    await until(lambda: is_ready(client, body["metadata"]["name"]), within_s=10)
    return await client.get(PODS, body["metadata"]["name"], "default")


@asynccontextmanager
async def viewed(client: KubeClient) -> AsyncGenerator[Reflector[ConfigMap]]:
    view = Reflector(client, CONFIG_MAPS, namespace="default")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(view.run)
        await view.complete()
        yield view
        tasks.cancel_scope.cancel()


def test_an_answer_that_is_lost_took_effect() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        kubernetes.lose_answers()
        with pytest.raises(KubeUnavailableError):
            await client.create(CONFIG_MAPS, config_map("a"), "default")
        assert (await client.get(CONFIG_MAPS, "a", "default")).metadata.name == "a"

    run(story)


def test_a_write_that_is_doubled_is_answered_for_the_second_time() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        kubernetes.double()
        with pytest.raises(KubeExistsError):
            await client.create(CONFIG_MAPS, config_map("a"), "default")

    run(story)


def test_a_request_may_take_effect_when_nobody_waits_for_it_any_more() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        kubernetes.delay(1, seconds=20)
        with pytest.raises(KubeUnavailableError):
            await client.create(CONFIG_MAPS, config_map("a"), "default")
        assert await client.find(CONFIG_MAPS, "a", "default") is None
        await until(lambda: kubernetes.store.get("configmaps", "default/a") is not None, within_s=30)

    run(story)


def test_requests_are_refused_as_often_as_it_is_told() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        for reason, error in (
            ("TooManyRequests", KubeBusyError),
            ("InternalError", KubeUnavailableError),
            ("Conflict", ConflictError),
            ("Expired", KubeGoneError),
        ):
            kubernetes.refuse(1, reason)
            with pytest.raises(error):
                await client.list_all(NODES)
        assert [node.metadata.name for node in await client.list_all(NODES)] == ["node1"]

    run(story)


def test_pages_of_a_moment_that_is_forgotten_are_gone_and_a_view_goes_on() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        for name in "abc":
            await client.create(CONFIG_MAPS, config_map(name), "default")
        async with viewed(client) as view:
            kubernetes.compact()
            kubernetes.end_watches()
            await client.create(CONFIG_MAPS, config_map("d"), "default")
            await until(lambda: len(view) == 4, within_s=30)
            kubernetes.kill()
            kubernetes.start()
            await client.delete(CONFIG_MAPS, "a", "default")
            await until(lambda: len(view) == 3, within_s=30)

    run(story)


def test_watches_that_stall_tell_what_happened_when_they_go_on() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        async with viewed(client) as view:
            kubernetes.stall_watches(20)
            await client.create(CONFIG_MAPS, config_map("a"), "default")
            await anyio.sleep(10)
            assert len(view) == 0
            await until(lambda: len(view) == 1, within_s=30)

    run(story)


def test_a_replica_that_is_behind_shows_the_past_in_lists_and_the_present_in_single_reads() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        kubernetes.lag(10)
        await client.create(CONFIG_MAPS, config_map("a"), "default")
        assert await client.list_all(CONFIG_MAPS, "default") == []
        assert await client.find(CONFIG_MAPS, "a", "default") is not None
        await anyio.sleep(11)
        assert len(await client.list_all(CONFIG_MAPS, "default")) == 1

    run(story)


def test_a_store_that_went_back_knows_nothing_of_what_came_after() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        older = kubernetes.store.copy()
        await client.create(CONFIG_MAPS, config_map("a"), "default")
        kubernetes.go_back(older)
        kubernetes.start()
        assert await client.find(CONFIG_MAPS, "a", "default") is None
        with pytest.raises(KubeNotFoundError):
            await client.get(PODS, "none", "default")

    run(story)


def test_a_node_without_power_is_lost_and_its_pods_are_deleted_and_stay() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        await made(client, pod("web"))
        kubernetes.lose_power("node1")

        async def is_leaving() -> bool:
            return (await client.get(PODS, "web", "default")).is_terminating

        await until(is_leaving, within_s=400)
        await anyio.sleep(60)
        assert not kubernetes.kubelets["node1"].runs
        assert await is_leaving()
        kubernetes.start_kubelet("node1")
        await until(lambda: kubernetes.store.get("pods", "default/web") is None, within_s=60)

    run(story)


def test_containers_go_on_when_their_kubelet_does_not_and_it_finds_them_again() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        before = await made(client, pod("web"))
        kubernetes.kubelet_process("node1").kill()
        await client.delete(PODS, "web", "default")
        await anyio.sleep(30)
        assert list(kubernetes.kubelets["node1"].runs) == ["default/web"]
        assert (await client.get(PODS, "web", "default")).metadata.uid == before.metadata.uid
        kubernetes.start_kubelet("node1")
        await until(lambda: not kubernetes.kubelets["node1"].runs, within_s=10)

    run(story)


def test_a_container_that_crashes_is_started_again() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        await made(client, pod("web"))
        kubernetes.kubelets["node1"].crash("default/web")

        async def is_back() -> bool:
            found = await client.get(PODS, "web", "default")
            return found.is_ready and [one.restart_count for one in found.status.container_statuses] == [1]

        await until(is_back, within_s=60)

    run(story)


def test_pods_of_a_node_that_is_removed_go_after_a_while() -> None:
    async def story(kubernetes: ModelKubernetes, client: KubeClient) -> None:
        await made(client, pod("web"))
        kubernetes.lose_power("node1")
        await client.delete(NODES, "node1")
        await until(lambda: kubernetes.store.get("pods", "default/web") is None, within_s=120)

    run(story)
