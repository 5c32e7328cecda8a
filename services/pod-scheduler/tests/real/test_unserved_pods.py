"""Pods that no pod-scheduler serves, on a real API server: each is told once, by who leads."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeRejectedError
from sunk_kube.resources import PODS
from sunk_pod_scheduler.controller.unserved_pods import UnservedPods, views
from sunk_pod_scheduler.placement import unserved
from sunk_pod_scheduler.podspec.scopes import ALIAS, PodScope
from sunk_runtime.errors import ConflictError
from sunk_runtime.keys import KeyLoop
from sunk_runtime.testing import WITHIN_S, until

pytestmark = [pytest.mark.lab, pytest.mark.anyio]


async def create(kube: KubeClient, namespace: str, name: str, scheduler: str) -> None:
    spec = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "none"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    with anyio.fail_after(WITHIN_S):
        while True:
            try:
                await kube.create(PODS, body, namespace)
            except KubeRejectedError:  # A new namespace has no default ServiceAccount for a moment.
                await anyio.sleep(0.1)
            else:
                return


def check() -> None:
    """Return: we lead."""


def not_leading() -> None:
    raise ConflictError("another leads")


@asynccontextmanager
async def telling(
    kube: KubeClient, namespace: str, *, resync_s: float = 0.2, may_lead: bool = True
) -> AsyncGenerator[list[int]]:
    """Run the scheduler that has the common name; yield how often Leases were read."""
    ours = PodScope(cluster="a", names=(f"{namespace}-a", ALIAS), namespaces=(namespace,))
    other = PodScope(cluster="b", names=(f"{namespace}-b",), namespaces=("elsewhere",))
    reads = [0]

    async def scopes() -> Sequence[PodScope]:
        reads[0] += 1
        return [ours, other]

    watched = views(kube, [namespace], ours.names)
    found = UnservedPods(kube, watched, scopes, check if may_lead else not_leading)
    loop = KeyLoop("unserved", found.look)
    async with anyio.create_task_group() as tasks:
        for view in watched:
            tasks.start_soon(view.run)
        tasks.start_soon(partial(loop.run, found.changes(), keys=found.keys, resync_s=resync_s))
        yield reads
        tasks.cancel_scope.cancel()


async def told(kube: KubeClient, namespace: str) -> list[tuple[str, str]]:
    """Return the names of Pods with the reasons of the Events about them."""
    events = json.loads(await kube.get_raw(f"/api/v1/namespaces/{namespace}/events"))["items"]
    ours = [event for event in events if event["reason"].startswith("Scheduler")]
    return sorted((event["involvedObject"]["name"], event["reason"]) for event in ours)


async def test_a_pod_that_no_scheduler_serves_is_told_once_and_not_at_each_resync_nor_by_each_leader(
    kube: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unserved, "OUT_OF_SCOPE_S", 0.5)
    monkeypatch.setattr(unserved, "UNKNOWN_S", 1.0)
    expected = [("elsewheres", "SchedulerOutOfScope"), ("mistyped", "SchedulerUnknown")]

    async def are_told() -> bool:
        return await told(kube, namespace) == expected

    await create(kube, namespace, "elsewheres", f"{namespace}-b")
    await create(kube, namespace, "mistyped", "sunk-schedular")
    await create(kube, namespace, "ours", ALIAS)
    async with telling(kube, namespace, may_lead=False):
        await anyio.sleep(2)  # Longer than both wait.
        assert await told(kube, namespace) == []
    async with telling(kube, namespace) as reads:
        await until(are_told)
        await anyio.sleep(1)  # Some resyncs.
        assert reads == [1]
    async with telling(kube, namespace):
        await anyio.sleep(2)

    assert await told(kube, namespace) == expected
