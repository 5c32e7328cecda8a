"""Events on Pods, each when there is time for it: no Pod waits to be placed for words about another.

An Event costs the API server as much as a binding does, so in a burst of Pods they come late, by some
seconds. What must stay true: they are said in their order, and each has the time of what it tells; one that
waits is lost only with the process, or where the API server does not take it.
"""

import logging
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import anyio
import msgspec

from sunk_kube.bodies import EventText
from sunk_kube.client import KubeClient
from sunk_kube.objects import KubeObject
from sunk_kube.owners import controllers_of
from sunk_kube.pods import Pod
from sunk_kube.resources import PODS, Resource
from sunk_runtime.errors import SunkError
from sunk_runtime.together import each

log = logging.getLogger(__name__)

EVERY_S: Final = 0.1
"""The rest between two while few wait."""
LATE_S: Final = 15.0
"""As many wait as are said within about so long."""
WAITING_MAX: Final = 20_000
"""The oldest are given up where the API server takes none for long."""
LAST_WORDS_S: Final = 2.0
"""How long a Pod that must go may be kept until it is said why."""
EACH_S: Final = 0.02
"""So much longer for each of many Pods that go together."""
LAST_WORDS_MAX_S: Final = 10.0
FAREWELL_S: Final = 3.0
"""How long a process that ends goes on to say what waits."""


class _QueuedEvent(msgspec.Struct, frozen=True):
    pod: Pod
    text: EventText
    at: datetime


class EventRecorder:
    """Says Events on Pods, one after the other, while it `run`s."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._waiting: deque[_QueuedEvent] = deque(maxlen=WAITING_MAX)
        self._news = anyio.Event()

    def record(self, pod: Pod, text: EventText) -> None:
        """Have *text* said of *pod*, as of now."""
        self._waiting.append(_QueuedEvent(pod, text, datetime.now(UTC)))
        self._news.set()

    async def record_now(self, pods: Sequence[Pod], text: EventText) -> None:
        """Record *text* on *pods* and their controllers, once on each, now; it may fail, and ends in time."""
        about: dict[str, tuple[Resource[Any], KubeObject]] = {}
        for pod in pods:
            about[pod.metadata.uid] = PODS, pod
            about.update({one.metadata.uid: (kind, one) for kind, one in controllers_of(pod)})

        async def record(found: tuple[Resource[Any], KubeObject]) -> None:
            try:
                await self._client.record(*found, text)
            except SunkError as error:
                fields = {"object": found[1].key, "reason": text.reason, "error": str(error)}
                log.warning("event not recorded", extra=fields)

        with anyio.move_on_after(min(LAST_WORDS_S + EACH_S * len(about), LAST_WORDS_MAX_S)) as limit:
            await each(about.values(), record)
        if limit.cancelled_caught:
            log.warning("events not recorded in time", extra={"objects": len(about), "reason": text.reason})

    async def run(self) -> None:
        """Say what waits until cancelled, and then the rest."""
        try:
            while True:
                while self._waiting:
                    await self._record_next()
                    await anyio.sleep(min(EVERY_S, LATE_S / (len(self._waiting) + 1)))
                self._news = anyio.Event()
                await self._news.wait()
        finally:
            with anyio.move_on_after(FAREWELL_S, shield=True):
                while self._waiting:
                    await self._record_next()

    async def _record_next(self) -> None:
        """Say the oldest; that it could not be said must not hold up the others."""
        queued = self._waiting[0]
        try:
            await self._client.record(PODS, queued.pod, queued.text, at=queued.at)
        except SunkError as error:
            log.warning("event not recorded", extra={"pod": queued.pod.key, "error": str(error)})
        if self._waiting and self._waiting[0] is queued:  # Else it was given up meanwhile.
            self._waiting.popleft()
