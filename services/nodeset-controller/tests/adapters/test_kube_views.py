"""Which keys a change of an object concerns, also where another one replaced it while no watch saw it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest
from msgspec.structs import replace

from sunk_kube import wellknown as wk
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeGoneError
from sunk_kube.nodesets import NodeSet
from sunk_kube.resources import Resource
from sunk_kube.testing import nodeset, pod
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_runtime.testing import WITHIN_S

pytestmark = pytest.mark.anyio

GPU = nodeset()
MEMBER = pod("gpu-1", namespace="slurm", labels={wk.LABEL_NODESET: "gpu", wk.LABEL_CLUSTER: "lab"})


def version(found: NodeSet, number: str, uid: str) -> NodeSet:
    return replace(found, metadata=replace(found.metadata, uid=uid, resource_version=number))


class Interrupted:
    """An API server whose watch of NodeSets ends once, with *after* in place of *before*."""

    def __init__(self, before: NodeSet, after: NodeSet) -> None:
        self.nodesets = [before, after]
        self.is_replaced = anyio.Event()

    async def list_with_version(
        self, resource: Resource[Any], *_: object, **__: object
    ) -> tuple[Sequence[object], str]:
        if resource.plural == "pods":
            return [MEMBER], "1"
        if resource.plural != "nodesets":
            return [], "1"
        return [self.nodesets.pop(0)], "1"

    @asynccontextmanager
    async def watch(self, resource: Resource[Any], *_: object, **__: object) -> AsyncGenerator[None]:
        if resource.plural != "nodesets" or not self.nodesets:
            await anyio.sleep_forever()
        await self.is_replaced.wait()
        raise KubeGoneError("410 gone")
        yield


async def test_the_pods_of_a_nodeset_that_replaced_another_are_looked_at() -> None:
    kube = Interrupted(version(GPU, "1", "former"), version(GPU, "2", "present"))
    views = KubeViews(cast("KubeClient", kube))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(views.run)
        with anyio.fail_after(WITHIN_S):
            await views.complete()
            changes = views.pod_changes()
            assert await anext(changes) == MEMBER.key  # Each is looked at once.
            kube.is_replaced.set()
            assert await anext(changes) == MEMBER.key
        tasks.cancel_scope.cancel()
