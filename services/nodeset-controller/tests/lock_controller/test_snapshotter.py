"""What locks are decided from: who had a Node by an older store of NATS, and when Slurm was observed."""

from collections.abc import AsyncGenerator, Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from msgspec.structs import replace

from sunk_events.nodes import SlurmNodeState, SlurmStatisticsState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_kube import wellknown as wk
from sunk_kube.pods import Pod
from sunk_kube.testing import node, nodeset, pod
from sunk_lab.nats import NatsServer
from sunk_nodeset_controller.adapters.cluster_views import ClusterViews
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.locks.model import OPEN, Seen
from sunk_nodeset_controller.pod_controller.publisher import PodStatePublisher
from sunk_runtime.clock import now
from sunk_runtime.errors import BusUnavailableError, ConflictError, TransientError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.leases import Leadership
from sunk_runtime.testing import until
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter

pytestmark = pytest.mark.anyio

T0: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
LEADERSHIP: Final = Leadership("test", 1, float("inf"))


@pytest.fixture
def server(tmp_path: Path) -> Generator[NatsServer]:
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def bus(server: NatsServer) -> AsyncGenerator[Bus]:
    settings = BusSettings(url=server.url)
    async with connect(settings, "test") as bus:
        await bus.provision("lab", settings)
        yield bus


class Objects(dict[str, Any]):
    """All objects of one kind, as a Reflector has them that read its list."""

    def require_complete(self) -> None:
        """Be complete."""


def _no(*_: str) -> bool:
    return False


class Kube:
    """NodeSet Pods, their Nodes, and who tells the bus of them."""

    def __init__(self, writer: StateWriter[KubePodState], slurm: StateView[SlurmNodeState]) -> None:
        self.pods, self.nodes = Objects(), Objects()
        views = SimpleNamespace(
            pods=self.pods,
            nodes=self.nodes,
            nodesets=Objects({"slurm/gpu": nodeset("gpu", namespace="slurm")}),
            require_complete=lambda: None,
            is_member=_no,
        )
        self.states = PodStatePublisher(
            cast("KubeViews", views),
            cast("FencedKube", SimpleNamespace(find_pod=self._find, find_node=self._find)),
            writer,
            slurm,
            LEADERSHIP,
            lock_key="lock",
        )

    async def _find(self, *_: str) -> None:
        return None

    async def has(self, **kube_node_by_pod: str) -> None:
        """Have these Pods and no others, and tell the bus."""
        names = {*kube_node_by_pod, *(key.removeprefix("slurm/") for key in self.pods)}
        self.pods.clear()
        self.pods.update({f"slurm/{name}": own(name, at) for name, at in kube_node_by_pod.items()})
        self.nodes.update({at: node(at) for at in kube_node_by_pod.values()})
        for name in sorted(names):
            await self.states.settle(name)


def own(name: str, kube_node: str) -> Pod:
    labels = {wk.LABEL_NODESET: "gpu", wk.LABEL_CLUSTER: "lab"}
    return pod(name, namespace="slurm", labels=labels, node=kube_node)


async def test_no_lock_is_decided_on_who_had_a_node_in_an_older_store_until_all_are_told_anew(
    bus: Bus, server: NatsServer
) -> None:
    views, reader = ClusterViews.of(bus, "lab"), StateView(bus, "lab", KubePodState)
    kube = Kube(StateWriter(bus, views.kube_pods, fence=LEADERSHIP), views.slurm_nodes)
    StateWriter(bus, views.locks, fence=LEADERSHIP)
    snapshotter = LockSnapshotter(views)
    async with following(*views.all, reader):
        for view in (*views.all, reader):
            await view.complete()
        await kube.has(a="K", kept="L")
        await kube.has(a="K", kept="M")
        server.keep_store()
        await until(lambda: bus.reconnects == 1 and views.is_complete)
        await kube.has(b="K", kept="L")
        await kube.has(b="K", kept="M")  # It is again what it was.
        await until(lambda: reader.revision("kept") == views.kube_pods.revision("kept"))
        before = snapshotter.owner("K")

        server.put_store_back()
        await until(lambda: bus.reconnects == 2 and views.is_complete)
        await until(lambda: snapshotter.owner("K") == "a")
        with pytest.raises(TransientError, match="lost its latest messages"):
            snapshotter.require_complete()
        for name in ("a", "b", "kept"):
            await kube.states.settle(name)

        snapshotter.require_complete()
        assert (before, snapshotter.owner("K")) == ("b", "b")
        await until(lambda: reader.is_complete)  # Also where nothing differs it is written.


