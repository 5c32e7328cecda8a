"""What an earlier NodeSet of the same name has left behind is taken over, as a ReplicaSet takes Pods over.

What must stay true: nothing is taken from anybody: only what has no controller, bears our labels, is of the
same Slurm cluster and has not changed since it was looked at; a Node that has a Pod of the set gets no other;
a NodeSet that is being deleted takes nothing: what its deletion has orphaned would go with it.

Source: Kubernetes, "Garbage Collection", orphaned dependents; ReplicaSet, adoption.
"""

import logging
import time
from typing import Any, Final

from sunk_kube.errors import KubeRejectedError
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import KubeObject
from sunk_kube.resources import NODESLICES, PODS, Resource
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.nodesets.owners import is_orphan_of, is_owned
from sunk_nodeset_controller.nodesets.template import pinned_node

log = logging.getLogger(__name__)

REFUSED_AGAIN_S: Final = 300.0
"""When to ask again for what the API server did not let us take: a rule may change, and nothing tells us."""


class Adoption:
    """Takes Pods and slices over; `Revisions` does so for templates."""

    def __init__(self, views: KubeViews, kube: FencedKube) -> None:
        self._views = views
        self._kube = kube
        self._refused: dict[str, dict[str, float]] = {}
        """By key of a NodeSet and uid, what we were not let take: until when it is not asked for again."""

    def forget(self, key: str) -> None:
        """Forget what was refused to a NodeSet that is gone."""
        self._refused.pop(key, None)

    async def adopt(self, nodeset: NodeSet) -> int:
        """Take over what is there for *nodeset*, and return how much that was."""
        pods = self._views.pods_of.of(nodeset.key)
        orphans = [pod for pod in pods if is_orphan_of(pod, nodeset)]
        # Asked at each turn, and hardly ever are there any: what only orphans need is not worked out for all.
        had = {pinned_node(pod) for pod in pods if is_owned(pod, nodeset)} if orphans else set[str]()
        count = 0
        for pod in orphans:
            if pinned_node(pod) not in had and await self._take(PODS, pod, nodeset):
                had.add(pinned_node(pod))
                count += 1
        for one in self._views.slices_of.of(nodeset.key):
            count += await self._take(NODESLICES, one, nodeset)
        return count

    async def _take(self, resource: Resource[Any], found: KubeObject, nodeset: NodeSet) -> bool:
        refused, now = self._refused.get(nodeset.key, {}), time.monotonic()
        if not is_orphan_of(found, nodeset) or refused.get(found.metadata.uid, now) > now:
            return False
        try:
            await self._kube.adopt(resource, found, nodeset)
        except KubeRejectedError as error:
            kept = {uid: until for uid, until in refused.items() if until > now}
            self._refused[nodeset.key] = {**kept, found.metadata.uid: now + REFUSED_AGAIN_S}
            log.warning(
                "orphan refused", extra={"nodeset": nodeset.key, "object": found.key, "error": str(error)}
            )
            return False
        log.info("orphan adopted", extra={"nodeset": nodeset.key, "object": found.key})
        return True
