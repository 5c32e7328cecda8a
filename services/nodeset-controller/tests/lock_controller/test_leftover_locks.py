"""Locks on Nodes that no NodeSet has."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sunk_kube.errors import KubeRejectedError, KubeUnavailableError
from sunk_kube.objects import Node
from sunk_kube.testing import node
from sunk_kube.wellknown import ANNOTATION_LOCK
from sunk_nodeset_controller.lock_controller.controller import (
    _take_off,  # pyright: ignore[reportPrivateUsage]
)
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.locks.model import LockTaint
from sunk_runtime.errors import ConflictError, SunkError


class Nodes:
    """Some Nodes of which one refuses to be written."""

    taint = LockTaint()
    views: Any = SimpleNamespace(cluster="lab")

    def __init__(self, refused: dict[str, SunkError]) -> None:
        self.refused = refused
        self.opened: list[str] = []

    def require_complete(self) -> None:
        """Be complete."""

    def nodes(self) -> set[str]:
        return set()

    def has_owner(self, _: str) -> bool:
        return False

    async def take_off(self, found: Node) -> None:
        if (error := self.refused.get(found.metadata.name)) is not None:
            raise error
        self.opened.append(found.metadata.name)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "error",
    [
        KubeRejectedError("a webhook denies it", status=403),
        KubeUnavailableError("a webhook does not answer"),
        ConflictError("a controller has just written it"),
    ],
    ids=["refused", "not answered", "changed"],
)
async def test_one_node_that_may_not_be_written_keeps_no_other_locked(error: SunkError) -> None:
    locked = [node(name, annotations={ANNOTATION_LOCK: "locked"}) for name in ("k0", "k1", "k2")]
    nodes = Nodes({"k1": error})
    found = {one.metadata.name for one in locked}

    suspects = await _take_off(cast("LockSnapshotter", nodes), cast("NodeLockStore", nodes), locked, found)

    assert (nodes.opened, suspects) == (["k0", "k2"], found)
