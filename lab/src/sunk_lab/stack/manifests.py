"""What the stack itself applies: the NodeSet over the compute Nodes. Pure."""

from typing import Final

from sunk_lab.stack.raw import Object

COMPUTE_LABEL: Final = "lab.sunk/compute"


def nodeset(cluster: str, namespace: str, template: Object) -> Object:
    """Return a NodeSet of *template* over every Node that carries the compute label."""
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": COMPUTE_LABEL, "operator": "In", "values": ["true"]}]}
                ]
            }
        }
    }
    spec = {**template["spec"], "affinity": affinity}
    return {
        "apiVersion": "sunk.coreweave.com/v1alpha1",
        "kind": "NodeSet",
        "metadata": {"name": "gpu", "namespace": namespace},
        "spec": {"cluster": cluster, "template": {**template, "spec": spec}},
    }
