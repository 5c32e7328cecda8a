"""One turn of the NodeSet loop: what others have of it, and what it tells of what is refused."""

from types import SimpleNamespace
from typing import cast

import anyio
import pytest
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from sunk_kube import wellknown as wk
from sunk_kube.errors import KubeRejectedError
from sunk_kube.nodesets import ControllerRevision, NodeSet, NodeSetStatus
from sunk_kube.objects import condition
from sunk_kube.pods import Pod
from sunk_kube.testing import T0, nodeset, pod
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.nodeset_controller.executor import Done, Executor
from sunk_nodeset_controller.nodeset_controller.observer import Observer
from sunk_nodeset_controller.nodeset_controller.reconciler import REFUSED_AGAIN_S, NodeSetLoop, TimeSlicer
from sunk_nodeset_controller.nodesets.model import Action, Fits, Observed, ReleasePod
from sunk_nodeset_controller.nodesets.template import template_hash

pytestmark = pytest.mark.anyio

GPU = nodeset()
MARKED = {wk.ANNOTATION_CONDEMNED: "update", wk.ANNOTATION_TEMPLATE_HASH: template_hash(GPU)}


class Cluster:
    """A NodeSet with a Pod that is condemned and is to stay, and what is done and told of it."""

    def __init__(
        self,
        done: Done,
        *,
        are_slices_refused: bool = False,
        invalid: str = "",
        refusal: str = "",
        has_pods: bool = True,
    ) -> None:
        self.carried_out: list[tuple[Action, ...]] = []
        self.told: list[NodeSetStatus] = []
        self._done = done
        self.held: list[tuple[str, ...]] = []
        self._fits, self._refusal, self._has_pods = Fits(invalid=invalid), refusal, has_pods
        self._are_slices_refused = are_slices_refused
        self.nodesets = {GPU.key: GPU}
        self.successor: NodeSet | None = None
        self.pods_of = self.slices_of = SimpleNamespace(of=self._none, count=self._one)
        self.pods = SimpleNamespace(changes=lambda: None)

    async def reconcile(self) -> float | None:
        views, kube = cast("KubeViews", self), cast("FencedKube", self)
        return await NodeSetLoop(views, kube, cast("Observer", self), cast("Executor", self)).reconcile(
            GPU.key
        )

    def require_complete(self) -> None:
        """Be complete."""

    def observe(self, found: NodeSet, _: object) -> Observed:
        pods = (pod("gpu-1", namespace="slurm", annotations=MARKED),) if self._has_pods else ()
        return Observed(nodeset=found, nodes={}, fits=self._fits, pods=pods, refusal=self._refusal, now=T0)

    async def hold_nodeset(self, _: NodeSet, finalizers: tuple[str, ...]) -> None:
        self.held.append(finalizers)

    async def apply_budget(self, *_: object) -> None:
        """Have it guarded."""

    async def revisions(self, *_: object) -> list[ControllerRevision]:
        return []

    async def create_revision(self, *_: object) -> None:
        """Keep it."""

    async def write_slices(self, *_: object) -> None:
        if self._are_slices_refused:
            raise KubeRejectedError("no slices", status=403)

    async def carry_out(self, _: Observed, actions: tuple[Action, ...]) -> Done:
        self.carried_out.append(actions)
        if self.successor is not None:
            self.nodesets[GPU.key] = self.successor
        return self._done

    async def record_event(self, *_: object) -> None:
        """Have it said."""

    async def write_status(self, _: NodeSet, told: NodeSetStatus) -> None:
        self.told.append(told)

    def accepted(self) -> list[tuple[str, str]]:
        found = (condition(told.conditions, "Accepted") for told in self.told)
        return [(one.status, one.message) for one in found if one is not None]

    def _none(self, _: str) -> list[Pod]:
        return []

    def _one(self, _: str) -> int:
        return 1


async def test_what_is_refused_of_some_pods_is_told_and_tried_again_later() -> None:
    cluster = Cluster(Done(rejected="gpu-2 is denied"))

    assert await cluster.reconcile() == REFUSED_AGAIN_S
    assert cluster.accepted() == [("False", "gpu-2 is denied")]


async def test_who_is_to_stay_is_released_though_what_comes_before_is_refused() -> None:
    cluster = Cluster(Done(), are_slices_refused=True)

    assert await cluster.reconcile() == REFUSED_AGAIN_S
    assert cluster.carried_out == [(ReleasePod("gpu-1", "uid-gpu-1"),)]
    assert cluster.accepted() == [("False", "no slices")]


async def test_a_nodeset_that_is_made_anew_meanwhile_is_not_told_what_the_former_one_came_to() -> None:
    cluster = Cluster(Done(rejected="gpu-2 is denied"))
    cluster.successor = replace(GPU, metadata=replace(GPU.metadata, uid="another"))
    await cluster.reconcile()

    assert cluster.carried_out
    assert cluster.told == []


@pytest.mark.parametrize(
    ("cluster", "held"),
    [
        pytest.param(Cluster(Done(), invalid="no Pod"), True, id="its template is no Pod's"),
        pytest.param(Cluster(Done(), refusal="no such cluster"), True, id="it is refused"),
        pytest.param(Cluster(Done(), refusal="no such cluster", has_pods=False), False, id="without Pods"),
    ],
)
async def test_a_nodeset_that_is_not_carried_out_does_not_go_before_its_pods(
    cluster: Cluster, *, held: bool
) -> None:
    await cluster.reconcile()

    assert cluster.held == ([(wk.FINALIZER_NODESET,)] if held else [])


async def test_everybody_else_has_a_turn_between_two_strides() -> None:
    turns: list[str] = []

    async def other() -> None:
        while True:
            turns.append("other")
            await checkpoint()

    def stride() -> int:
        turns.append("stride")
        return sum(range(100_000))

    time_slicer, found = TimeSlicer(), list[int]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        found += [await time_slicer.take(stride) for _ in range(2)]
        tasks.cancel_scope.cancel()

    first = turns.index("stride")
    assert "other" in turns[first : turns.index("stride", first + 1)]
    assert turns[-1] == "other"
    assert found == [sum(range(100_000))] * 2
    assert time_slicer.spent_s > 0
