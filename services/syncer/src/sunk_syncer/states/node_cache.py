"""What was seen of each node last, from whole lists and single looks that overtake one another.

A single look shows the node's state as it is, and what is allocated as of the last whole list: slurmctld
counts anew for lists only. So states come from whichever was asked for later, counts from lists. Which of two
was answered later nobody knows: a list may wait long in slurmrestd, and show what a look came too early for.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from sunk_slurm.wire import Node

_RESTLESS: Final = frozenset({"COMPLETING", "NOT_RESPONDING", "CONFIGURING"})


class CacheUpdate(msgspec.Struct, frozen=True):
    """What became of a whole list."""

    changed: list[str]
    """Nodes that are other than before."""
    is_disputed: bool
    """A look that was asked for later shows some node otherwise; what the list shows of it was left aside."""


class NodeCache:
    """The nodes as seen last, by name."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._requested_at: dict[str, float] = {}
        self._changing: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def is_changing(self) -> bool:
        """Some node is about to change by itself: an epilog ends, a slurmd answers again or is given up."""
        return bool(self._changing)

    def names(self) -> set[str]:
        """Return the names of all nodes seen."""
        return set(self._nodes)

    def get(self, name: str) -> Node | None:
        """Return the node as seen last; None where it was not seen, or seen to be absent."""
        return self._nodes.get(name)

    def is_absent(self, name: str) -> bool:
        """Whether a look at *name* showed that there is no such node. One not looked at is unknown."""
        return name in self._requested_at and name not in self._nodes

    def take_list(self, nodes: Iterable[Node], requested_at: float) -> CacheUpdate:
        """Take over a whole list, requested at *requested_at*."""
        changed: list[str] = []
        is_disputed = False
        for node in nodes:
            before = self._nodes.get(node.name)
            is_overtaken = before is not None and self._requested_at[node.name] > requested_at
            seen = _with_counts(before, node) if is_overtaken and before is not None else node
            is_disputed |= is_overtaken and seen != _with_counts(node, node)
            self._requested_at[node.name] = max(requested_at, self._requested_at.get(node.name, requested_at))
            if seen != before:
                self._put(seen)
                changed.append(node.name)
        return CacheUpdate(changed, is_disputed)

    def take_one(self, name: str, node: Node | None, requested_at: float) -> None:
        """Take over a single look at *name*, requested at *requested_at*; None is "no such node"."""
        if self._requested_at.get(name, requested_at) > requested_at:
            return
        self._requested_at[name] = requested_at
        if node is None:
            self._nodes.pop(name, None)
            self._changing.discard(name)
            return
        self._put(_with_counts(node, self._nodes.get(name)))

    def _put(self, node: Node) -> None:
        self._nodes[node.name] = node
        if _RESTLESS.isdisjoint(node.state) or node.state_now.is_down:
            self._changing.discard(node.name)
        else:
            self._changing.add(node.name)


def _with_counts(node: Node, counted: Node | None) -> Node:
    """Return *node* with the counts of *counted*; on a node without jobs nothing is allocated."""
    if counted is None:
        return node
    if not node.state_now.is_busy:
        return msgspec.structs.replace(node, alloc_cpus=0, alloc_memory=0, gres_used="")
    return msgspec.structs.replace(
        node,
        alloc_cpus=counted.alloc_cpus,
        alloc_memory=counted.alloc_memory,
        gres_used=counted.gres_used,
    )
