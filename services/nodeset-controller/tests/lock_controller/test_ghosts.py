"""Nodes that no NodeSet has: questions about them are refused, and nothing of them is kept."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from sunk_events.base import Reply
from sunk_events.locks import LockState
from sunk_events.requests import AcquireLock, ExplainKubeNode, Refused, ReleaseLock
from sunk_nodeset_controller.lock_controller.evictor import Evictor
from sunk_nodeset_controller.lock_controller.handlers import Handlers
from sunk_nodeset_controller.lock_controller.lock_store import NodeLockStore
from sunk_nodeset_controller.lock_controller.pod_watches import PodWatches
from sunk_nodeset_controller.lock_controller.reconciler import Locks
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.locks.model import Rules
from sunk_runtime.clock import now
from sunk_runtime.keys import KeyLoop
from sunk_runtime.writer import StateWriter

pytestmark = pytest.mark.anyio

GHOST: Final = "ghost"


class View(dict[str, Any]):
    """What the bus has of one kind."""

    cluster = "lab"
    undecodable = frozenset[str]()

    def revision(self, _: str) -> int:
        return 0


class Bus:
    """A cluster with one node, which is another."""

    def __init__(self) -> None:
        member = SimpleNamespace(kube_node="node1")
        self.views = SimpleNamespace(kube_pods=View(gpu=member), slurm_nodes=View(), locks=View())
        self.view = self.views.locks

    def require_complete(self) -> None:
        """Be complete."""

    def is_known(self, node: str) -> bool:
        return node in self.views.kube_pods

    def kube_node(self, _: str) -> str:
        return ""

    def successor(self, _node: str, _kube_node: str) -> str:
        return ""

    def viewed(self, _: str) -> None:
        """Have no such Node."""

    def stop(self, _: str) -> None:
        """Watch no Pods of it."""

    async def forget(self, *_: object, **__: object) -> None:
        """Have forgotten it."""

    def enqueue(self, _: str) -> None:
        """Look at it later."""


def made() -> tuple[Locks, Handlers]:
    bus = Bus()
    snapshotter = cast("LockSnapshotter", bus)
    locks = Locks(
        snapshotter,
        cast("NodeLockStore", bus),
        cast("PodWatches", bus),
        cast("StateWriter[LockState]", bus),
        Rules(),
        evictor=cast("Evictor", bus),
    )
    return locks, Handlers(snapshotter, locks, cast("KeyLoop", bus))


def kept(locks: Locks) -> set[str]:
    return {*locks._lock_requests}  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def acquire(answers: Handlers) -> Awaitable[Reply]:
    deadline = now() + timedelta(seconds=0.3)
    return answers.acquire(AcquireLock(node=GHOST, job=1, level="normal", deadline=deadline))


def release(answers: Handlers) -> Awaitable[Reply]:
    return answers.release(ReleaseLock(node=GHOST, job=1))


def explain(answers: Handlers) -> Awaitable[Reply]:
    return answers.explain(ExplainKubeNode(node=GHOST))


@pytest.mark.parametrize("ask", [acquire, release, explain])
async def test_a_question_about_a_node_that_no_nodeset_has_leaves_nothing_behind(
    ask: Callable[[Handlers], Awaitable[Reply]],
) -> None:
    locks, answers = made()
    reply = await ask(answers)

    assert kept(locks) == set()
    assert isinstance(reply, Refused)
    assert reply.code == "unknown_node"


async def test_a_look_at_a_node_that_no_nodeset_has_leaves_nothing_behind() -> None:
    locks, _ = made()
    await locks.reconcile(GHOST)  # A job runs there.

    assert kept(locks) == set()
