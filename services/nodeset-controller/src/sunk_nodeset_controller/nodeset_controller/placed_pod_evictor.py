"""Evicts the Pods that Slurm has placed on nodes which an update empties.

What must stay true: an Event says why before the eviction, once for each Pod, however often the eviction is
refused; nothing is remembered of Pods that are no longer to be evicted.
"""

import logging
from collections.abc import Iterable

from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.nodesets.eviction import update_event
from sunk_nodeset_controller.nodesets.model import Action, EvictPlacedPod
from sunk_runtime.errors import LostLeadershipError, SunkError

log = logging.getLogger(__name__)


class PlacedPodEvictor:
    """Evicts Pods, and remembers whose Events are recorded."""

    def __init__(self, kube: FencedKube) -> None:
        self._kube = kube
        self._reported: dict[str, frozenset[str]] = {}
        """By key of a NodeSet: the uids of Pods."""

    def begin(self, key: str, actions: Iterable[Action]) -> None:
        """Forget the Pods that the NodeSet *key* is not to evict by *actions*."""
        wanted = {one.uid for one in actions if isinstance(one, EvictPlacedPod)}
        if kept := self._reported.pop(key, frozenset()) & wanted:
            self._reported[key] = kept

    def forget(self, key: str) -> None:
        """Forget a NodeSet that is gone."""
        self._reported.pop(key, None)

    async def evict(self, key: str, placed_pod: EvictPlacedPod) -> str:
        """Evict a Pod for the NodeSet *key*; return why it need not go now, or nothing.

        Whatever forbids it (one budget, two, a webhook) is asked again.
        """
        pod, reported = f"{placed_pod.namespace}/{placed_pod.name}", self._reported.get(key, frozenset())
        try:
            if placed_pod.uid not in reported and await self._kube.record_end(
                placed_pod.namespace, placed_pod.name, placed_pod.uid, update_event(key, placed_pod)
            ):
                # Others of this NodeSet may have been added meanwhile.
                self._reported[key] = self._reported.get(key, frozenset()) | {placed_pod.uid}
            await self._kube.evict_pod(placed_pod.namespace, placed_pod.name, placed_pod.uid)
        except LostLeadershipError:
            raise
        except SunkError as error:
            log.info("eviction waits", extra={"nodeset": key, "pod": pod, "error": str(error)})
            return str(error)
        log.info("placed pod evicted", extra={"nodeset": key, "pod": pod})
        return ""
