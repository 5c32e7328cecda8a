"""What happened to a NodeSet Pod between two states of it; pure."""

from collections.abc import Iterator
from datetime import datetime
from typing import TypeGuard

import msgspec

from sunk_events.base import Event, event_id, source, type_name
from sunk_events.nodesets import (
    KubePodState,
    NodeCordoned,
    NodeCordonSnapshot,
    NodeUncordoned,
    NodeVerification,
    NodeVerified,
    PodCondemned,
    PodGone,
    PodNotReady,
    PodReady,
    PodSnapshot,
    PodSpared,
    PodTerminating,
)

AnyPodFact = (
    type[PodReady]
    | type[PodNotReady]
    | type[PodCondemned]
    | type[PodSpared]
    | type[PodTerminating]
    | type[PodGone]
)
AnyNodeFact = type[NodeCordoned] | type[NodeUncordoned]


class FactContext(msgspec.Struct, frozen=True, kw_only=True):
    """The service that publishes the facts, and the revision that they are about."""

    cluster: str
    service: str
    revision: int
    """The revision of the state that is replaced; 0 if there was none."""
    now: datetime
    condemned_for: str = ""
    """Why the Pod must be deleted; empty if it need not."""


def facts(before: KubePodState | None, after: KubePodState | None, context: FactContext) -> tuple[Event, ...]:
    """Return the facts that lead from *before* to *after*, in the order in which they happened."""
    found: list[Event] = []
    if before is not None and before.phase != "gone" and (after is None or _is_gone(before, after)):
        found.append(_pod_fact(PodGone, before, context))
    if after is not None:
        found += _of_pod(before if before is not None and before.uid == after.uid else None, after, context)
        found += _of_node(before, after, context)
    return tuple(found)


def _of_pod(before: KubePodState | None, after: KubePodState, context: FactContext) -> Iterator[Event]:
    """Yield what happened to the Pod; *before* is of the same one."""
    is_present = after.phase != "gone"
    was_condemned = before is not None and before.is_condemned
    if after.is_condemned and not was_condemned:
        yield _pod_fact(PodCondemned, after, context, context.condemned_for)
    if was_condemned and not after.is_condemned and is_present:
        yield _pod_fact(PodSpared, after, context)
    if after.phase == "terminating" and (before is None or before.phase != "terminating"):
        yield _pod_fact(PodTerminating, after, context)
    if is_present and (before is None or before.is_ready != after.is_ready):
        if after.is_ready:
            yield _pod_fact(PodReady, after, context)
        else:
            yield _pod_fact(PodNotReady, after, context, _why_not_ready(after))


def _of_node(before: KubePodState | None, after: KubePodState, context: FactContext) -> Iterator[Event]:
    """Yield what happened to the Node."""
    if after.is_cordoned != (before is not None and before.is_cordoned):
        yield _node_fact(NodeCordoned if after.is_cordoned else NodeUncordoned, after, context)
    if before is not None and _is_newer(after.hpc_verified, before.hpc_verified):
        yield _verified(after, after.hpc_verified, context)


def _is_newer(after: datetime | None, before: datetime | None) -> TypeGuard[datetime]:
    return after is not None and (before is None or after > before)


def _why_not_ready(about: KubePodState) -> str:
    return next((one.message or one.reason for one in about.conditions if one.type == "Ready"), "")


def _is_gone(before: KubePodState, after: KubePodState) -> bool:
    return after.phase == "gone" or after.uid != before.uid


def _pod_fact(kind: AnyPodFact, about: KubePodState, context: FactContext, reason: str = "") -> Event:
    return kind(
        id=event_id(type_name(kind), about.pod, about.uid, context.revision),
        source=source(context.cluster, context.service),
        subject=about.pod,
        time=context.now,
        data=PodSnapshot(
            pod=about.pod,
            namespace=about.namespace,
            kube_node=about.kube_node,
            uid=about.uid,
            reason=reason,
        ),
    )


def _verified(about: KubePodState, when: datetime, context: FactContext) -> Event:
    return NodeVerified(
        id=event_id(type_name(NodeVerified), about.kube_node, about.pod, context.revision),
        source=source(context.cluster, context.service),
        subject=about.kube_node,
        time=context.now,
        data=NodeVerification(kube_node=about.kube_node, pod=about.pod, verified=when),
    )


def _node_fact(kind: AnyNodeFact, about: KubePodState, context: FactContext) -> Event:
    return kind(
        id=event_id(type_name(kind), about.kube_node, about.pod, context.revision),
        source=source(context.cluster, context.service),
        subject=about.kube_node,
        time=context.now,
        data=NodeCordonSnapshot(kube_node=about.kube_node, pod=about.pod, reason=about.cordon_reason),
    )
