"""Pods whose `spec.schedulerName` no pod-scheduler serves in their namespace: what there is to say of them.

A scheduler of another project may serve the name, which nothing here can know: so a name that is not ours is
spoken of only where, after a long time, no scheduler has said anything about the Pod.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from sunk_kube.objects import condition
from sunk_kube.pods import Pod
from sunk_pod_scheduler.placement.end_reasons import plain
from sunk_pod_scheduler.podspec.scopes import PodScope
from sunk_pod_scheduler.reasons import PodReason

OUT_OF_SCOPE_S: Final = 10.0
"""How long a Pod waits that names one of us outside that one's scope, before it is told."""
UNKNOWN_S: Final = 300.0
"""How long a Pod waits that names no scheduler that we know."""
_SHOWN: Final = 80
_SHOWN_NAMES: Final = 8


class Unserved(msgspec.Struct, frozen=True, kw_only=True):
    """What to say of a Pod, and from when on."""

    reason: PodReason
    text: str
    due: datetime | None
    """None: its creation is not known."""


def unserved(pod: Pod, scopes: Iterable[PodScope]) -> Unserved | None:
    """Return what to say of *pod*, which has no Node; None where a scheduler of *scopes* serves it.

    *scopes*: of all pod-schedulers, also of those that do not run at the moment.
    """
    name, namespace = pod.spec.scheduler_name, pod.metadata.namespace
    known = list(scopes)
    with_name = [scope for scope in known if name in scope.names]
    is_served = any(_is_in(scope, namespace) for scope in with_name)
    if is_served or pod.spec.scheduling_gates or pod.spec.node_name or pod.is_over or pod.is_terminating:
        return None
    ours = sorted({one for scope in known if _is_in(scope, namespace) for one in scope.names})
    here = f"pod-schedulers that serve it: {', '.join(ours[:_SHOWN_NAMES]) or 'none'}"
    if with_name:
        scope = min(with_name, key=lambda one: one.cluster)
        # Not which namespaces it serves: those of other tenants may be none of this one's business.
        text = f"scheduler {name} of cluster {scope.cluster} does not serve namespace {namespace}"
        return Unserved(
            reason=PodReason.SCHEDULER_OUT_OF_SCOPE,
            text=plain(f"{text}; {here}"),
            due=_due(pod, OUT_OF_SCOPE_S),
        )
    if condition(pod.status.conditions, "PodScheduled") is not None:
        return None
    text = f"no pod-scheduler has the name {name[:_SHOWN]}, and no other scheduler has reported on this Pod"
    return Unserved(
        reason=PodReason.SCHEDULER_UNKNOWN,
        text=plain(f"{text}; in namespace {namespace}, {here}"),
        due=_due(pod, UNKNOWN_S),
    )


def _is_in(scope: PodScope, namespace: str) -> bool:
    return scope.namespaces is None or namespace in scope.namespaces


def _due(pod: Pod, after_s: float) -> datetime | None:
    created = pod.metadata.creation_timestamp
    return None if created is None else created + timedelta(seconds=after_s)
