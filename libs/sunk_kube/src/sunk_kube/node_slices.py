"""The NodeSlice, as its manifest spells it: some of the Nodes behind a NodeSet. Its CRD is made from it."""

from typing import Annotated, Final

from msgspec import Meta

from sunk_kube.objects import KubeObject, KubeStruct

SLICE_MAX: Final = 100
"""Entries of one NodeSlice."""


class NodeSliceEntry(KubeStruct, frozen=True):
    """One Node that a NodeSet has, or has had, and the name that was chosen for it."""

    name: Annotated[str, Meta(max_length=63, description="Name of the Slurm node and of its Pod.")]
    kube_node: Annotated[str, Meta(max_length=253, description="The Kubernetes Node's name.")]
    released: Annotated[
        bool,
        Meta(
            description="The Node no longer belongs to the NodeSet. The name is kept as long as the Node "
            "exists."
        ),
    ] = False
    failures: Annotated[
        int,
        Meta(
            ge=0,
            description="How many Pods in a row ended on this Node although no client deleted them. "
            "The next Pod waits longer after each.",
        ),
    ] = 0
    failed: Annotated[
        str, Meta(max_length=63, description="The uid of the last of these Pods, so that it is counted once.")
    ] = ""


class NodeSlice(KubeObject, frozen=True):
    """Some of the Nodes behind a NodeSet. Written by nodeset-controller alone."""

    cluster: Annotated[str, Meta(description="The Slurm cluster's name.")] = ""
    node_set: Annotated[str, Meta(description="The NodeSet's name.")] = ""
    nodes: Annotated[
        tuple[NodeSliceEntry, ...],
        Meta(
            max_length=SLICE_MAX,
            description="The Nodes, sorted by the name of their Slurm node.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
