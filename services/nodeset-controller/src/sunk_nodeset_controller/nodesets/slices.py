"""NodeSlices: which Nodes a NodeSet has, and under which names; pure.

What must stay true: a name that was chosen stays while its Node exists, also after the set has let the Node
go; an entry stays in its slice; a slice is written only if it changes, and holds no more than its maximum;
that a Pod has failed is written down before it is deleted, once, with its uid: who comes after us makes the
next one no sooner, and neither he nor a view that still shows the Pod counts it again.
"""

import itertools
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from sunk_kube import wellknown as wk
from sunk_kube.node_slices import SLICE_MAX, NodeSlice, NodeSliceEntry
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import ObjectMeta, condition
from sunk_kube.pods import Pod
from sunk_kube.resources import NODESLICES
from sunk_nodeset_controller.nodesets.model import CreatePod, Observed, Plan, ReplacePod
from sunk_nodeset_controller.nodesets.owners import owner_reference
from sunk_nodeset_controller.nodesets.template import pinned_node

FORGIVEN_S: Final = 300.0
"""A Pod that was ready for longer begins at zero when it fails."""
FAILURES_MAX: Final = 20
Manifest = dict[str, Any]
"""A slice to be. ``Any``, because a manifest has every shape."""


def members_of(slices: Iterable[NodeSlice]) -> dict[str, str]:
    """Return the Slurm node's name for each Node that *slices* say the set has."""
    return {entry.kube_node: entry.name for one in slices for entry in one.nodes if not entry.released}


def names_of(slices: Iterable[NodeSlice]) -> dict[str, str]:
    """Return the name that was chosen for each Node, also for those that the set has let go."""
    return {entry.kube_node: entry.name for one in slices for entry in one.nodes}


def failures_of(slices: Iterable[NodeSlice]) -> dict[str, int]:
    """Return how often in a row the Pod of a name has ended by itself, where it has."""
    return {entry.name: entry.failures for one in slices for entry in one.nodes if entry.failures}


def failed_of(slices: Iterable[NodeSlice]) -> frozenset[str]:
    """Return the uids of Pods whose failures are counted already."""
    return frozenset(entry.failed for one in slices for entry in one.nodes if entry.failed)


def wanted_entries(seen: Observed, found: Plan) -> dict[str, NodeSliceEntry]:
    """Return what the slices shall hold when *found* is carried out, by Node."""
    failures = _failures(seen, found)
    if found.invalid:
        entries = [entry for one in seen.slices for entry in one.nodes]
        return {entry.kube_node: _counted(entry, failures) for entry in entries}
    has = {kube_node: pod.metadata.name for pod in seen.pods if (kube_node := pinned_node(pod))}
    has |= {one.kube_node: one.name for one in found.actions if isinstance(one, CreatePod)}
    wanted: dict[str, NodeSliceEntry] = {}
    for kube_node, name in has.items():
        count, failed = failures.get(name, (0, ""))
        wanted[kube_node] = NodeSliceEntry(name=name, kube_node=kube_node, failures=count, failed=failed)
    for one in seen.slices:
        for entry in one.nodes:
            if entry.kube_node in seen.nodes:
                # One that waits for its GPUs is still the set's: a released one loses its record in Slurm.
                unread = seen.unread.get(entry.kube_node)
                waits = unread is not None and unread.wait_s > 0 and entry.kube_node not in seen.foreign
                released = entry.released or not waits
                wanted.setdefault(entry.kube_node, msgspec.structs.replace(entry, released=released))
    return wanted


def _counted(entry: NodeSliceEntry, failures: Mapping[str, tuple[int, str]]) -> NodeSliceEntry:
    count, failed = failures.get(entry.name, (entry.failures, entry.failed))
    return msgspec.structs.replace(entry, failures=count, failed=failed)


def _failures(seen: Observed, found: Plan) -> dict[str, tuple[int, str]]:
    """Return how often the Pod of a name has failed when *found* is carried out, and who did last."""
    entries = (entry for one in seen.slices for entry in one.nodes if entry.failures)
    counts = {entry.name: (entry.failures, entry.failed) for entry in entries}
    for one in found.actions:
        if isinstance(one, ReplacePod) and one.uid not in seen.failed:
            count, _ = counts.get(one.name, (0, ""))
            counts[one.name] = min(count + 1, FAILURES_MAX), one.uid
    if counts:
        for pod in seen.pods:
            if pod.metadata.name in counts and _is_forgiven(pod, seen):
                del counts[pod.metadata.name]
    return counts


def _is_forgiven(pod: Pod, seen: Observed) -> bool:
    ready = condition(pod.status.conditions, wk.CONDITION_READY)
    since = ready.last_transition_time if ready is not None and ready.status == "True" else None
    return not pod.is_over and since is not None and seen.now - since > timedelta(seconds=FORGIVEN_S)


def laid_out(seen: Observed, wanted: Mapping[str, NodeSliceEntry]) -> list[NodeSlice]:
    """Return the slices that hold *wanted*: each entry where it was, new ones where there is room.

    Those that end up empty are there, too. A new slice has no uid; its name is the first that is free.
    """
    old = sorted(seen.slices, key=lambda one: one.metadata.name)
    left = dict(wanted)
    kept = [[left.pop(entry.kube_node) for entry in one.nodes if entry.kube_node in left] for one in old]
    fresh = sorted(left.values(), key=lambda entry: entry.name)
    for entries in kept:
        room = SLICE_MAX - len(entries)
        entries.extend(fresh[:room])
        fresh = fresh[room:]
    made = [msgspec.structs.replace(one, nodes=_sorted(new)) for one, new in zip(old, kept, strict=True)]
    prefix, taken = seen.nodeset.metadata.name, {one.metadata.name for one in old}
    free = (name for number in itertools.count() if (name := f"{prefix}-{number}") not in taken)
    for begin in range(0, len(fresh), SLICE_MAX):
        entries = _sorted(fresh[begin : begin + SLICE_MAX])
        made.append(NodeSlice(metadata=ObjectMeta(name=next(free)), nodes=entries))
    return made


def _sorted(entries: Iterable[NodeSliceEntry]) -> tuple[NodeSliceEntry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.name))


def slice_manifest(nodeset: NodeSet, made: NodeSlice) -> Manifest:
    """Return *made* as a slice of *nodeset*, whole."""
    meta = nodeset.metadata
    return {
        "apiVersion": NODESLICES.api_version,
        "kind": NODESLICES.kind,
        "metadata": {
            "name": made.metadata.name,
            "namespace": meta.namespace,
            "labels": {wk.LABEL_NODESET: meta.name, wk.LABEL_CLUSTER: nodeset.spec.cluster},
            "ownerReferences": [owner_reference(nodeset)],
        },
        "cluster": nodeset.spec.cluster,
        "nodeSet": meta.name,
        "nodes": msgspec.to_builtins(made.nodes),
    }
