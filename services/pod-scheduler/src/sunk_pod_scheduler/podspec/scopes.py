"""Which scheduler serves which Pods, where several Slurm clusters share a Kubernetes: each Pod has one.

A scheduler that leads says on its Lease which names it serves, and where. A scheduler that sees another,
alive, serve one of its own names there does not begin; but the name that all have is left to the first.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

ALIAS: Final = "sunk-scheduler"
"""The name that every scheduler has besides its own."""
SILENT: Final = timedelta(seconds=60)
"""One that has not renewed its Lease for so long is dead; far more than a Lease lasts, and clocks differ."""


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
        common = _common(ours, other.pod_scope) if other.is_alive(now) else set[str]()
        if ALIAS in common and set(ours.names) != {ALIAS}:
            ceded = ceded or other.pod_scope.cluster
            common.discard(ALIAS)
        if common:
            names = ", ".join(sorted(common))
            who = f"the pod-scheduler of cluster {other.pod_scope.cluster} (Lease {other.lease})"
            quarrels.append(f"{who} serves {names} in {_where(ours, other.pod_scope)}")
    names = tuple(name for name in ours.names if not ceded or name != ALIAS)
    return Share(names=names, quarrels=tuple(quarrels), ceded=ceded)


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
