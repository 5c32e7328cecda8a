"""Which Pods a look at a Node finds in the way, by what the bus has of them."""

from types import SimpleNamespace
from typing import Final, cast

import pytest

from sunk_kube import wellknown as wk
from sunk_kube.pods import Pod, Toleration
from sunk_kube.testing import T0, pod
from sunk_nodeset_controller.adapters.daemonset_view import Daemons, DaemonSetView
from sunk_nodeset_controller.lock_controller.evictor import Evictor, Turn
from sunk_nodeset_controller.lock_controller.job_confirmer import Confirm
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.requests import LockRequests
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.locks.eviction import PodEviction
from sunk_nodeset_controller.locks.model import OPEN, Blockers, LockTaint, Rules, Seen
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy

pytestmark = pytest.mark.anyio

TOLERATES: Final = (Toleration(key=LockTaint().key, operator="Exists"),)
CLAIM: Final = {wk.ANNOTATION_JOB: '{"job": 7}'}
POLICIES: Final = [
    pytest.param(EvictionPolicy(LockTaint(effect=effect)), id=effect)
    for effect in ("NoExecute", "NoSchedule")
]


class Nodes:
    """A Node with Pods, as the bus knows them, and the evictions that were asked for."""

    def __init__(self, measure: EvictionPolicy, *pods: Pod, placed: dict[str, int | None]) -> None:
        self.measure = measure
        self.pods = list(pods)
        self.placed = placed
        self.evicted: list[str] = []

    async def pods_on(self, _: str) -> list[Pod]:
        return self.pods

    def successor(self, _node: str, _kube_node: str) -> str:
        return ""

    def job_by_uid(self, _: object) -> dict[str, int | None]:
        return self.placed

    async def judge(self, _: object) -> Daemons:
        return Daemons()

    async def report(self, _: object) -> set[str]:
        return set()

    async def carry_out(self, deed: PodEviction) -> str:
        self.evicted.append(deed.pod.key)
        return ""

    async def look(self) -> Blockers:
        evictor = Evictor(
            cast("LockSnapshotter", self),
            cast("NodeLockStore", self),
            Rules(),
            confirm=cast("Confirm", SimpleNamespace()),
            daemonsets=cast("DaemonSetView", self),
        )
        return await evictor.look(Turn("n1", "k1", LockRequests(), ()), Seen(lock=OPEN, now=T0))


@pytest.mark.parametrize("measure", POLICIES)
@pytest.mark.parametrize(
    "placed", [pytest.param({"u1": 7}, id="job over"), pytest.param({}, id="placements lost")]
)
async def test_a_placed_pod_is_in_the_way_and_not_evicted_also_if_the_bus_has_lost_its_placement(
    measure: EvictionPolicy, placed: dict[str, int | None]
) -> None:
    found = pod("p", namespace="team", uid="u1", annotations=CLAIM, tolerations=TOLERATES, node="k1")
    nodes = Nodes(measure, found, placed=placed)

    assert ((await nodes.look()).strict, nodes.evicted) == (("team/p",), [])


async def test_a_claim_that_a_tenant_writes_lets_no_pod_stay() -> None:
    made_up = pod("p", namespace="team", uid="u1", annotations=CLAIM, node="k1")
    nodes = Nodes(EvictionPolicy(LockTaint(effect="NoSchedule")), made_up, placed={})

    assert ((await nodes.look()).strict, nodes.evicted) == (("team/p",), ["team/p"])


async def test_a_pod_that_tolerates_the_lock_without_a_claim_is_not_in_the_way() -> None:
    nodes = Nodes(EvictionPolicy(), pod("p", tolerations=TOLERATES, node="k1"), placed={})

    assert (await nodes.look()).strict == ()
