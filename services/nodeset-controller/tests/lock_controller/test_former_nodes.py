"""Nodes that become another Slurm node's while the lock of the former one is being looked at."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec
import pytest
from msgspec.structs import replace

from sunk_events.locks import LockState
from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_kube.testing import node, pod
from sunk_nodeset_controller.adapters.daemonset_view import Daemons, DaemonSetView
from sunk_nodeset_controller.lock_controller.evictor import Evictor, Turn
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.pod_watches import PodWatches
from sunk_nodeset_controller.lock_controller.reconciler import Locks
from sunk_nodeset_controller.lock_controller.requests import LockRequests
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.locks.annotations import patch, read
from sunk_nodeset_controller.locks.model import Holder, JobSeen, LockTaint, NodeLock, Rules, Seen
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_runtime.clock import now
from sunk_runtime.errors import ConflictError
from sunk_runtime.writer import StateWriter

pytestmark = pytest.mark.anyio

TAINT: Final = LockTaint()
LONG_AGO: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def locked(job: int, version: str) -> Node:
    """Return the Node as it is locked for *job*."""
    holder = Holder(job=job, level="normal", requested_at=LONG_AGO, granted=LONG_AGO)
    made = node("node1")
    body = patch(made, NodeLock(value="locked", holders=(holder,), is_tainted=True), TAINT)
    raw: dict[str, Any] = msgspec.to_builtins(made)
    raw["metadata"] |= {"resourceVersion": version, "annotations": body["metadata"]["annotations"]}
    raw["spec"] = body["spec"]
    return msgspec.convert(raw, Node)


class Cluster:
    """The Node of *a*, whose job has ended; it is *b*'s with a lock for job 7 when *a*'s write arrives."""

    def __init__(self) -> None:
        self.taint, self.measure, self.views = TAINT, EvictionPolicy(), SimpleNamespace()
        self.found, self.owner = locked(5, "10"), "a"
        self.forgotten: list[str] = []
        self.driven: list[str] = []
        self.view = SimpleNamespace(get=lambda _: None, revision=lambda _: 0, cluster="lab")  # pyright: ignore[reportUnknownLambdaType]

    def require_complete(self) -> None:
        """Be complete."""

    def kube_node(self, _: str) -> str:
        return "node1"

    def successor(self, of: str, _: str) -> str:
        return "" if self.owner == of else f"lab/{self.owner}"

    def seen(self, _: str, lock: NodeLock, asked: Seen) -> Seen:
        gone = JobSeen(place="left", state="COMPLETED", changed=LONG_AGO + timedelta(hours=1))
        jobs = {holder.job: gone for holder in lock.holders}
        return replace(asked, jobs=jobs, idle_since=LONG_AGO)

    def viewed(self, _: str) -> None:
        """Have no view of Nodes."""

    async def read(self, _: str, **__: object) -> Node:
        return self.found

    async def write(self, before: Node, lock: NodeLock) -> Node:
        if self.owner == "a":
            self.owner, self.found = "b", locked(7, "20")
        if before.metadata.resource_version != self.found.metadata.resource_version:
            raise ConflictError("the Node has changed")
        raise AssertionError(f"the lock of b is overwritten with {lock}")

    def stop(self, _: str) -> None:
        """Watch no Pods of it."""

    async def forget(self, of: str, *_: object, **__: object) -> None:
        self.forgotten.append(of)

    def job_by_uid(self, _: object) -> dict[str, int | None]:
        return {}

    async def pods_on(self, _: str) -> list[Pod]:
        self.owner = "b"
        return [pod(tolerations=())]

    async def judge(self, _: object) -> Daemons:
        return Daemons()

    async def report(self, _: object) -> frozenset[str]:
        return frozenset()

    async def confirm(self, *_: object) -> frozenset[int] | None:
        raise AssertionError("no job is in doubt")

    async def carry_out(self, deed: Any) -> str:  # noqa: ANN401 - of another room
        self.driven.append(deed.pod.key)
        return ""


async def test_a_lock_that_a_new_owner_has_meanwhile_is_not_taken_off_for_the_former_ones_job() -> None:
    lab = Cluster()
    locks = Locks(
        cast("LockSnapshotter", lab),
        cast("NodeLockStore", lab),
        cast("PodWatches", lab),
        cast("StateWriter[LockState]", lab),
        Rules(),
        evictor=cast("Evictor", lab),
    )

    assert await locks.reconcile("a") is None
    assert lab.forgotten == ["a"]
    assert [holder.job for holder in read(lab.found, TAINT).holders] == [7]


@pytest.mark.parametrize(("of", "driven"), [("a", []), ("b", ["default/web"])])
async def test_a_look_drives_no_pod_out_once_its_node_has_another_owner(of: str, driven: list[str]) -> None:
    lab = Cluster()
    lab.measure = EvictionPolicy(LockTaint(effect="NoSchedule"))
    evictor = Evictor(
        cast("LockSnapshotter", lab),
        cast("NodeLockStore", lab),
        Rules(),
        confirm=lab.confirm,
        daemonsets=cast("DaemonSetView", lab),
    )
    await evictor.look(Turn(of, "node1", LockRequests(), ()), Seen(lock=read(lab.found, TAINT), now=now()))

    assert lab.driven == driven
