"""What a NodeSet Pod says, as conditions, labels and an annotation of its Node; pure.

Source: SUNK's documents, Node Controller. `SlurmCordon` is True only for drains that were born in Slurm.
"""

from typing import Final

from sunk_kube import wellknown as wk
from sunk_kube.objects import Condition, Node, condition
from sunk_kube.pods import Pod
from sunk_nodeset_controller.metadata import MetadataPatch, cut
from sunk_nodeset_controller.reasons import NodeReason

MIRRORED: Final = (
    wk.CONDITION_SLURM_DRAIN,
    wk.CONDITION_SLURM_RUNNING,
    wk.CONDITION_SLURM_NOT_RESPONDING,
)
KUBERNETES_PREFIX: Final = "k8s:"
"""How a drain's reason begins that came from Kubernetes."""
LABELS: Final = (wk.LABEL_NODESET, wk.LABEL_NAMESPACE, wk.LABEL_CLUSTER, wk.LABEL_POD)
"""What says of a Node whose it is."""


def marks(node: Node, pod: Pod | None, *, is_wanted: bool) -> MetadataPatch:
    """Return what *node* shall bear.

    Args:
        node: A Node.
        pod: The NodeSet Pod on it.
        is_wanted: A NodeSet that has no Pod on it now will have one again.
    """
    if pod is not None:
        return _of(pod)
    if not any(label in node.metadata.labels for label in LABELS):
        return MetadataPatch()
    if is_wanted:  # Its labels stay: they also keep the name for the next Pod.
        return MetadataPatch(
            annotations={wk.ANNOTATION_DRAIN: None}, conditions=_unknown(NodeReason.POD_GONE)
        )
    return MetadataPatch(
        labels=dict.fromkeys(LABELS),
        annotations={wk.ANNOTATION_DRAIN: None},
        removed=(*MIRRORED, wk.CONDITION_SLURM_CORDON),
    )


def _of(pod: Pod) -> MetadataPatch:
    meta = pod.metadata
    drain = condition(pod.status.conditions, wk.CONDITION_SLURM_DRAIN)
    annotations: dict[str, str | None] = {
        wk.ANNOTATION_DRAIN: cut(drain.message) if drain is not None and drain.status == "True" else None
    }
    if drain is not None and drain.reason == str(NodeReason.NO_NEWS):  # No news is not undrained.
        annotations = {}
    return MetadataPatch(
        labels={
            wk.LABEL_NODESET: meta.labels.get(wk.LABEL_NODESET),
            wk.LABEL_NAMESPACE: meta.namespace,
            wk.LABEL_CLUSTER: meta.labels.get(wk.LABEL_CLUSTER),
            wk.LABEL_POD: meta.name,
        },
        annotations=annotations,
        conditions=(*(_mirror(pod, kind) for kind in MIRRORED), _cordon(drain)),
    )


def _mirror(pod: Pod, kind: str) -> Condition:
    found = condition(pod.status.conditions, kind)
    if found is None:
        return NodeReason.NO_POD_STATE.condition(kind, "Unknown")
    return Condition(type=kind, status=found.status, reason=found.reason, message=found.message)


def _cordon(drain: Condition | None) -> Condition:
    kind = wk.CONDITION_SLURM_CORDON
    if drain is None or drain.status == "Unknown":
        is_silent = drain is not None and drain.reason == str(NodeReason.NO_NEWS)
        reason = NodeReason.NO_NEWS if is_silent else NodeReason.NO_POD_STATE
        return reason.condition(kind, "Unknown")
    if drain.status == "True" and not drain.message.startswith(KUBERNETES_PREFIX):
        return NodeReason.DRAINED_IN_SLURM.condition(kind, "True", drain.message)
    return NodeReason.NOT_DRAINED_IN_SLURM.condition(kind, "False")


def _unknown(reason: NodeReason) -> tuple[Condition, ...]:
    kinds = (*MIRRORED, wk.CONDITION_SLURM_CORDON)
    return tuple(reason.condition(kind, "Unknown") for kind in kinds)
