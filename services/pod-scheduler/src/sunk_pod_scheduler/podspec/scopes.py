"""Which scheduler serves which Pods, where several Slurm clusters share a Kubernetes: each Pod has one.

A scheduler that leads says on its Lease which names it serves, and where. A scheduler that sees another,
alive, serve one of its own names there does not begin; but the name that all have is left to the first, for
as long as that may come back: new Pods of that name would go to another cluster.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

ALIAS: Final = "sunk-scheduler"
"""The name that every scheduler has besides its own."""
SILENT: Final = timedelta(seconds=60)
"""One that has not renewed its Lease for so long is dead; far more than a Lease lasts, and clocks differ."""
ALIAS_KEPT: Final = timedelta(minutes=10)
"""So long the alias stays with one that does not renew its Lease: the API server may be away, or its Pod may
wait for a Node or for its image. Where its Lease is deleted, the alias is free at once."""


class PodScope(msgspec.Struct, frozen=True, kw_only=True):
    """Which Pods a scheduler takes."""

    cluster: str
    names: tuple[str, ...]
    namespaces: tuple[str, ...] | None = None
    """None: everywhere."""

    def has(self, name: str, namespace: str) -> bool:
        """Whether a Pod of *namespace* whose ``spec.schedulerName`` is *name* is ours."""
        return name in self.names and (self.namespaces is None or namespace in self.namespaces)


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another scheduler, by its Lease."""

    lease: str
    """``namespace/name``."""
    pod_scope: PodScope
    holder: str = ""
    renewed: datetime | None = None

    def is_alive(self, now: datetime) -> bool:
        """Whether it leads, or may; a Lease that was renewed in the future is nobody's who does."""
        return bool(self.holder) and self.renewed is not None and abs(now - self.renewed) < SILENT

    def keeps_alias(self, now: datetime) -> bool:
        """Whether the alias stays with it, if it has the alias: it leads, or may lead again soon."""
        return self.renewed is not None and -SILENT < now - self.renewed < ALIAS_KEPT


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to us."""

    names: tuple[str, ...]
    quarrels: tuple[str, ...] = ()
    """Why we may not begin."""
    ceded: str = ""
    """The scheduler that the alias belongs to; empty: no other."""


def share(ours: PodScope, peers: Iterable[Peer], now: datetime) -> Share:
    """Return which of our names we may serve beside *peers*."""
    quarrels: list[str] = []
    ceded = ""
    for other in peers:
        common = _common(ours, other.pod_scope)
        if ALIAS in common and set(ours.names) != {ALIAS}:
            if other.keeps_alias(now):
                ceded = ceded or other.pod_scope.cluster
            common.discard(ALIAS)
        if common and other.is_alive(now):
            names = ", ".join(sorted(common))
            who = f"the pod-scheduler of cluster {other.pod_scope.cluster} (Lease {other.lease})"
            quarrels.append(f"{who} serves {names} in {_where(ours, other.pod_scope)}")
    names = tuple(name for name in ours.names if not ceded or name != ALIAS)
    return Share(names=names, quarrels=tuple(quarrels), ceded=ceded)


def look_again_s(ours: PodScope, peers: Iterable[Peer], now: datetime, every_s: float) -> float:
    """Return in how many seconds to look whether the alias is free, in steps of *every_s*.

    Two that begin at once each see the other, and both cede. So the first by its cluster's name looks first.
    """
    before = {peer.pod_scope.cluster for peer in peers if peer.is_alive(now)}
    return every_s * (1 + sum(cluster < ours.cluster for cluster in before))


def _common(one: PodScope, other: PodScope) -> set[str]:
    is_apart = (
        one.namespaces is not None
        and other.namespaces is not None
        and not set(one.namespaces) & set(other.namespaces)
    )
    return set() if is_apart else set(one.names) & set(other.names)


def _where(one: PodScope, other: PodScope) -> str:
    if one.namespaces is None and other.namespaces is None:
        return "every namespace too"
    if one.namespaces is None or other.namespaces is None:
        return f"{', '.join(one.namespaces or other.namespaces or ())} too"
    return f"{', '.join(sorted({*one.namespaces} & {*other.namespaces}))} too"
