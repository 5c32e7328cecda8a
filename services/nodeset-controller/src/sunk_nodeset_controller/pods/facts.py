"""What happened to a NodeSet Pod between two states of it; pure."""

from datetime import datetime

import msgspec

from sunk_events.base import Event, event_id, source
from sunk_events.nodesets import (
    KubePodState,
    NodeCordoned,
    NodeCordonSnapshot,
    NodeUncordoned,
    PodGone,
    PodNotReady,
    PodReady,
    PodSnapshot,
    PodTerminating,
)

AnyPodFact = type[PodReady] | type[PodNotReady] | type[PodTerminating] | type[PodGone]
AnyNodeFact = type[NodeCordoned] | type[NodeUncordoned]


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """Who tells, of what revision."""

    cluster: str
    service: str
    revision: int
    """Of the state that is replaced; 0 where there was none."""
    now: datetime


def facts(before: KubePodState | None, after: KubePodState | None, telling: Telling) -> tuple[Event, ...]:
    """Return the facts that lead from *before* to *after*, in the order in which they happened."""
    found: list[Event] = []
    if before is not None and before.phase != "gone" and (after is None or _is_gone(before, after)):
        found.append(_pod_fact(PodGone, before, telling))
    if after is not None:
        same = before if before is not None and before.uid == after.uid else None
        if after.phase == "terminating" and (same is None or same.phase != "terminating"):
            found.append(_pod_fact(PodTerminating, after, telling))
        if after.phase != "gone" and (same is None or same.is_ready != after.is_ready):
            found.append(_pod_fact(PodReady if after.is_ready else PodNotReady, after, telling))
        if after.is_cordoned != (before is not None and before.is_cordoned):
            found.append(_node_fact(NodeCordoned if after.is_cordoned else NodeUncordoned, after, telling))
    return tuple(found)


def _is_gone(before: KubePodState, after: KubePodState) -> bool:
    return after.phase == "gone" or after.uid != before.uid


def _pod_fact(kind: AnyPodFact, about: KubePodState, telling: Telling) -> Event:
    return kind(
        id=event_id(_snake(kind), about.pod, about.uid, telling.revision),
        source=source(telling.cluster, telling.service),
        subject=about.pod,
        time=telling.now,
        data=PodSnapshot(
            pod=about.pod,
            namespace=about.namespace,
            kube_node=about.kube_node,
            uid=about.uid,
            reason=about.cordon_reason,
        ),
    )


def _node_fact(kind: AnyNodeFact, about: KubePodState, telling: Telling) -> Event:
    return kind(
        id=event_id(_snake(kind), about.kube_node, about.pod, telling.revision),
        source=source(telling.cluster, telling.service),
        subject=about.kube_node,
        time=telling.now,
        data=NodeCordonSnapshot(kube_node=about.kube_node, pod=about.pod, reason=about.cordon_reason),
    )


def _snake(kind: type[Event]) -> str:
    return str(kind.__struct_config__.tag).rpartition(".")[2]
