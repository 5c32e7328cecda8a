"""One kind of object followed by watches, each from where the last one ended.

What must stay true: a watch that fails costs a pause and goes on where it was; where it can not, the follower
begins again, and knows that anything may have happened; a connection that died without a word is noticed.

Source: Kubernetes API Concepts, "Efficient detection of changes", "410 Gone responses", "Watch bookmarks".
"""

import logging
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Final, Generic, Protocol, TypeVar

import anyio
import msgspec

from sunk_kube.answers import Status, refusal
from sunk_kube.bodies import selectors
from sunk_kube.client import KubeClient
from sunk_kube.depth import cut_deep
from sunk_kube.errors import KubeBusyError, KubeGoneError, KubeUnavailableError
from sunk_kube.metrics import VIEW_CONTACT
from sunk_kube.objects import KubeObject
from sunk_kube.resources import Resource
from sunk_runtime.backoff import doubled
from sunk_runtime.errors import SunkError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)
T_contra = TypeVar("T_contra", bound=KubeObject, contravariant=True)

WATCH_S: Final = (60.0, 90.0)
"""How long one watch lasts. Short: that a connection died without a word is noticed at its end only."""
SILENCE_MARGIN_S: Final = 5.0
STALE_S: Final = WATCH_S[1] + 2 * SILENCE_MARGIN_S
"""Where nothing changes, the API server says something at least when a watch begins. After a longer silence
it is not known what has changed."""
SHORTEST_S: Final = 1.0
"""A watch that ends before is a failure, though it ends well: to begin again at once would be a hot loop."""
BACKOFF_FIRST_S: Final = 0.5
BACKOFF_LAST_S: Final = 30.0


class _WatchEvent(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_events: Final = msgspec.json.Decoder(_WatchEvent)
_statuses: Final = msgspec.json.Decoder(Status)
_marks: Final = msgspec.json.Decoder(KubeObject)


class Changed(Protocol[T_contra]):
    """Takes over what a watch tells of one object."""

    def __call__(self, found: T_contra, *, is_gone: bool) -> None:
        """Take *found* over, which came or changed, or *is_gone*."""
        ...


class Following(Generic[T]):
    """Watches of one kind, one after the other, by `run`."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource[T],
        *,
        begin: Callable[[], Awaitable[str]],
        changed: Changed[T],
        namespace: str | None = None,
        fields: str = "",
        labels: str = "",
        watch_s: tuple[float, float] = WATCH_S,
    ) -> None:
        """Describe what is followed.

        Args:
            client: Calls of the API server.
            resource: The kind; its struct may be of the few fields that are looked at.
            begin: Called at the start and after each gap; returns the resourceVersion to watch from.
            changed: Called with each object that came, changed or went.
            namespace: The namespace; None: all.
            fields: A field selector.
            labels: A label selector.
            watch_s: How long one watch lasts, at least and at most.
        """
        self.resource = resource
        self._client = client
        self._begin = begin
        self._changed = changed
        self._namespace = namespace
        self._selectors = selectors(fields, labels)
        self._watch_s = watch_s
        self._decoder = msgspec.json.Decoder(resource.struct)
        self._last_contact = time.monotonic()
        self._failures = 0
        self._at = ""
        """The version that was reached; empty: it has to begin."""

    @property
    def age_s(self) -> float:
        """Seconds since the API server last said something."""
        return time.monotonic() - self._last_contact

    def note_contact(self) -> None:
        """Note that the API server has just said something."""
        self._last_contact = time.monotonic()
        VIEW_CONTACT.labels(self.resource.plural).set_to_current_time()

    async def run(self) -> None:
        """Begin, follow, and begin again after each gap, until cancelled."""
        while True:
            try:
                if not self._at:
                    self._at = await self._begin()
                await self._follow()
            except KubeGoneError as error:
                self._at = ""
                await self._pause("view reads again", error)
            except SunkError as error:  # Refusals too: a right may be granted, a definition installed.
                await self._pause("view waits", error)

    async def _follow(self) -> None:
        """Follow one watch to its end, from where we are."""
        lasts_s = random.uniform(*self._watch_s)  # noqa: S311 - spreads a fleet, no secret
        query = {
            "resourceVersion": self._at,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(lasts_s)),
            **self._selectors,
        }
        silence_s, began = lasts_s + SILENCE_MARGIN_S, time.monotonic()
        async with self._client.watch(self.resource, self._namespace, query, silence_s=silence_s) as chunks:
            self.note_contact()
            async for line in split_lines(chunks):
                self._at = self._take(line)
                self._failures = 0
                self.note_contact()
        if time.monotonic() - began < SHORTEST_S:
            raise KubeUnavailableError(f"watch {self.resource.plural}: ended at once")

    def _take(self, line: bytes) -> str:
        """Take one event over and return its version.

        Raises:
            KubeGoneError: the version that we watch from is too old.
            KubeUnavailableError: the API server ends the watch, or this is no event.
        """
        try:
            try:
                event, found = self._read(line)
            except RecursionError:
                event, found = self._read(cut_deep(line))
            if found is None:
                return version_of(_marks.decode(event.object))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise KubeUnavailableError(f"watch {self.resource.plural}: no event: {error}") from error
        self._changed(found, is_gone=event.type == "DELETED")
        return version_of(found)

    def _read(self, line: bytes) -> tuple[_WatchEvent, T | None]:
        """Return an event and its object; that of a bookmark has nothing but a version."""
        event = _events.decode(line)
        match event.type:
            case "ERROR":
                status = _statuses.decode(event.object)
                raise refusal(f"watch {self.resource.plural}", status.code, bytes(event.object), {})
            case "BOOKMARK":
                return event, None
            case _:
                return event, self._decoder.decode(event.object)

    async def _pause(self, what: str, error: SunkError) -> None:
        pause_s = doubled(BACKOFF_FIRST_S, self._failures, BACKOFF_LAST_S)
        self._failures += 1
        pause_s *= random.uniform(0.5, 1.0)  # noqa: S311 - spreads a fleet, no secret
        log.warning(what, extra={"resource": self.resource.plural, "error": str(error)})
        has_to_wait = self._failures > 1 or isinstance(error, KubeBusyError)
        await anyio.sleep(max(pause_s, getattr(error, "retry_after_s", 0.0) if has_to_wait else 0.0))


async def follow_passing(
    client: KubeClient,
    resource: Resource[T],
    *,
    changed: Callable[[T], None],
    missed: Callable[[], None],
    fields: str = "",
) -> None:
    """Report what happens to objects from now on, until cancelled; none is listed or kept.

    For callers that wait for a few of very many: one watch serves all; a watch for each takes a connection.

    Args:
        client: Calls of the API server.
        resource: The kind; its struct may be of the few fields that are looked at.
        changed: Called with each object that came, changed or went.
        missed: Called at the start and after each gap: anything may have happened before.
        fields: A field selector.
    """

    async def begin() -> str:
        version = await client.version(resource)
        missed()
        return version

    def pass_on(found: T, *, is_gone: bool) -> None:  # noqa: ARG001 - callers do not distinguish
        changed(found)

    await Following(client, resource, begin=begin, changed=pass_on, fields=fields).run()


def version_of(found: KubeObject) -> str:
    """Return the object's resourceVersion."""
    return found.metadata.resource_version


async def split_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines in *chunks*, of any length; what has no end yet is not yielded."""
    rest: list[bytes] = []
    async for chunk in chunks:
        *ended, last = chunk.split(b"\n")
        for part in ended:
            rest.append(part)
            line = b"".join(rest)
            rest = []
            if line:
                yield line
        if last:
            rest.append(last)
