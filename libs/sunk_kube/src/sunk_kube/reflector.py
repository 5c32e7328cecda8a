"""Reflector: a whole list, then what changes. A local view of one kind of object, and a stream of its keys.

What must stay true: a view says when it is complete, and until then nobody may conclude that an object is
absent; after a gap that a watch cannot bridge the whole list is read again and compared; a list that
suddenly knows far fewer objects is believed only when it says so twice; each consumer gets every key at
least once, and finds the latest object.
"""

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Generic, TypeVar

import anyio
from msgspec.structs import replace

from sunk_kube.client import KubeClient
from sunk_kube.errors import KubeUnavailableError
from sunk_kube.following import WATCH_S, Following, version_of
from sunk_kube.indexes import Index
from sunk_kube.metrics import VIEW_COMPLETE, VIEW_READS
from sunk_kube.objects import KubeObject
from sunk_kube.pages import PAGE_SIZE
from sunk_kube.pods import Pod
from sunk_kube.resources import Resource
from sunk_kube.wellknown import PREFIX
from sunk_runtime.changes import Changes
from sunk_runtime.losses import is_mass_loss

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)

TOLERATIONS_MAX: Final = 1000
"""Of a Pod; it is asked at many looks whether one of them bears a taint."""
LONGEST: Final = 4096
"""Characters of an annotation that is not ours; nobody reads one that is longer."""


def slim(found: T) -> T:
    """Return *found* without the long annotations of others, and with no more tolerations than are read.

    Structs name what is read, so managed fields, images and environment are not even decoded. Annotations of
    others, of which an object may have 256 KiB, and tolerations, of which a Pod may have a hundred thousand,
    are left without a bound. Measured (`test_slim`): 9 KiB for a NodeSet Pod, 14 KiB for a Node with 40
    labels and 16 conditions.
    """
    if isinstance(found, Pod) and len(found.spec.tolerations) > TOLERATIONS_MAX:
        tolerations = found.spec.tolerations[:TOLERATIONS_MAX]
        found = replace(found, spec=replace(found.spec, tolerations=tolerations))
    annotations = found.metadata.annotations
    long = [name for name, value in annotations.items() if len(value) > LONGEST and PREFIX not in name]
    if not long:
        return found
    kept = {name: value for name, value in annotations.items() if name not in long}
    return replace(found, metadata=replace(found.metadata, annotations=kept))


KeysOf = Callable[[T | None, T | None], Iterable[str]]
"""From an object before and after a change to the keys that should be looked at."""

READ_AGAIN_S: Final = 0.5
SUSPECT_FROM: Final = 4
"""From this many objects on, a list that knows less than half of them is asked for again."""


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
        self._list_all = partial(
            client.list_with_version, resource, namespace, fields=fields, labels=labels, page_size=page_size
        )
        self._following = Following(
            client,
            resource,
            begin=self._list,
            changed=self._changed,
            namespace=namespace,
            fields=fields,
            labels=labels,
            watch_s=watch_s,
        )
        self._objects: dict[str, T] = {}
        self._listeners: list[tuple[weakref.ref[Changes], KeysOf[T] | None]] = []
        self._indexes: list[Index[T]] = []
        self._complete = anyio.Event()

    @property
    def is_complete(self) -> bool:
        """A whole list was read. It stays so while a watch is broken: see `age_s`."""
        return self._complete.is_set()

    @property
    def age_s(self) -> float:
        """Seconds since the API server last said something; more than `STALE_S` mean that this is stale."""
        return self._following.age_s

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
            _add_keys(changes, keys_of, key, None, found)

    async def run(self) -> None:
        """Read, follow, and read again after each gap, until cancelled."""
        await self._following.run()

    async def _list(self) -> str:
        """Read the whole list, compare it with what was known, and return its version."""
        listed, version = await self._read()
        known = len(self._objects)
        if known >= SUSPECT_FROM and is_mass_loss(known - len(listed), known, percent=50):
            log.warning(
                "list knows far fewer objects",
                extra={"resource": self.resource.plural, "known": known, "listed": len(listed)},
            )
            await anyio.sleep(READ_AGAIN_S)
            listed, version = await self._read()
        fresh = {found.key: found for found in listed}
        for key in [*self._objects.keys() - fresh.keys(), *fresh]:
            before, after = self._objects.get(key), fresh.get(key)
            if before is None or after is None or version_of(before) != version_of(after):
                self._store(key, after)
        self._complete.set()
        VIEW_COMPLETE.labels(self.resource.plural).set(1)
        return version

    async def _read(self) -> tuple[list[T], str]:
        VIEW_READS.labels(self.resource.plural).inc()
        found = await self._list_all()
        self._following.note_contact()
        return found

    def _changed(self, found: T, *, is_gone: bool) -> None:
        """Take over what a watch tells of one object."""
        self._store(found.key, None if is_gone else found)

    def _store(self, key: str, found: T | None) -> None:
        """Take over one object. One that another replaced under its name, in a gap of the watch, is gone."""
        before = self._objects.get(key)
        if before is not None and found is not None and before.metadata.uid != found.metadata.uid:
            self._store(key, None)
            before = None
        if found is None:
            self._objects.pop(key, None)
        else:
            found = self._objects[key] = slim(found)
        for index in self._indexes:
            index.change(before, found)
        for listener, keys_of in self._listeners:
            if (changes := listener()) is not None:
                _add_keys(changes, keys_of, key, before, found)


def _add_keys(
    changes: Changes, keys_of: KeysOf[T] | None, key: str, before: T | None, after: T | None
) -> None:
    for changed in (key,) if keys_of is None else keys_of(before, after):
        changes.add(changed)
