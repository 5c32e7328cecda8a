"""Which NodeSet owns a Pod, and which namespace owns the name of a Slurm cluster; pure.

A cluster's name is the namespace's whose NodeSet is the oldest.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sunk_kube import wellknown as wk
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import KubeObject, Node
from sunk_kube.pods import Pod
from sunk_kube.resources import NODESETS


def owner_key(pod: Pod) -> str:
    """Return the key of the NodeSet that *pod* says it belongs to; nothing if to none."""
    name = pod.metadata.labels.get(wk.LABEL_NODESET, "")
    return f"{pod.metadata.namespace}/{name}" if name else ""


def is_member_pod(pod: Pod, namespaces: Collection[str]) -> bool:
    """Whether *pod*, which says that it is a NodeSet's, can be one: anybody may put a label on a Pod.

    Args:
        pod: A Pod with a NodeSet's label.
        namespaces: Those that have NodeSets.
    """
    if pod.metadata.namespace not in namespaces:
        return False
    owners = pod.metadata.owner_references
    controller = next((one for one in owners if one.controller), None)
    if controller is None:  # Its NodeSet was deleted without it.
        return True
    return (controller.api_version, controller.kind) == (NODESETS.api_version, NODESETS.kind)


def is_owned(made: KubeObject, nodeset: NodeSet) -> bool:
    """Whether *made* was made for *nodeset*, and not for an earlier one of its name."""
    return any(owner.uid == nodeset.metadata.uid for owner in made.metadata.owner_references)


def owner_reference(nodeset: NodeSet) -> dict[str, Any]:
    """Return what says of an object that *nodeset* controls it."""
    return {
        "apiVersion": NODESETS.api_version,
        "kind": NODESETS.kind,
        "name": nodeset.metadata.name,
        "uid": nodeset.metadata.uid,
        "controller": True,
    }


def is_orphan_of(found: KubeObject, nodeset: NodeSet) -> bool:
    """Whether *found* was made for an earlier NodeSet of this name, which was deleted without it."""
    meta = found.metadata
    if any(owner.controller for owner in meta.owner_references):
        return False
    return (
        meta.namespace == nodeset.metadata.namespace
        and meta.deletion_timestamp is None
        and meta.labels.get(wk.LABEL_NODESET) == nodeset.metadata.name
        and meta.labels.get(wk.LABEL_CLUSTER) == nodeset.spec.cluster
    )


def labelled_key(node: Node) -> str:
    """Return the key of the NodeSet whose labels *node* bears; nothing if none's."""
    labels = node.metadata.labels
    name, namespace = labels.get(wk.LABEL_NODESET), labels.get(wk.LABEL_NAMESPACE)
    return f"{namespace}/{name}" if name and namespace else ""


def refusal(nodeset: NodeSet, nodesets: Iterable[NodeSet], clusters: Collection[str]) -> str:
    """Return why *nodeset* is not carried out; nothing if it is."""
    cluster = nodeset.spec.cluster
    if cluster not in clusters:
        return f"Slurm cluster {cluster!r} is not in `clusters` of helm/sunk: {', '.join(sorted(clusters))}"
    holder = cluster_holders(nodesets).get(cluster, nodeset.metadata.namespace)
    if holder != nodeset.metadata.namespace:
        return f"Slurm cluster {cluster!r} belongs to namespace {holder}"
    return ""


def cluster_holders(nodesets: Iterable[NodeSet]) -> Mapping[str, str]:
    """Return the namespace that each Slurm cluster's name belongs to."""
    holders: dict[str, str] = {}
    for nodeset in sorted(nodesets, key=by_age):
        holders.setdefault(nodeset.spec.cluster, nodeset.metadata.namespace)
    return holders


def by_age(nodeset: NodeSet) -> tuple[bool, float, str]:
    """Sorts NodeSets by age, the oldest first."""
    created = nodeset.metadata.creation_timestamp
    return created is None, created.timestamp() if created else 0.0, nodeset.key
