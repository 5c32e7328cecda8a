"""The lock of a Node: from its annotations and taint to values, and back as one patch.

Annotation, taint and holders go into one patch that names the Node's resourceVersion. The taints are
one list: a patch without that version would undo what another client wrote in between.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from sunk_events.locks import LockValue
from sunk_kube.objects import Node, Taint
from sunk_kube.wellknown import ANNOTATION_LOCK, ANNOTATION_LOCK_HOLDERS, LABEL_CLUSTER
from sunk_nodeset_controller.locks.model import OPEN, Holder, LockTaint, NodeLock

_VALUES: Final[dict[str, LockValue]] = {
    "pending": "pending",
    "locked": "locked",
    "locked_strict": "locked_strict",
}


def read(node: Node, taint: LockTaint) -> NodeLock:
    """Return the lock that *node* has.

    Holders that cannot be read are left out: a prolog that waits asks again, and a job that runs is on
    the bus. An unknown word in the annotation is no lock.
    """
    annotations = node.metadata.annotations
    return NodeLock(
        value=_VALUES.get(annotations.get(ANNOTATION_LOCK, ""), "false"),
        holders=_holders(annotations.get(ANNOTATION_LOCK_HOLDERS, "")),
        is_tainted=any(_is_same(found, taint) for found in node.spec.taints),
        has_old_taint=any(
            found.key == taint.key and not _is_same(found, taint) for found in node.spec.taints
        ),
    )


def left_over(nodes: Iterable[Node], known: Collection[str], cluster: str, taint: LockTaint) -> list[Node]:
    """Return those of *nodes* that have a lock which no Slurm cluster's locks are about.

    Args:
        nodes: All Nodes.
        known: The Nodes that a Slurm cluster's locks are about.
        cluster: That Slurm cluster. A Node that says which it belongs to is no other's business.
        taint: The lock's.
    """
    return [
        node
        for node in nodes
        if node.metadata.name not in known
        and node.metadata.labels.get(LABEL_CLUSTER, cluster) == cluster
        and read(node, taint) != OPEN
    ]


def patch(node: Node, lock: NodeLock, taint: LockTaint) -> dict[str, Any]:
    """Return the merge patch that writes *lock* to *node*, for this version of the Node only."""
    holders = msgspec.json.encode(lock.holders).decode() if lock.holders else None
    body: dict[str, Any] = {
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "annotations": {ANNOTATION_LOCK: lock.value, ANNOTATION_LOCK_HOLDERS: holders},
        }
    }
    before = read(node, taint)
    if lock.is_tainted != before.is_tainted or before.has_old_taint:
        body["spec"] = {"taints": msgspec.to_builtins(_taints(node, taint, is_tainted=lock.is_tainted))}
    return body


def _taints(node: Node, taint: LockTaint, *, is_tainted: bool) -> list[Taint]:
    """Return the Node's taints with or without ours; one of our key that is not ours is replaced."""
    others = [found for found in node.spec.taints if found.key != taint.key]
    ours = [Taint(key=taint.key, value=taint.value, effect=taint.effect)] if is_tainted else []
    return [*others, *ours]


def _is_same(found: Taint, taint: LockTaint) -> bool:
    return (found.key, found.value, found.effect) == (taint.key, taint.value, taint.effect)


def _holders(text: str) -> tuple[Holder, ...]:
    if not text:
        return ()
    try:
        holders = msgspec.json.decode(text, type=tuple[Holder, ...])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ()
    return tuple(sorted(holders, key=lambda holder: holder.job))
