"""A NodeSet takes over what nobody has, and nothing while it is being deleted."""

from typing import Any, cast

import pytest
from msgspec.structs import replace

from sunk_kube.client import KubeClient
from sunk_kube.nodesets import NodeSet
from sunk_kube.resources import PODS
from sunk_kube.testing import T0, nodeset, pod
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_runtime.errors import ConflictError
from sunk_runtime.leases import Leadership

pytestmark = pytest.mark.anyio

GPU = nodeset()


class Server:
    """An API server with one NodeSet, or none, that takes every patch."""

    def __init__(self, found: NodeSet | None) -> None:
        self.patched: list[str] = []
        self._found = found

    async def find(self, *_: object) -> NodeSet | None:
        return self._found

    async def patch(self, _: object, name: str, *_body: object, **_options: Any) -> None:  # noqa: ANN401 - as the client's
        self.patched.append(name)


def fenced(server: Server) -> FencedKube:
    return FencedKube(cast("KubeClient", server), Leadership("test", 1, float("inf")))


async def test_a_nodeset_takes_over_what_an_earlier_one_left_behind() -> None:
    server = Server(GPU)
    await fenced(server).adopt(PODS, pod("gpu-1", namespace="slurm"), GPU)

    assert server.patched == ["gpu-1"]


@pytest.mark.parametrize(
    "found",
    [
        None,
        replace(GPU, metadata=replace(GPU.metadata, uid="uid-later")),
        replace(GPU, metadata=replace(GPU.metadata, deletion_timestamp=T0)),
    ],
    ids=["gone", "a later one", "being deleted"],
)
async def test_what_a_deletion_has_just_orphaned_is_not_taken_back_by_a_view_that_is_behind(
    found: NodeSet | None,
) -> None:
    server = Server(found)
    with pytest.raises(ConflictError):
        await fenced(server).adopt(PODS, pod("gpu-1", namespace="slurm"), GPU)

    assert server.patched == []
