"""Reflector: a whole list, then what changes. A local view of one kind of object, and a stream of its keys.

What must stay true: a view says when it is complete, and until then nobody may conclude that an object is
absent; after a gap that a watch cannot bridge the whole list is read again and compared; a list that
suddenly knows far fewer objects is believed only when it says so twice; a watch that fails costs a pause
and goes on where it was; each consumer gets every key at least once, and finds the latest object.

Source: Kubernetes API Concepts, "Efficient detection of changes", "410 Gone responses", "Watch bookmarks".
"""

import logging
import random
import time
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import anyio
import msgspec

from sunk_kube.answers import Status, refusal
from sunk_kube.bodies import selectors
from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeBusyError, KubeGoneError, KubeUnavailableError
from sunk_kube.indexes import Index
from sunk_kube.metrics import VIEW_COMPLETE, VIEW_HEARD, VIEW_READS
from sunk_kube.objects import KubeObject
from sunk_kube.pages import PAGE_SIZE
from sunk_kube.resources import Resource
from sunk_kube.slim import slim
from sunk_runtime.changes import Changes
from sunk_runtime.errors import SunkError

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)

KeysOf = Callable[[T | None, T | None], Iterable[str]]
"""From an object before and after a change to the keys that should be looked at."""

WATCH_S: Final = (60.0, 90.0)
"""How long one watch lasts. Short: that a connection died without a word is noticed at its end only."""
SILENCE_MARGIN_S: Final = 5.0
SHORTEST_S: Final = 1.0
"""A watch that ends before is a failure, though it ends well: to begin again at once would be a hot loop."""
BACKOFF_FIRST_S: Final = 0.5
BACKOFF_LAST_S: Final = 30.0
SUSPECT_FROM: Final = 4
"""From this many objects on, a list that knows less than half of them is asked for again."""


