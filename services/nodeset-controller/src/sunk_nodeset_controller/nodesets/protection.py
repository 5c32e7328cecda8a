"""Who may be evicted, as by ``kubectl drain``: whose Node is cordoned and whose Slurm node is idle; pure.

What must stay true: a Pod whose node runs a job, or may run one, is under the NodeSet's disruption budget,
which allows no eviction. The controller itself deletes, and asks `node.confirm` before.

Source: Kubernetes, PodDisruptionBudget. ``minAvailable`` as a number needs no size of the NodeSet, which has
none where ``replicas`` is unset.
"""

from datetime import timedelta
from typing import Any, Final

from sunk_kube import wellknown as wk
from sunk_kube.nodesets import NodeSet
from sunk_kube.resources import DISRUPTION_BUDGETS, NODESETS
from sunk_nodeset_controller.nodesets.members import Member, is_loss
from sunk_nodeset_controller.nodesets.model import Observed, ProtectPod
from sunk_nodeset_controller.nodesets.template import pinned_node
from sunk_nodeset_controller.pods.hearing import was_known

_ALL: Final = 1_000_000_000
REGISTERED_S: Final = 300.0
"""A Pod that Slurm has not known for so long holds up no ``kubectl drain``: there is nothing to wait for."""


def protections(seen: Observed, found: list[Member]) -> tuple[ProtectPod, ...]:
    """Return whose protection changes, in a stable order."""
    changed: list[ProtectPod] = []
    loss = is_loss(found)
    for member in found:
        meta = member.pod.metadata
        is_protected = not _may_be_evicted(seen, member, is_loss=loss)
        if (meta.labels.get(wk.LABEL_PROTECTED) == "true") != is_protected:
            changed.append(ProtectPod(meta.name, meta.uid, is_protected))
    return tuple(sorted(changed, key=lambda one: one.name))


def _may_be_evicted(seen: Observed, member: Member, *, is_loss: bool) -> bool:
    if member.slurm is None:
        if is_loss or not _is_nobody(seen, member):
            return False
    elif not member.slurm.is_drain or member.slurm.is_busy:
        return False
    node = seen.nodes.get(pinned_node(member.pod))
    return node is not None and node.spec.unschedulable


def _is_nobody(seen: Observed, member: Member) -> bool:
    """Whether Slurm, which is heard, has never known the node: its slurmd does not come to register."""
    created = member.pod.metadata.creation_timestamp
    is_new = created is None or seen.now - created < timedelta(seconds=REGISTERED_S)
    return member.is_absent and seen.doubt is None and not is_new and not was_known(member.pod)


def budget_name(nodeset: NodeSet) -> str:
    """Return the name of the disruption budget of *nodeset*."""
    return f"{nodeset.metadata.name}-nodeset"


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
            "name": budget_name(nodeset),
            "namespace": meta.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": {
            "minAvailable": _ALL,
            "selector": {"matchLabels": {**labels, wk.LABEL_PROTECTED: "true"}},
        },
    }
