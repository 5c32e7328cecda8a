"""Which Node and which Slurm cluster belongs to whom, where several NodeSets want them; pure.

First come, first served: a Node is whose Pod is on it, else whose labels it bears; a cluster's name is
the namespace's whose NodeSet is the oldest.
"""

from collections.abc import Collection, Iterable, Mapping

from sunk_kube import wellknown as wk
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node, Pod
from sunk_nodeset_controller.nodesets.template import pinned_node


def owner_key(pod: Pod) -> str:
    """Return the key of the NodeSet that *pod* says it belongs to; nothing if to none."""
    name = pod.metadata.labels.get(wk.LABEL_NODESET, "")
    return f"{pod.metadata.namespace}/{name}" if name else ""


def is_owned(pod: Pod, nodeset: NodeSet) -> bool:
    """Whether *pod* was made for *nodeset*, and not for an earlier one of its name."""
    return any(owner.uid == nodeset.metadata.uid for owner in pod.metadata.owner_references)


def labelled_key(node: Node) -> str:
    """Return the key of the NodeSet whose labels *node* bears; nothing if none's."""
    labels = node.metadata.labels
    name, namespace = labels.get(wk.LABEL_NODESET), labels.get(wk.LABEL_NAMESPACE)
    return f"{namespace}/{name}" if name and namespace else ""


def node_owners(nodes: Iterable[Node], pods: Iterable[Pod], nodesets: Collection[str]) -> dict[str, str]:
    """Return the key of the NodeSet that each Node belongs to; Nodes of none are not there.

    Args:
        nodes: All Nodes.
        pods: All NodeSet Pods.
        nodesets: The keys of all NodeSets: labels of one that is gone bind nobody.
    """
    owners = {node.metadata.name: key for node in nodes if (key := labelled_key(node)) in nodesets}
    for pod in sorted(pods, key=lambda pod: pod.key):
        if (kube_node := pinned_node(pod)) and (key := owner_key(pod)):
            owners[kube_node] = key
    return owners


def refusal(nodeset: NodeSet, nodesets: Iterable[NodeSet], clusters: Collection[str]) -> str:
    """Return why *nodeset* is not carried out; nothing if it is."""
    cluster = nodeset.spec.cluster
    if cluster not in clusters:
        return f"Slurm cluster {cluster!r} is not one of ours: {', '.join(sorted(clusters))}"
    holder = cluster_holders(nodesets).get(cluster, nodeset.metadata.namespace)
    if holder != nodeset.metadata.namespace:
        return f"Slurm cluster {cluster!r} is that of namespace {holder}"
    return ""


def cluster_holders(nodesets: Iterable[NodeSet]) -> Mapping[str, str]:
    """Return the namespace that each Slurm cluster's name belongs to."""

    def age(nodeset: NodeSet) -> tuple[bool, float, str]:
        created = nodeset.metadata.creation_timestamp
        return created is None, created.timestamp() if created else 0.0, nodeset.key

    holders: dict[str, str] = {}
    for nodeset in sorted(nodesets, key=age):
        holders.setdefault(nodeset.spec.cluster, nodeset.metadata.namespace)
    return holders