class _WatchEvent(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_events: Final = msgspec.json.Decoder(_WatchEvent)
_statuses: Final = msgspec.json.Decoder(Status)
_marks: Final = msgspec.json.Decoder(KubeObject)


class Reflector(Generic[T]):
    """All objects of one kind that fit the selectors, by ``namespace/name``, kept current by `run`."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        fields: str = "",
        labels: str = "",
        page_size: int = PAGE_SIZE,
        watch_s: tuple[float, float] = WATCH_S,
    ) -> None:
        self.resource = resource
        self._client = client
        self._namespace = namespace
        self._fields = fields
        self._labels = labels
        self._page_size = page_size
        self._watch_s = watch_s
        self._decoder = msgspec.json.Decoder(resource.struct)
        self._objects: dict[str, T] = {}
        self._listeners: list[tuple[weakref.ref[Changes], KeysOf[T] | None]] = []
        self._indexes: list[Index[T]] = []
        self._complete = anyio.Event()
        self._heard = time.monotonic()
        self._failures = 0
        self._at = ""
        """The version that the view has reached; empty: a list is due."""

    @property
    def is_complete(self) -> bool:
        """A whole list was read. It stays so while a watch is broken: see `age_s`."""
        return self._complete.is_set()

    @property
    def age_s(self) -> float:
        """Seconds since the API server last said something; more than about 100 mean that this is stale."""
        return time.monotonic() - self._heard

    async def complete(self) -> None:
        """Return when the view is complete."""
        await self._complete.wait()

    def require_complete(self) -> None:
        """Raise `KubeUnavailableError` while the view is not complete."""
        if not self.is_complete:
            raise KubeUnavailableError(f"list of {self.resource.plural} is not read yet", retry_after_s=0.5)

    def get(self, key: str) -> T | None:
        """Return the object at ``namespace/name``. None means absent only if the view is complete."""
        return self._objects.get(key)

    def values(self) -> list[T]:
        """Return every object, in no order."""
        return list(self._objects.values())

    def keys(self) -> list[str]:
        """Return every key, in no order."""
        return list(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def objects(self) -> Mapping[str, T]:
        """Every object by its key, as it is at each moment."""
        return MappingProxyType(self._objects)

    def index(self, keys_of: Callable[[T], Iterable[str]]) -> Index[T]:
        """Return an index by the keys that *keys_of* names; it stays current for as long as the view."""
        made = Index(keys_of)
        for found in self._objects.values():
            made.change(None, found)
        self._indexes.append(made)
        return made

    def changes(self) -> Changes:
        """Return a stream of keys: all that are known now, then each that changes or goes."""
        changes = Changes(())
        self.follow(changes, None)
        return changes

    def follow(self, changes: Changes, keys_of: KeysOf[T] | None) -> None:
        """Add to *changes* the keys that *keys_of* names for every object now and each change of one.

        By default those are the objects' own keys; a stream of other keys, such as those of the objects'
        owners, is made of several views. It is followed for as long as somebody holds it.
        """
        self._listeners = [one for one in self._listeners if one[0]() is not None]
        self._listeners.append((weakref.ref(changes), keys_of))
        for key, found in self._objects.items():
            _tell(changes, keys_of, key, None, found)

    async def run(self) -> None:
        """Read, follow, and read again after each gap, until cancelled."""
        while True:
            try:
                if not self._at:
                    await self._list()
                await self._follow()
            except KubeGoneError as error:
                self._at = ""
                await self._pause("view reads again", error)
            except SunkError as error:  # Refusals too: a right may be granted, a definition installed.
                await self._pause("view waits", error)

    async def _list(self) -> None:
        """Read the whole list and compare it with what was known."""
        listed, version = await self._read()
        known = len(self._objects)
        if known >= SUSPECT_FROM and len(listed) * 2 < known:
            log.warning(
                "list knows far fewer objects",
                extra={"resource": self.resource.plural, "known": known, "listed": len(listed)},
            )
            await anyio.sleep(BACKOFF_FIRST_S)
            listed, version = await self._read()
        fresh = {found.key: found for found in listed}
        for key in [*self._objects.keys() - fresh.keys(), *fresh]:
            before, after = self._objects.get(key), fresh.get(key)
            if before is None or after is None or _version(before) != _version(after):
                self._store(key, after)
        self._at = version
        self._complete.set()
        VIEW_COMPLETE.labels(self.resource.plural).set(1)

    async def _read(self) -> tuple[list[T], str]:
        VIEW_READS.labels(self.resource.plural).inc()
        found = await self._client.list_with_version(
            self.resource,
            self._namespace,
            fields=self._fields,
            labels=self._labels,
            page_size=self._page_size,
        )
        self._heard_now()
        return found

    async def _follow(self) -> None:
        """Follow one watch to its end, from where we are."""
        lasts_s = random.uniform(*self._watch_s)  # noqa: S311 - spreads a fleet, no secret
        query = {
            "resourceVersion": self._at,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(lasts_s)),
            **selectors(self._fields, self._labels),
        }
        silence_s, began = lasts_s + SILENCE_MARGIN_S, time.monotonic()
        async with self._client.watch(self.resource, self._namespace, query, silence_s=silence_s) as chunks:
            self._heard_now()
            async for line in split_lines(chunks):
                self._at = self._take(line)
                self._failures = 0
                self._heard_now()
        if time.monotonic() - began < SHORTEST_S:
            raise KubeUnavailableError(f"watch {self.resource.plural}: ended at once")

    def _take(self, line: bytes) -> str:
        """Take one event over and return its version.

        Raises:
            KubeGoneError: the version that we watch from is too old.
            KubeUnavailableError: the API server ends the watch, or this is no event.
        """
        try:
            event = _events.decode(line)
            match event.type:
                case "ERROR":
                    status = _statuses.decode(event.object)
                    raise refusal(f"watch {self.resource.plural}", status.code, bytes(event.object), {})
                case "BOOKMARK":
                    return _version(_marks.decode(event.object))
                case _:
                    found = self._decoder.decode(event.object)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise KubeUnavailableError(f"watch {self.resource.plural}: no event: {error}") from error
        self._changed(found, is_gone=event.type == "DELETED")
        return _version(found)

    def _changed(self, found: T, *, is_gone: bool) -> None:
        """Take over what a watch tells of one object."""
        self._store(found.key, None if is_gone else found)

    def _store(self, key: str, found: T | None) -> None:
        before = self._objects.get(key)
        if found is None:
            self._objects.pop(key, None)
        else:
            found = self._objects[key] = slim(found)
        for index in self._indexes:
            index.change(before, found)
        for listener, keys_of in self._listeners:
            if (changes := listener()) is not None:
                _tell(changes, keys_of, key, before, found)

    def _heard_now(self) -> None:
        self._heard = time.monotonic()
        VIEW_HEARD.labels(self.resource.plural).set_to_current_time()

    async def _pause(self, what: str, error: SunkError) -> None:
        pause_s = min(BACKOFF_FIRST_S * 2 ** min(self._failures, 10), BACKOFF_LAST_S)
        self._failures += 1
        pause_s *= random.uniform(0.5, 1.0)  # noqa: S311 - spreads a fleet, no secret
        log.warning(what, extra={"resource": self.resource.plural, "error": str(error)})
        is_asked = self._failures > 1 or isinstance(error, KubeBusyError)
        await anyio.sleep(max(pause_s, getattr(error, "retry_after_s", 0.0) if is_asked else 0.0))


class Passing(Reflector[T]):
    """What happens to objects from now on; none is listed or kept.

    For who is to be woken by a few of very many: one watch for all, as a watch for each takes a connection.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource[T],
        *,
        told: Callable[[T], None],
        missed: Callable[[], None],
        fields: str = "",
    ) -> None:
        """Describe the watch; `run` follows it.

        Args:
            client: Calls of the API server.
            resource: The kind; its struct may be of the few fields that are looked at.
            told: Called with each object that came, changed or went.
            missed: Called at the start and after each gap: anything may have happened before.
            fields: A field selector.
        """
        super().__init__(client, resource, fields=fields)
        self._told = told
        self._missed = missed

    async def _list(self) -> None:
        self._at = await self._client.version(self.resource, self._namespace)
        self._missed()

    def _changed(self, found: T, *, is_gone: bool) -> None:  # noqa: ARG002 - all the same to who is woken
        self._told(found)


def _tell(changes: Changes, keys_of: KeysOf[T] | None, key: str, before: T | None, after: T | None) -> None:
    for concerned in (key,) if keys_of is None else keys_of(before, after):
        changes.add(concerned)


def _version(found: KubeObject) -> str:
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
