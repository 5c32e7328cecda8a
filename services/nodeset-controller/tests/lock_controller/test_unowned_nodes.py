"""Nodes that no Slurm node has: a stray taint goes at once, a lock stays where another cluster's node is."""

from types import SimpleNamespace
from typing import Final, cast

import anyio
import pytest
from msgspec.structs import replace

from sunk_events.locks import LockState
from sunk_events.nodesets import KubePodState
from sunk_kube.objects import Node, Taint
from sunk_kube.testing import T0, node
from sunk_kube.wellknown import ANNOTATION_LOCK, LABEL_CLUSTER
from sunk_nodeset_controller.adapters.cluster_views import ClusterViews
from sunk_nodeset_controller.lock_controller import stray_taints
from sunk_nodeset_controller.lock_controller.controller import _take_off as take_off  # pyright: ignore[reportPrivateUsage]
from sunk_nodeset_controller.lock_controller.controller import take_off_stray
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.lock_controller.stray_taints import enqueue_stray_taints
from sunk_nodeset_controller.locks.annotations import read
from sunk_nodeset_controller.locks.model import LockTaint
from sunk_runtime.changes import Changes
from sunk_runtime.errors import ConflictError, SunkError, TransientError
from sunk_runtime.keys import KeyLoop
from sunk_runtime.testing import until
from sunk_runtime.views import StateView

pytestmark = pytest.mark.anyio

TAINT: Final = LockTaint()
TAINTS: Final = (Taint(key=TAINT.key, value=TAINT.value, effect=TAINT.effect),)
FREE: Final = node("node1")
STRAY: Final = node("node1", taints=TAINTS)
LOCKED: Final = node("node1", taints=TAINTS, annotations={ANNOTATION_LOCK: "locked"})


class View(dict[str, object]):
    """What the bus has of one kind in one cluster."""

    def __init__(self, cluster: str, **known: object) -> None:
        super().__init__(known)
        self.cluster = cluster
        self.is_settled = True

    def changes(self) -> Changes:
        return Changes(self)

    def require_settled(self) -> None:
        if not self.is_settled:
            raise TransientError("not read yet")

    require_complete = require_settled

    def stored(self, _: str) -> None:
        """Be of no time."""


def member(of: str) -> KubePodState:
    return KubePodState(
        changed=T0, pod=of, namespace="slurm", nodeset="gpu", kube_node="node1", phase="running"
    )


def lock(of: str) -> LockState:
    return LockState(changed=T0, node=of, kube_node="node1", lock="locked")


class Cluster:
    """One Slurm cluster next to another, and what it has written on a Node."""

    def __init__(
        self,
        cluster: str,
        *,
        other: str,
        found: Node,
        others: View | None = None,
        former: tuple[str, ...] = (),
    ) -> None:
        self.others = View(other) if others is None else others
        empty = View(cluster)
        self.views = SimpleNamespace(
            cluster=cluster,
            kube_pods=View(cluster),
            locks=View(cluster, **{one: lock(one) for one in former}),
            slurm_nodes=empty,
            slurm_jobs=empty,
            placements=empty,
        )
        self.snapshotter = LockSnapshotter(
            cast("ClusterViews", self.views), [cast("StateView[KubePodState]", self.others)]
        )
        self.taint = TAINT
        self.found = found
        self.conflicts = 0
        self.taken_off: list[str] = []
        self.enqueued: list[str] = []

    async def read(self, _: str) -> Node:
        return self.found

    async def take_off(self, before: Node) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise ConflictError("written in between")
        self.taken_off.append(before.metadata.name)
        self.found = replace(FREE, metadata=replace(before.metadata, annotations={}))

    def viewed(self, _: str) -> Node:
        return self.found

    async def settle(self) -> None:
        store = cast("NodeLockStore", self)
        await take_off_stray(self.snapshotter, store, self.enqueued.append, "node1")

    async def round(self) -> None:
        """Look at all Nodes twice: none goes at first sight."""
        store, suspects = cast("NodeLockStore", self), set[str]()
        for _ in range(2):
            suspects = await take_off(self.snapshotter, store, [self.found], suspects)


async def test_a_lock_of_another_cluster_stays_though_its_node_has_lost_the_label() -> None:
    theirs = Cluster("a", other="b", found=LOCKED, others=View("b", gpu=member("gpu")))
    orphaned = Cluster("a", other="b", found=LOCKED)
    await theirs.round()
    await orphaned.round()

    assert (theirs.taken_off, orphaned.taken_off) == ([], ["node1"])


@pytest.mark.parametrize(
    ("cluster", "other", "label", "goes"),
    [
        pytest.param("a", "b", "", True, id="the first cluster"),
        pytest.param("b", "a", "", False, id="the second cluster"),
        pytest.param("a", "b", "b", False, id="of the other cluster"),
        pytest.param("b", "a", "b", True, id="of the second cluster"),
        pytest.param("a", "b", "gone", True, id="of a cluster that is no more"),
    ],
)
async def test_a_stray_taint_on_a_node_of_no_nodeset_is_taken_off_by_one_cluster_at_once(
    cluster: str, other: str, label: str, *, goes: bool
) -> None:
    found = node("node1", taints=TAINTS, labels={LABEL_CLUSTER: label} if label else {})
    lab = Cluster(cluster, other=other, found=found)

    await lab.settle()

    assert lab.taken_off == (["node1"] if goes else [])


async def test_what_may_be_a_lock_is_no_stray_taint() -> None:
    owned = Cluster("a", other="b", found=STRAY, others=View("b", gpu=member("gpu")))
    former = Cluster("a", other="b", found=STRAY, former=("gpu-1",))
    locked = Cluster("a", other="b", found=LOCKED)

    for one in (owned, former, locked):
        await one.settle()

    assert [one.taken_off for one in (owned, former, locked)] == [[], [], []]
    assert former.enqueued == ["gpu-1"]


async def test_nothing_is_taken_off_before_the_views_are_complete_and_then_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stray_taints, "SETTLE_S", 0.01)
    lab = Cluster("a", other="b", found=STRAY)
    lab.conflicts, lab.others.is_settled = 1, False
    errors: list[type[SunkError]] = []

    async def look(_: str) -> None:
        try:
            await lab.settle()
        except SunkError as error:
            lab.others.is_settled = True
            errors.append(type(error))
            raise

    strays = KeyLoop("test-stray-taints", look)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(strays.run)
        tasks.start_soon(
            lambda: enqueue_stray_taints(
                Changes(["node1"]),
                lab.snapshotter,
                {"node1": STRAY},
                TAINT,
                owned=lab.enqueued.append,
                unowned=strays.enqueue,
            )
        )
        await until(lambda: bool(lab.taken_off))
        tasks.cancel_scope.cancel()

    assert errors == [TransientError, ConflictError]
    assert not read(lab.found, TAINT).is_tainted
