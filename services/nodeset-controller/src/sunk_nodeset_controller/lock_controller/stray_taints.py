"""Marks of a lock that others put on a Node, or took off: noticed as they come, with the writer's name.

What must stay true: a taint that no lock of ours explains goes, and an Event says who put it there, before it
is taken off: a process that is killed in between is followed by one that says the same.

Source: Kubernetes, "Server-Side Apply", field management. A Node's taints are one field, the last writer's.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import anyio
import msgspec

from sunk_events.locks import LockState
from sunk_kube.bodies import EventText, second_time
from sunk_kube.objects import KubeStruct, Node, ObjectMeta
from sunk_kube.reflector import Reflector
from sunk_kube.resources import Resource
from sunk_nodeset_controller.lock_controller.snapshotter import LockSnapshotter
from sunk_nodeset_controller.locks.annotations import read
from sunk_nodeset_controller.locks.model import OPEN, LockTaint, NodeLock
from sunk_nodeset_controller.reasons import NodeReason
from sunk_runtime.changes import Changes

SETTLE_S: Final = 0.3
"""Our own marks stand on a Node for a moment before the bus says so."""
_MANAGER_MAX: Final = 200


class ManagedFields(KubeStruct, frozen=True):
    """The last writer of some fields of an object."""

    manager: str = ""
    operation: str = ""
    time: datetime | None = None
    fields: Mapping[str, Any] = msgspec.field(name="fieldsV1", default_factory=dict[str, Any])


class ManagedMeta(ObjectMeta, frozen=True):
    """What every object has, with the writers of its fields."""

    managed_fields: tuple[ManagedFields, ...] = ()


class ManagedNode(Node, frozen=True):
    """A Node with the writers of its fields."""

    metadata: ManagedMeta = ManagedMeta()


MANAGED_NODES: Final = Resource(kind="Node", plural="nodes", struct=ManagedNode)


def who_tainted(node: ManagedNode) -> str:
    """Return who wrote the taints of *node* last, as the API server knows it."""
    found = [one for one in node.metadata.managed_fields if _has_taints(one)]
    last = max(found, key=lambda one: one.time.timestamp() if one.time is not None else 0.0, default=None)
    if last is None:
        return "an unknown client"
    when = f" at {second_time(last.time)}" if last.time is not None else ""
    return f"{last.manager[:_MANAGER_MAX]!r} ({last.operation}{when})"


def _has_taints(one: ManagedFields) -> bool:
    spec = one.fields.get("f:spec")
    return isinstance(spec, dict) and "f:taints" in spec


def taken_off(taint: LockTaint, who: str) -> EventText:
    """Return what is said of a taint that *who* put on a Node that is not locked."""
    note = f"the taint {taint.key} is removed, because no lock needs it; {who} wrote the Node's taints last"
    return EventText(reason=NodeReason.STRAY_LOCK_TAINT, action="Unlock", note=note, type="Warning")


def is_stray_taint(lock: NodeLock) -> bool:
    """Whether a Node bears the lock's taint and nothing else of a lock. We write both at once."""
    return lock.value == "false" and (lock.is_tainted or lock.has_old_taint)


def is_as_published(lock: NodeLock, published: LockState | None) -> bool:
    """Whether what stands on a Node is what the bus says of its lock, as far as it is one or none."""
    if published is None or published.lock == "false":
        return lock == OPEN
    return _marks(lock) == (True, True, False)


def _marks(lock: NodeLock) -> tuple[bool, bool, bool]:
    """Return which of the marks of a lock are there."""
    return lock.value != "false", lock.is_tainted, lock.has_old_taint


def lock_changes(nodes: Reflector[Node], taint: LockTaint) -> Changes:
    """Return the names of Nodes on which the marks of a lock change, whatever writes them.

    A Node that came is named too: it may have replaced a locked one of its name, and have no marks.
    """
    changes = Changes(())

    def of_node(before: Node | None, after: Node | None) -> Iterable[str]:
        was, found = (_marks(read(one, taint) if one is not None else OPEN) for one in (before, after))
        return (after.metadata.name,) if after is not None and (before is None or was != found) else ()

    nodes.follow(changes, of_node)
    return changes


async def enqueue_stray_taints(
    changed: Changes,
    snapshotter: LockSnapshotter,
    viewed: Mapping[str, Node],
    taint: LockTaint,
    *,
    owned: Callable[[str], None],
    unowned: Callable[[str], None],
) -> None:
    """Have nodes looked at whose Node bears other than the bus says, until cancelled.

    Args:
        changed: Names of Nodes on which marks of a lock changed.
        snapshotter: Says which Slurm node of this cluster has a Node.
        viewed: The Nodes.
        taint: The lock's.
        owned: Takes the Slurm nodes of this cluster.
        unowned: Takes the Nodes that no Slurm node of this cluster has, if they bear a stray taint.
    """
    while True:
        first = await anext(changed)
        await anyio.sleep(SETTLE_S)
        for kube_node in {first, *changed.taken()}:
            node, found = snapshotter.owner(kube_node), viewed.get(kube_node)
            if found is None:
                continue
            lock = read(found, taint)
            if node and not is_as_published(lock, snapshotter.views.locks.get(node)):
                owned(node)
            elif not node and is_stray_taint(lock):
                unowned(kube_node)
