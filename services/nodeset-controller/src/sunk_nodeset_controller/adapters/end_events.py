"""Events on users' Pods that are about to end, and on their controllers.

What must stay true: an Event is there before the Pod is asked to go; one that the API server refuses, or does
not take in time, keeps no Pod; of what a tenant writes in a reference to a controller, only what is short and
printable is sent.
"""

import logging
import time
from collections.abc import Sequence
from typing import Final

import anyio

from sunk_kube.bodies import EventText
from sunk_kube.client import KubeClient
from sunk_kube.owners import controllers_of
from sunk_kube.pods import Pod
from sunk_kube.resources import PODS
from sunk_runtime.errors import PermanentError, SunkError
from sunk_runtime.together import each

log = logging.getLogger(__name__)

LAST_WORDS_S: Final = 1.0
"""How long an API server that does not answer may keep a Pod."""
EACH_S: Final = 0.02
"""So much longer for each of many Pods that go together."""
LAST_WORDS_MAX_S: Final = 5.0
QUIET_S: Final = 30.0
"""After Events that were not taken in time: Pods go without, for each would be kept as long."""
AT_ONCE: Final = 16
"""Events under way for all Nodes: locks need the other connections."""

PodEnd = tuple[Pod, EventText]
"""A Pod that is about to end, and why."""


class EndEvents:
    """Records why Pods end, and rests where that takes too long."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._places = anyio.CapacityLimiter(AT_ONCE)
        self._quiet_until = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether none is recorded now, because others were not taken in time."""
        return time.monotonic() < self._quiet_until

    async def record(self, ends: Sequence[PodEnd]) -> frozenset[str]:
        """Record on each Pod, and on its controller, why it is about to end.

        Returns:
            The uids of the Pods whose Events the API server has, or refuses for good: none is worth another
            try.
        """
        if self.is_quiet:
            return frozenset()
        done = set[str]()

        async def record(end: PodEnd) -> None:
            async with self._places:
                if await self._is_done(*end):
                    done.add(end[0].metadata.uid)

        with anyio.move_on_after(min(LAST_WORDS_S + EACH_S * len(ends), LAST_WORDS_MAX_S)) as limit:
            await each(ends, record)
        if limit.cancelled_caught:
            self.rest(len(ends) - len(done))
        return frozenset(done)

    def rest(self, pods: int) -> None:
        """Record none for a while: those of so many *pods* were not taken in time."""
        self._quiet_until = time.monotonic() + QUIET_S
        log.warning("events not recorded in time", extra={"pods": pods, "rests_s": QUIET_S})

    async def _is_done(self, pod: Pod, text: EventText) -> bool:
        for resource, about in ((PODS, pod), *controllers_of(pod)):
            try:
                await self._client.record(resource, about, text)
            except SunkError as error:
                fields = {"object": about.key, "reason": text.reason, "error": str(error)}
                log.warning("event not recorded", extra=fields)
                if not isinstance(error, PermanentError):
                    return False
        return True
