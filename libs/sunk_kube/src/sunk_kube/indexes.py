"""Index: the objects of a view by something other than their name, kept current with the view.

What must stay true: an index and its view change in the same step, so that no await stands between them.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from sunk_kube.objects import KubeObject

T = TypeVar("T", bound=KubeObject)


class Index(Generic[T]):
    """Objects by the keys that *keys_of* names. Made by `Reflector.index`."""

    def __init__(self, keys_of: Callable[[T], Iterable[str]]) -> None:
        self._keys_of = keys_of
        self._objects: dict[str, dict[str, T]] = {}

    def of(self, key: str) -> list[T]:
        """Return the objects of *key*, in no order."""
        return list(self._objects.get(key, {}).values())

    def count(self, key: str) -> int:
        """Return how many objects *key* has."""
        return len(self._objects.get(key, ()))

    def keys(self) -> list[str]:
        """Return every key that has an object."""
        return list(self._objects)

    def change(self, before: T | None, after: T | None) -> None:
        """Take over that *before* is *after* now."""
        kept = frozenset(self._keys_of(after)) if after is not None else frozenset[str]()
        if before is not None:
            for key in frozenset(self._keys_of(before)) - kept:
                found = self._objects.get(key, {})
                found.pop(before.key, None)
                if not found:
                    self._objects.pop(key, None)
        if after is not None:
            for key in kept:
                self._objects.setdefault(key, {})[after.key] = after
