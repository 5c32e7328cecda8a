"""The GPUs of a Node, as slurmd is to announce them; pure.

What counts is the capacity that the device plugin announces: allocatable is 0 while it starts again. The type
is made of the Node's label by the one rule that pod-scheduler has too. A Node whose label names a model while
it announces no GPU is not read yet: its driver is being installed, its device plugin or its kubelet starts.
slurmd tells Slurm the size of its node once, when it starts, so its Pod is made when the GPUs are known, or
when they were waited for long enough. A Pod that exists keeps what it was made with.

Source: Kubernetes, "Device Plugins"; NVIDIA, GPU Feature Discovery (labels).
"""

from datetime import datetime
from typing import Final

import msgspec

from sunk_kube import wellknown as wk
from sunk_kube.nodesets import NodeSetSpec
from sunk_kube.objects import Node
from sunk_kube.quantity import number
from sunk_nodeset_controller.nodesets.template import Manifest, with_variable
from sunk_slurm.gres import Gres, gpu_type

GPU: Final = "gpu"
"""The name of GPUs among Slurm's GRES."""
VARIABLE: Final = "SUNK_NODE_GRES"
LISTED: Final = "SUNK_NODE_GRES_LISTED"
"""``true``: the generated gres.conf names the devices, which the start of slurmd cannot read yet."""
_LABEL_MAX: Final = 63


class GpuRules(msgspec.Struct, frozen=True, kw_only=True):
    """What GPUs of Nodes are known by."""

    resources: tuple[str, ...] = ("nvidia.com/gpu",)
    """What device plugins call them."""
    labels: tuple[str, ...] = ("gpu.nvidia.com/model", "nvidia.com/gpu.product")
    """Labels whose value is the model: the first that a Node has."""
    wait_s: float = 300.0
    """For how long a Node's Pod waits for GPUs that only a label speaks of."""
    is_listed: bool = False
    """The generated gres.conf names the devices of GPUs, so that Slurm does not look for them itself."""


def advertised(node: Node, resource: str) -> int:
    """Return how many of *resource* a Node says that it has."""
    status = node.status
    quantity = status.capacity.get(resource, status.allocatable.get(resource))
    return int(number(quantity)) if quantity is not None else 0


def model(node: Node, labels: tuple[str, ...]) -> str:
    """Return what a Node's labels call its GPUs; empty where they do not say."""
    return next((value for label in labels if (value := node.metadata.labels.get(label))), "")


def gpus_of(node: Node, spec: NodeSetSpec, rules: GpuRules) -> Gres | None:
    """Return the GPUs that slurmd on *node* announces, for a set that has them from its Nodes; None: none."""
    if spec.gpus != "FromNode":
        return None
    count = sum(advertised(node, resource) for resource in rules.resources)
    return Gres(GPU, gpu_type(model(node, rules.labels), spec.gpu_types), count) if count > 0 else None


def is_unread(node: Node, spec: NodeSetSpec, rules: GpuRules) -> bool:
    """Whether a label of *node* speaks of GPUs that the set should have and the Node does not announce."""
    if spec.gpus != "FromNode" or not rules.resources or not model(node, rules.labels):
        return False
    return gpus_of(node, spec, rules) is None


def waits_since(node: Node, published: datetime | None, now: datetime) -> datetime:
    """Return since when the Pod on *node*, which is unread, waits; *published*: what its NodeSet says.

    That may be of an earlier Node of that name, or of a clock that was ahead.
    """
    created = node.metadata.creation_timestamp
    if published is None or published > now or (created is not None and published < created):
        return now
    return published


def waits_for(node: Node, rules: GpuRules) -> str:
    """Return what the Pod on *node*, which is unread, waits for."""
    label = next(label for label in rules.labels if node.metadata.labels.get(label))
    what = " or ".join(rules.resources)
    return f"its device plugin announces no {what} yet, though label {label} is {node.metadata.labels[label]}"


def with_gpus(made: Manifest, gpus: Gres | None, *, is_listed: bool = False) -> Manifest:
    """Return the Pod *made* with the variable by which slurmd learns of *gpus*, and a label that says so.

    *is_listed*: as in `GpuRules`.
    """
    if gpus is None:
        return made
    listed = with_variable(made, LISTED, "true") if is_listed else made
    spec = with_variable(listed, VARIABLE, str(gpus))["spec"]
    label = {wk.LABEL_GRES_GPU: _label_value(gpus)}
    return {
        **made,
        "metadata": {**made["metadata"], "labels": label | made["metadata"]["labels"]},
        "spec": spec,
    }


def _label_value(gpus: Gres) -> str:
    """Return ``h100-8``, as long as a label may be: a refused Pod keeps others from being made."""
    count = str(gpus.count)
    kind = gpus.kind.lstrip("_.-")[: _LABEL_MAX - len(count) - 1]
    return f"{kind}-{count}" if kind else count
