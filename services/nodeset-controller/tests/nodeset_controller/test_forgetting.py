"""What is remembered of things that are gone is forgotten: nothing grows with all that ever was."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from sunk_kube import wellknown as wk
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeRejectedError
from sunk_kube.nodesets import ControllerRevision, NodeSet
from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_kube.testing import T0, node, nodeset, pod
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.requests import LockRequests
from sunk_nodeset_controller.locks.eviction import EvictionAttempt
from sunk_nodeset_controller.locks.model import Blockers, LockTaint
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_nodeset_controller.nodeset_controller import reconciler
from sunk_nodeset_controller.nodeset_controller.adoption import Adoption
from sunk_nodeset_controller.nodeset_controller.executor import Executor
from sunk_nodeset_controller.nodeset_controller.observer import Observer
from sunk_nodeset_controller.nodeset_controller.reconciler import NodeSetLoop
from sunk_nodeset_controller.nodesets.model import Fits, Observed
from sunk_runtime.leases import Leadership

pytestmark = pytest.mark.anyio

GPU = nodeset()


class Listed:
    """What a view has under any key."""

    def __init__(self, *found: Pod) -> None:
        self._found = list(found)

    def of(self, _: str) -> list[Pod]:
        return self._found

    def count(self, _: str) -> int:
        return len(self._found)


class Refusing:
    """An API server that lets nobody take anything over."""

    def __init__(self) -> None:
        self.asked = 0

    async def adopt(self, *_: object) -> None:
        self.asked += 1
        raise KubeRejectedError("not yours", status=403)


async def test_an_orphan_that_is_refused_is_asked_for_once_until_its_nodeset_is_gone() -> None:
    orphan = pod("gpu-1", namespace="slurm", labels={wk.LABEL_NODESET: "gpu", wk.LABEL_CLUSTER: "lab"})
    views = SimpleNamespace(pods_of=Listed(orphan), slices_of=Listed())
    kube = Refusing()
    adoption = Adoption(cast("KubeViews", views), cast("FencedKube", kube))
    counts: list[int] = []
    for _ in range(2):
        await adoption.adopt(GPU)
        counts.append(kube.asked)
    adoption.forget(GPU.key)
    await adoption.adopt(GPU)

    assert (counts, kube.asked) == ([1, 1], 2)


def test_nothing_is_left_on_the_desk_of_a_node_that_is_gone() -> None:
    lock_requests = LockRequests()
    lock_requests.attempts = {"uid-web": EvictionAttempt(since=T0, tried=T0)}
    lock_requests.waiting_since = {1: T0}
    lock_requests.idle_since = T0
    lock_requests.looked(Blockers(), T0)
    with lock_requests.carrying_out():
        lock_requests.clear()

    assert lock_requests.is_empty


class NodeSets(dict[str, NodeSet]):
    """A Kubernetes cluster without Nodes, with NodeSets, and what is applied for them."""

    def __init__(self) -> None:
        super().__init__()
        self.budgets = 0
        self.histories = 0
        self.forgotten: list[str] = []
        self.nodesets = self
        self.pods_of = self.slices_of = Listed()

    def require_complete(self) -> None:
        """Be complete."""

    def observe(self, found: NodeSet, _: object) -> Observed:
        return Observed(nodeset=found, nodes={}, fits=Fits(), pods=(), now=T0)

    def forget(self, key: str) -> None:
        self.forgotten.append(key)

    async def apply_budget(self, _: object) -> None:
        self.budgets += 1

    async def revisions(self, _: object) -> list[ControllerRevision]:
        self.histories += 1
        return []

    async def create_revision(self, _: object) -> None:
        """Keep it."""

    async def write_slices(self, *_: object) -> None:
        """Have none."""

    async def record_event(self, *_: object) -> None:
        """Have it said."""

    async def write_status(self, *_: object) -> None:
        """Have it written."""


async def test_a_nodeset_that_is_gone_and_comes_back_gets_its_disruption_budget_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "SHARE", 1.0)  # It does not rest between two turns.
    cluster = NodeSets()
    loop = NodeSetLoop(
        cast("KubeViews", cluster),
        cast("FencedKube", cluster),
        cast("Observer", cluster),
        cast("Executor", cluster),
    )
    counts: list[int] = []
    for _ in range(2):
        cluster[GPU.key] = GPU
        for _ in range(2):
            await loop.reconcile(GPU.key)
        counts.append(cluster.budgets)
        del cluster[GPU.key]
        await loop.reconcile(GPU.key)

    assert counts == [1, 2]
    assert cluster.forgotten == [GPU.key] * 4  # By who looks and who acts, twice.
    assert loop._guarded == {}  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def test_of_a_nodeset_that_is_made_anew_before_it_was_seen_to_be_gone_nothing_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its history is looked at, so what the former one has left is adopted, and its budget is its own."""
    monkeypatch.setattr(reconciler, "SHARE", 1.0)
    cluster = NodeSets()
    loop = NodeSetLoop(
        cast("KubeViews", cluster),
        cast("FencedKube", cluster),
        cast("Observer", cluster),
        cast("Executor", cluster),
    )
    looked: list[tuple[int, int]] = []
    for uid in ("former", "former", "present", "present"):
        cluster[GPU.key] = replace(GPU, metadata=replace(GPU.metadata, uid=uid))
        await loop.reconcile(GPU.key)
        looked.append((cluster.histories, cluster.budgets))

    assert looked == [(1, 1), (1, 1), (2, 2), (2, 2)]


class NoNodes:
    """An API server without any Node."""

    async def list_all(self, *_: object) -> list[Node]:
        return []

    async def find(self, *_: object) -> Node | None:
        return None


async def test_a_node_that_is_gone_and_comes_back_is_a_new_one() -> None:
    seen: dict[str, Any] = {"k1": node("k1")}
    client, leads = cast("KubeClient", NoNodes()), Leadership("test", 1, float("inf"))
    nodes = NodeLockStore(client, leads, EvictionPolicy(LockTaint()), viewed=seen, met={"k1"})
    before = await nodes.read("k1", may_be_prefetched=True)
    await nodes.prefetch(())
    after = await nodes.read("k1", may_be_prefetched=True)

    assert (before, after) == (None, seen["k1"])
