"""An object that another one replaces under its name, in a gap of the watch, is gone."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest

from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeGoneError
from sunk_kube.objects import KubeObject, ObjectMeta
from sunk_kube.reflector import Reflector
from sunk_kube.resources import Resource
from sunk_runtime.changes import Changes
from sunk_runtime.testing import WITHIN_S

pytestmark = pytest.mark.anyio

CONFIG_MAPS = Resource(kind="ConfigMap", plural="configmaps", struct=KubeObject)


class Forgetful:
    """An API server that no watch can go on with, and whose ConfigMap is another one in each list."""

    def __init__(self) -> None:
        self.lists = 0

    async def list_with_version(self, *_: object, **__: object) -> tuple[list[KubeObject], str]:
        self.lists += 1
        version = str(self.lists)
        meta = ObjectMeta(name="a", namespace="default", uid=f"uid-{version}", resource_version=version)
        return [KubeObject(metadata=meta)], version

    @asynccontextmanager
    async def watch(self, *_: object, **__: object) -> AsyncGenerator[None]:
        if self.lists > 1:
            await anyio.sleep_forever()
        raise KubeGoneError("410 gone")
        yield


async def test_a_former_object_is_gone_before_the_next_of_its_name_comes() -> None:
    view = Reflector(cast("KubeClient", Forgetful()), CONFIG_MAPS)
    by_uid = view.index(lambda found: (found.metadata.uid,))
    changes, seen = Changes(()), list[tuple[str, str]]()

    def note(before: KubeObject | None, after: KubeObject | None) -> tuple[str, ...]:
        seen.append(
            cast("tuple[str, str]", tuple(one.metadata.uid if one else "" for one in (before, after)))
        )
        return ("changed",) if len(seen) == 3 else ()

    view.follow(changes, note)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(view.run)
        with anyio.fail_after(WITHIN_S):
            await anext(changes)
        tasks.cancel_scope.cancel()

    assert seen == [("", "uid-1"), ("uid-1", ""), ("", "uid-2")]
    assert (by_uid.of("uid-1"), len(by_uid.of("uid-2"))) == ([], 1)
