"""NodeSlices to the bus: which Slurm nodes there shall be. Keys are the slices'.

What must stay true: a slice leaves the bus only when a whole view of slices does not have it; a Node that
its set has let go is in the slice, for its name, and not on the bus.
"""

from datetime import UTC, datetime

from sunk_events.nodesets import NodeSliceEntry, NodeSliceState
from sunk_kube.node_slices import NodeSlice
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_runtime.changes import Changes
from sunk_runtime.leases import Leadership
from sunk_runtime.writer import StateWriter


class SlicePublisher:
    """Tells the bus of the slices of one Slurm cluster."""

    def __init__(self, views: KubeViews, writer: StateWriter[NodeSliceState], leadership: Leadership) -> None:
        self._views = views
        self._writer = writer
        self._leadership = leadership

    async def settle(self, key: str) -> None:
        """Tell the bus what the slice *key* holds now."""
        self._views.slices.require_complete()
        self._writer.view.require_complete()
        revision = self._writer.view.revision(key)
        found = self._views.slices.get(key)
        self._leadership.check()
        if found is None or found.cluster != self._writer.view.cluster:
            await self._writer.forget(key, revision=revision)
        else:
            await self._writer.record(key, state(found, datetime.now(UTC)), revision=revision)

    def changes(self) -> Changes:
        """Return the keys of slices that changed, in Kubernetes or on the bus."""
        changes = self._writer.view.changes()
        self._views.slices.follow(changes, None)
        return changes


def state(found: NodeSlice, now: datetime) -> NodeSliceState:
    """Return what the bus shall hold of a slice."""
    entries = (
        NodeSliceEntry(node=entry.name, kube_node=entry.kube_node)
        for entry in found.nodes
        if not entry.released
    )
    meta = found.metadata
    return NodeSliceState(
        changed=now,
        namespace=meta.namespace,
        name=meta.name,
        nodeset=found.node_set,
        entries=tuple(sorted(entries, key=lambda entry: entry.node)),
    )
