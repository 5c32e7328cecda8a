"""What a NodeSet Pod shows of its Node: cordon, lock, features, verification. Pure.

Source: SUNK's documents, Pod Controller.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.nodesets import Condition as BusCondition
from sunk_kube import wellknown as wk
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Condition, Node, condition
from sunk_kube.pods import Pod
from sunk_nodeset_controller.metadata import MetadataPatch, cut
from sunk_nodeset_controller.nodesets.template import features

NO_REASON: Final = "no reason given"
NEVER: Final = datetime.min.replace(tzinfo=UTC)
ALWAYS: Final = datetime.max.replace(tzinfo=UTC)
CONDITIONS_MAX: Final = 32
FEATURES_CHARS_MAX: Final = 16 * 1024
"""Of the annotation with a Pod's features: a NodeSet's 128 fit, each with all that it may consist of."""
UNTOLD: Final = frozenset(
    {
        wk.CONDITION_SLURM_DRAIN,
        wk.CONDITION_SLURM_RUNNING,
        wk.CONDITION_SLURM_NOT_RESPONDING,
        wk.CONDITION_SLURM_CORDON,
        "ContainersReady",
        "Initialized",
        "PodReadyToStartContainers",
        "PodScheduled",
    }
)
"""Conditions that others are not told of: Slurm's own would go round in a circle, and those of a Pod's first
steps say no more than Ready."""


def cordon_reason(node: Node) -> str:
    """Return why *node* is cordoned; nothing if it is not."""
    if not node.spec.unschedulable:
        return ""
    given = " ".join(node.metadata.annotations.get(wk.ANNOTATION_CORDON_REASON, "").split())
    return cut(given) or NO_REASON


def verification(node: Node, pod: Pod | None) -> Condition | None:
    """Return the last result of *node*'s health verification: a verifier writes it there or on *pod*."""
    found = (
        condition(one.status.conditions, wk.CONDITION_HPC_VERIFICATION)
        for one in (node, pod)
        if one is not None
    )
    return max(
        (one for one in found if one is not None), key=_reported_at, default=None
    )  # Of equal ones the first.


def verified(node: Node, pod: Pod | None) -> datetime | None:
    """Return when *node* last passed its health verification; None if it did not, or failed since."""
    found = verification(node, pod)
    if found is None or found.status != "True" or _reported_at(found) == NEVER:
        return None
    return _reported_at(found)


def _reported_at(check: Condition) -> datetime:
    """Return when *check* was last reported. A failure without a time counts as newer than any pass."""
    times = (check.last_transition_time, check.last_heartbeat_time, check.last_probe_time)
    unknown = NEVER if check.status == "True" else ALWAYS
    return max((time for time in times if time is not None), default=unknown)


def shown(conditions: Iterable[Condition]) -> tuple[BusCondition, ...]:
    """Return those of a Pod's or Node's *conditions* that belong on the bus, without their heartbeats."""
    published = [
        BusCondition(
            type=one.type,
            status=one.status,
            reason=one.reason[:REASON_MAX],
            message=one.message[:REASON_MAX],
            changed=one.last_transition_time,
        )
        for one in conditions
        if one.type not in UNTOLD
    ]
    return tuple(sorted(published, key=lambda one: one.type)[:CONDITIONS_MAX])


def given_features(pod: Pod) -> tuple[str, ...] | None:
    """Return the features that *pod*'s annotation lists; None: too many of them to be ours."""
    text = pod.metadata.annotations.get(wk.ANNOTATION_FEATURES, "")
    return tuple(filter(None, text.split(","))) if len(text) <= FEATURES_CHARS_MAX else None


def copies(node: Node, pod: Pod, nodeset: NodeSet | None) -> MetadataPatch:
    """Return the labels and annotations that *pod*, the NodeSet Pod on *node*, must have.

    If its NodeSet is gone, its features stay.

    A verification that is newer on the Pod stays, and so does one that the Node does not show.
    """
    annotations: dict[str, str | None] = {
        wk.ANNOTATION_CORDON: cordon_reason(node) or None,
        wk.ANNOTATION_LOCK: node.metadata.annotations.get(wk.ANNOTATION_LOCK),
    }
    if nodeset is not None:
        found = features(nodeset.spec.features, node.metadata.labels)
        annotations[wk.ANNOTATION_FEATURES] = ",".join(found)
    check = condition(node.status.conditions, wk.CONDITION_HPC_VERIFICATION)
    if check is None or _reported_at(check) == NEVER or verification(node, pod) is not check:
        return MetadataPatch(annotations=annotations)
    # Without a time it would be written with the moment of writing: a pass that nobody has made.
    since = check.last_transition_time or check.last_heartbeat_time
    return MetadataPatch(annotations=annotations, conditions=(replace(check, last_transition_time=since),))