async def test_slurm_in_which_nothing_moves_is_observed_by_its_lists_whatever_the_syncers_clock_says(
    bus: Bus,
) -> None:
    views = ClusterViews.of(bus, "lab")
    writer, snapshotter = StateWriter(bus, views.statistics, fence=LEADERSHIP), LockSnapshotter(views)

    def observed() -> datetime | None:
        return snapshotter.seen("a", OPEN, Seen(lock=OPEN, now=now())).observed

    async with following(*views.all):
        await views.statistics.complete()
        before, clock = observed(), now() - timedelta(hours=1)
        told = SlurmStatisticsState(changed=clock - timedelta(seconds=90))  # Statistics fail since then.
        lists = {"nodes_answered": clock, "jobs_answered": clock - timedelta(seconds=40)}
        await writer.record("scheduler", replace(told, **lists), revision=0)

        found, stored = observed(), views.statistics.stored("scheduler")

    assert stored is not None
    assert (before, found) == (None, stored - timedelta(seconds=40))


@pytest.mark.parametrize(
    ("gang", "job"),
    [
        pytest.param({"job": 5}, 5, id="its gang's"),
        pytest.param({"job": 5, "lost": T0}, None, id="slurmctld has lost it"),
        pytest.param({"job": None, "phase": "submitted", "lost": T0}, None, id="its gang has none by now"),
        pytest.param({"job": 9, "phase": "released", "lost": T0}, None, id="its gang has another by now"),
    ],
)
async def test_a_member_has_the_job_that_its_gang_has_though_it_was_told_of_another(
    bus: Bus, gang: dict[str, Any], job: int | None
) -> None:
    member = PlacementState(
        changed=T0, uid="member", namespace="team", pod="m", phase="bound", job=5, node="a", gang="gang-1"
    )
    views = ClusterViews.of(bus, "lab")
    writer, snapshotter = StateWriter(bus, views.placements, fence=LEADERSHIP), LockSnapshotter(views)
    async with following(*views.all):
        await views.placements.complete()
        whole = replace(member, uid="gang-1", gang="", submitted=T0, **gang)
        await writer.record("gang-1", whole, revision=0)
        await writer.record("member", member, revision=0)
        await until(lambda: views.placements.get("member") is not None)
        placed = snapshotter.job_by_uid([pod("m", namespace="team", uid="member")])

        assert placed == {"member": job}
        assert snapshotter.submitted({"member": 5}, {5}) == {5: T0}
        assert snapshotter.submitted({"member": 5}, {6}) == {6: None}


async def test_a_pod_that_came_and_went_while_it_could_not_be_stored_is_told_to_be_gone(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = StateView(bus, "lab", KubePodState)
    kube = Kube(StateWriter(bus, view, fence=LEADERSHIP), StateView(bus, "lab", SlurmNodeState))
    told, publish = list[str](), bus.publish

    async def full(subject: str, data: bytes, **how: Any) -> int:  # noqa: ANN401 - as `Bus.publish` has it
        if not subject.startswith("$KV"):
            told.append(subject.rpartition(".")[2])
        elif kube.pods:
            raise BusUnavailableError("no space")
        return await publish(subject, data, **how)

    async with following(view):
        await view.complete()
        monkeypatch.setattr(bus, "publish", full)
        with pytest.raises(BusUnavailableError):
            await kube.has(a="K")
        with pytest.raises(ConflictError, match="published only now"):
            await kube.has()
        await kube.states.settle("a")

    found = view.get("a")
    assert found is not None
    assert (found.phase, told) == ("gone", ["ready", "ready", "gone"])
