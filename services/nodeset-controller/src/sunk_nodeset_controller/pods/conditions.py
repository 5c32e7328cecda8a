"""The state of a Slurm node as conditions, labels and an annotation of its Pod. Pure.

Source: SUNK's documents, Syncer, "Slurm node status".
"""

from typing import Final

from sunk_events.nodes import SlurmNodeState
from sunk_kube import wellknown as wk
from sunk_kube.objects import Condition
from sunk_nodeset_controller.metadata import MetadataPatch, cut
from sunk_nodeset_controller.reasons import NodeReason

NO_NEWS_MESSAGE: Final = "No news from Slurm for a long time; the NodeSet's condition SlurmKnown has the time"

NOT_IN_SLURM_MESSAGE: Final = "Slurm no longer knows the node"
_NO_LABELS: Final[dict[str, str | None]] = dict.fromkeys(
    (wk.LABEL_RUNNING, wk.LABEL_DRAIN, wk.LABEL_NOT_RESPONDING)
)


def marks(slurm: SlurmNodeState) -> MetadataPatch:
    """Return the conditions, labels and annotation that the Pod of a Slurm node must have."""
    return MetadataPatch(
        labels={
            wk.LABEL_RUNNING: _word(is_true=slurm.is_busy),
            wk.LABEL_DRAIN: _word(is_true=slurm.is_drain),
            wk.LABEL_NOT_RESPONDING: _word(is_true=slurm.is_not_responding),
        },
        annotations={wk.ANNOTATION_DRAIN: cut(slurm.reason) if slurm.is_drain else None},
        conditions=(
            _drain(slurm),
            _running(slurm),
            _not_responding(slurm),
        ),
    )


def unknown() -> MetadataPatch:
    """Return what a Pod must have when Slurm has not answered for long. The reason of its drain stays."""
    return MetadataPatch(labels=_NO_LABELS, conditions=_unknown(NodeReason.NO_NEWS, NO_NEWS_MESSAGE))


def forgotten() -> MetadataPatch:
    """Return what a Pod must have when Slurm answers, but has not known the Pod's node for long."""
    return MetadataPatch(
        labels=_NO_LABELS,
        annotations={wk.ANNOTATION_DRAIN: None},
        conditions=_unknown(NodeReason.NOT_IN_SLURM, NOT_IN_SLURM_MESSAGE),
    )


def _unknown(reason: NodeReason, message: str) -> tuple[Condition, ...]:
    kinds = wk.CONDITION_SLURM_DRAIN, wk.CONDITION_SLURM_RUNNING, wk.CONDITION_SLURM_NOT_RESPONDING
    return tuple(reason.condition(kind, "Unknown", message) for kind in kinds)


def _drain(slurm: SlurmNodeState) -> Condition:
    if not slurm.is_drain:
        return NodeReason.NOT_DRAINED.condition(wk.CONDITION_SLURM_DRAIN, "False")
    reason = NodeReason.DRAINING if slurm.is_busy else NodeReason.DRAINED
    return reason.condition(wk.CONDITION_SLURM_DRAIN, "True", cut(slurm.reason))


def _running(slurm: SlurmNodeState) -> Condition:
    reason, status = (NodeReason.BUSY, "True") if slurm.is_busy else (NodeReason.IDLE, "False")
    return reason.condition(wk.CONDITION_SLURM_RUNNING, status)


def _not_responding(slurm: SlurmNodeState) -> Condition:
    if not slurm.is_not_responding:
        return NodeReason.RESPONDING.condition(wk.CONDITION_SLURM_NOT_RESPONDING, "False")
    words = "+".join((slurm.state, *slurm.flags))
    return NodeReason.NOT_RESPONDING.condition(wk.CONDITION_SLURM_NOT_RESPONDING, "True", words)


def _word(*, is_true: bool) -> str:
    return "true" if is_true else "false"
