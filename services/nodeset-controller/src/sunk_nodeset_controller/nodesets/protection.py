"""Which Pods may be evicted, as by ``kubectl drain``: on a cordoned Node, of an idle Slurm node; pure.

What must stay true: a Pod whose node runs a job, or may run one, is under the NodeSet's disruption budget,
which allows no eviction. The controller itself deletes, and asks `node.confirm` before.

Source: Kubernetes, PodDisruptionBudget. ``minAvailable`` as a number needs no size of the NodeSet, which has
none where ``replicas`` is unset.
"""

from datetime import datetime
from typing import Any, Final

from sunk_events.nodes import SlurmNodeState
from sunk_kube import wellknown as wk
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_kube.resources import DISRUPTION_BUDGETS
from sunk_nodeset_controller.nodesets.owners import owner_reference
from sunk_nodeset_controller.slurm_health import was_known

_ALL: Final = 1_000_000_000
REGISTERED_S: Final = 300.0
"""A Pod that Slurm has not known for so long holds up no ``kubectl drain``: there is nothing to wait for."""


def may_be_evicted(
    node: Node | None, slurm: SlurmNodeState | None, *, is_unregistered: bool, is_held: bool
) -> bool:
    """Whether a Pod may be evicted.

    Args:
        node: Its Node.
        slurm: What Slurm, which is heard, says of its Slurm node.
        is_unregistered: Slurm answers, and the Pod's slurmd has never registered.
        is_held: A job is there all the same, or its end is not told yet: one that is suspended shows on no
            node.
    """
    if node is None or not node.spec.unschedulable or is_held:
        return False
    return is_unregistered if slurm is None else slurm.is_drain and not slurm.is_busy


def is_late(pod: Pod, now: datetime) -> bool:
    """Whether the slurmd of *pod*, whose node Slurm does not know, has never registered in all its time."""
    created = pod.metadata.creation_timestamp
    return created is not None and (now - created).total_seconds() >= REGISTERED_S and not was_known(pod)


def budget_name(nodeset: NodeSet) -> str:
    """Return the name of the disruption budget of *nodeset*."""
    return f"{nodeset.metadata.name}-nodeset"


def budget(nodeset: NodeSet) -> dict[str, Any]:
    """Return the disruption budget of *nodeset*, which allows no eviction at all."""
    meta = nodeset.metadata
    labels = {wk.LABEL_NODESET: meta.name, wk.LABEL_CLUSTER: nodeset.spec.cluster}
    return {
        "apiVersion": DISRUPTION_BUDGETS.api_version,
        "kind": DISRUPTION_BUDGETS.kind,
        "metadata": {
            "name": budget_name(nodeset),
            "namespace": meta.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(nodeset)],
        },
        "spec": {
            "minAvailable": _ALL,
            "selector": {"matchLabels": {**labels, wk.LABEL_PROTECTED: "true"}},
        },
    }
