"""The reflector, on a real API server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from sunk_kube import api
from sunk_kube.client import KubeClient, connect
from sunk_kube.objects import KubeObject
from sunk_kube.reflector import Reflector
from sunk_kube.resources import Resource
from sunk_runtime.changes import Changes
from sunk_runtime.testing import WITHIN_S, until

pytestmark = [pytest.mark.lab, pytest.mark.anyio]

CONFIG_MAPS = Resource(kind="ConfigMap", plural="configmaps", struct=KubeObject)


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"of": "test"}}}


@asynccontextmanager
async def reflecting(
    kube: KubeClient, namespace: str, *, page_size: int = 500, watch_s: tuple[float, float] = (60, 60)
) -> AsyncGenerator[Reflector[KubeObject]]:
    view = Reflector(
        kube, CONFIG_MAPS, namespace=namespace, labels="of=test", page_size=page_size, watch_s=watch_s
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(view.run)
        try:
            yield view
        finally:
            tasks.cancel_scope.cancel()


async def test_a_view_is_incomplete_until_it_has_read_everything(kube: KubeClient, namespace: str) -> None:
    for name in "abc":
        await kube.create(CONFIG_MAPS, config_map(name), namespace)
    unread = Reflector(kube, CONFIG_MAPS, namespace=namespace)

    async with reflecting(kube, namespace, page_size=2) as view:
        await view.complete()

        assert sorted(view.keys()) == [f"{namespace}/{name}" for name in "abc"]
    assert not unread.is_complete


async def test_what_comes_changes_and_goes_is_seen_in_order(kube: KubeClient, namespace: str) -> None:
    async with reflecting(kube, namespace) as view:
        await view.complete()
        changes = view.changes()
        seen: list[tuple[str, bool]] = []
        await kube.create(CONFIG_MAPS, config_map("a"), namespace)
        key = await anext(changes)
        seen.append((key, view.get(key) is not None))
        await kube.delete(CONFIG_MAPS, "a", namespace)
        key = await anext(changes)
        seen.append((key, view.get(key) is not None))

    assert seen == [(f"{namespace}/a", True), (f"{namespace}/a", False)]


async def test_a_change_may_concern_other_keys(kube: KubeClient, namespace: str) -> None:
    def owners(before: KubeObject | None, after: KubeObject | None) -> tuple[str, ...]:
        return ("gone",) if after is None else ("new",) if before is None else ("changed",)

    async with reflecting(kube, namespace) as view:
        await view.complete()
        changes = Changes(())
        view.follow(changes, owners)
        await kube.create(CONFIG_MAPS, config_map("a"), namespace)
        found = [await anext(changes)]
        await kube.patch(CONFIG_MAPS, "a", {"metadata": {"annotations": {"x": "y"}}}, namespace)
        found.append(await anext(changes))
        await kube.delete(CONFIG_MAPS, "a", namespace)
        found.append(await anext(changes))

    assert found == ["new", "changed", "gone"]


async def test_a_view_goes_on_when_its_watch_ends(kube: KubeClient, namespace: str) -> None:
    async with reflecting(kube, namespace, watch_s=(1.0, 1.0)) as view:
        await view.complete()
        changes = view.changes()
        seen: list[str] = []
        with anyio.fail_after(WITHIN_S):
            for name in "abc":
                await kube.create(CONFIG_MAPS, config_map(name), namespace)
                seen.append(await anext(changes))
                await anyio.sleep(0.7)  # So that a watch of one second ends in between.

    assert seen == [f"{namespace}/{name}" for name in "abc"]


async def test_watches_take_no_connection_from_calls(
    kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "CONNECTIONS", 2)
    async with connect("few", kubeconfig=kubeconfig) as few, anyio.create_task_group() as tasks:
        views = [Reflector(few, CONFIG_MAPS, namespace=namespace) for _ in range(4)]
        for view in views:
            tasks.start_soon(view.run)
        await few.create(CONFIG_MAPS, config_map("a"), namespace)
        for view in views:
            await until(lambda view=view: view.get(f"{namespace}/a") is not None)
        tasks.cancel_scope.cancel()
