"""Says on Pods that no pod-scheduler serves them, once on each, while this one leads and has the common name.

What must stay true: a Pod is told once for as long as this process leads. A new leader says it under the same
name of the Event, which the API server has for an hour: it is said again only where that is over. Pods are
only watched where this scheduler serves Pods itself, so it needs no more rights for that.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from sunk_kube.bodies import EventText
from sunk_kube.client import KubeClient
from sunk_kube.pods import Pod
from sunk_kube.reflector import Reflector
from sunk_kube.resources import PODS
from sunk_pod_scheduler.placement.unserved import unserved
from sunk_pod_scheduler.podspec.scopes import PodScope
from sunk_runtime.changes import Changes
from sunk_runtime.clock import now

SCOPES_LAST: Final = timedelta(seconds=30)
"""One list of the schedulers' Leases serves all Pods that are looked at within so long."""
KUBE_SCHEDULER: Final = "default-scheduler"


def views(kube: KubeClient, namespaces: Iterable[str | None], names: Iterable[str]) -> list[Reflector[Pod]]:
    """Return the Pods without a Node that name neither Kubernetes' own scheduler nor one of *names*."""
    others = [f"spec.schedulerName!={name}" for name in (KUBE_SCHEDULER, *names)]
    fields = ",".join(("spec.nodeName=", "status.phase=Pending", *others))
    return [Reflector(kube, PODS, namespace=namespace, fields=fields) for namespace in namespaces]


class UnservedPods:
    """Looks at Pods that name other schedulers, by ``namespace/name``."""

    def __init__(
        self,
        kube: KubeClient,
        watched: Sequence[Reflector[Pod]],
        scopes: Callable[[], Awaitable[Sequence[PodScope]]],
        check: Callable[[], None],
    ) -> None:
        """Look at the Pods in *watched*.

        Args:
            kube: Where Events are written.
            watched: See `views`.
            scopes: Reads which scheduler serves what, this one included.
            check: Raises once this process may no longer lead.
        """
        self._kube = kube
        self._watched = watched
        self._read = scopes
        self._check = check
        self._scopes: Sequence[PodScope] = ()
        self._scopes_read = datetime.min.replace(tzinfo=UTC)
        self._reported: dict[str, str] = {}
        """The uids of the Pods on which it was reported, by key."""

    @property
    def remembered(self) -> int:
        """Of how many Pods something is remembered."""
        return len(self._reported)

    def changes(self) -> Changes:
        """Return a stream of keys: of all Pods now, then of each that changes or goes."""
        changes = Changes(())
        for view in self._watched:
            view.follow(changes, None)
        return changes

    def keys(self) -> list[str]:
        """Return the keys of all Pods."""
        return [key for view in self._watched for key in view.objects]

    async def look(self, key: str) -> float | None:
        """Say on the Pod *key* that no scheduler serves it, if that is so; return when to look again."""
        pod = next((found for view in self._watched if (found := view.get(key)) is not None), None)
        if pod is None:
            self._reported.pop(key, None)
            return None
        if self._reported.get(key) == pod.metadata.uid:
            return None
        found = unserved(pod, await self._known())
        if found is None or found.due is None:
            return None
        if (left_s := (found.due - now()).total_seconds()) > 0:
            return left_s
        self._check()
        text = EventText(reason=found.reason, action="Scheduling", note=found.text, type="Warning")
        await self._kube.record(PODS, pod, text, at=found.due)  # A moment that each leader computes alike.
        self._reported[key] = pod.metadata.uid
        return None

    async def _known(self) -> Sequence[PodScope]:
        moment = now()
        if moment - self._scopes_read > SCOPES_LAST:
            self._scopes = await self._read()
            self._scopes_read = moment
        return self._scopes
