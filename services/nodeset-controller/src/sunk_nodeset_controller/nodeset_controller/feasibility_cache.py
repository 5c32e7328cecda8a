"""Which Nodes fit which NodeSet, remembered: a Node is looked at again only when it has changed.

What must stay true: an answer is never older than the view of Nodes that it was asked with.
"""

from collections.abc import Iterable

from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node
from sunk_kube.reflector import Reflector
from sunk_nodeset_controller.nodesets.feasibility import fits, place
from sunk_nodeset_controller.nodesets.model import Fits
from sunk_nodeset_controller.nodesets.template import template_hash
from sunk_runtime.changes import Changes


class _Known:
    """What is known for one NodeSet."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self.invalid = ""
        self.obstacles: dict[str, str] = {}
        self.changed: set[str] = set()


class FeasibilityCache:
    """The answers of `fits` for all Nodes of *nodes*."""

    def __init__(self, nodes: Reflector[Node], *, lock_key: str) -> None:
        self._nodes = nodes
        self._lock_key = lock_key
        self._known: dict[str, _Known] = {}
        self._changes = Changes(())  # Held, for a view forgets who does not listen any more.
        nodes.follow(self._changes, self._note)

    def of(self, nodeset: NodeSet) -> Fits:
        """Return which Nodes can carry a Pod of *nodeset*, as of now."""
        known = self._known.get(nodeset.key)
        revision = template_hash(nodeset)
        if known is None or known.revision != revision:
            known = self._known[nodeset.key] = _Known(revision)
            known.changed.update(self._nodes.keys())
        if known.changed:
            self._look_again(nodeset, known)
        return Fits(invalid=known.invalid, obstacles=dict(known.obstacles))

    def forget(self, key: str) -> None:
        """Forget a NodeSet that is gone."""
        self._known.pop(key, None)

    def _look_again(self, nodeset: NodeSet, known: _Known) -> None:
        nodes = [node for name in known.changed if (node := self._nodes.get(name)) is not None]
        found = fits(nodeset, nodes, self._lock_key)
        for name in known.changed:
            known.obstacles.pop(name, None)
        known.obstacles.update(found.obstacles)
        known.invalid = found.invalid
        known.changed.clear()

    def _note(self, before: Node | None, after: Node | None) -> Iterable[str]:
        """Remember that a Node is to be looked at again; no key is ever told."""
        found = after or before
        if found is not None and place(before) != place(after):
            for known in self._known.values():
                known.changed.add(found.metadata.name)
        return ()
