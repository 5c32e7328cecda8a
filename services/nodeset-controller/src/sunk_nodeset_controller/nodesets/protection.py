"""Who may be evicted, as by ``kubectl drain``: whose Node is cordoned and whose Slurm node is idle; pure.

What must stay true: a Pod whose node runs a job, or may run one, is under the NodeSet's disruption budget,
which allows no eviction. The controller itself deletes, and asks `node.confirm` before.

Source: Kubernetes, PodDisruptionBudget. ``minAvailable`` as a number needs no size of the NodeSet, which has
none where ``replicas`` is unset.
"""

from typing import Any, Final

from sunk_kube import wellknown as wk
from sunk_kube.nodesets import NodeSet
from sunk_kube.resources import DISRUPTION_BUDGETS, NODESETS
from sunk_nodeset_controller.nodesets.members import Member
from sunk_nodeset_controller.nodesets.model import Observed, ProtectPod
from sunk_nodeset_controller.nodesets.template import pinned_node

_ALL: Final = 1_000_000_000


def protections(seen: Observed, found: list[Member]) -> tuple[ProtectPod, ...]:
    """Return whose protection changes, in a stable order."""
    changed: list[ProtectPod] = []
    for member in found:
        meta = member.pod.metadata
        is_protected = not _may_be_evicted(seen, member)
        if (meta.labels.get(wk.LABEL_PROTECTED) == "true") != is_protected:
            changed.append(ProtectPod(meta.name, meta.uid, is_protected))
    return tuple(sorted(changed, key=lambda one: one.name))


def _may_be_evicted(seen: Observed, member: Member) -> bool:
    if member.slurm is None or not member.slurm.is_drain or member.slurm.is_busy:
        return False
    node = seen.nodes.get(pinned_node(member.pod))
    return node is not None and node.spec.unschedulable


def budget(nodeset: NodeSet) -> dict[str, Any]:
    """Return the disruption budget of *nodeset*, which allows no eviction at all."""
    meta = nodeset.metadata
    owner = {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
    }
    labels = {wk.LABEL_NODESET: meta.name, wk.LABEL_CLUSTER: nodeset.spec.cluster}
    return {
        "apiVersion": DISRUPTION_BUDGETS.api_version,
        "kind": DISRUPTION_BUDGETS.kind,
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "minAvailable": _ALL,
            "selector": {"matchLabels": {**labels, wk.LABEL_PROTECTED: "true"}},
        },
    }
