# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""What an API server keeps: objects of all kinds, one number that counts changes, and the latest of these.

What must stay true: each change has a number of its own, and the state at any number that is not forgotten
can be told; nothing that is stored is ever changed in place.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple, Self

import msgspec

from sunk_simulation.kubernetes.kinds import Object

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class Stored(NamedTuple):
    """An object, and how it is sent."""

    version: int
    object: Object
    data: bytes
    managers: tuple["Manager", ...] = ()
    """Who owns which of its fields."""

    @property
    def meta(self) -> dict[str, Any]:
        """Its metadata."""
        return self.object["metadata"]

    def copy(self) -> Object:
        """Return one that may be changed."""
        return msgspec.json.decode(self.data)


class Manager(NamedTuple):
    """Fields of an object that somebody set."""

    name: str
    operation: str
    subresource: str
    time: str
    fields: frozenset[tuple[str, ...]]


class Change(NamedTuple):
    """What happened to an object: *after* is it as it was last, also where it went."""

    version: int
    resource: str
    key: str
    type: ChangeType
    before: Stored | None
    after: Stored


class ForgottenError(Exception):
    """A state that is asked for is too long ago."""


Told = Callable[[Change], object]


class Store:
    """All of it."""

    def __init__(self) -> None:
        self.version = 1
        self.forgotten = 1
        """States before this number cannot be told any more."""
        self.objects: dict[str, dict[str, Stored]] = {}
        """By resource and key."""
        self.changes: list[Change] = []
        self._followers: dict[int, Told] = {}
        self._follows = 0

    def of(self, resource: str) -> dict[str, Stored]:
        """Return the objects of a resource by their keys."""
        return self.objects.setdefault(resource, {})

    def get(self, resource: str, key: str) -> Stored | None:
        """Return an object, if there is one."""
        return self.of(resource).get(key)

    def put(self, resource: str, key: str, found: Object, managers: Iterable[Manager] = ()) -> Stored:
        """Store *found*, which is the store's from now on."""
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        after = Stored(self.version, found, msgspec.json.encode(found), tuple(managers))
        before = self.get(resource, key)
        self.of(resource)[key] = after
        self._tell(Change(self.version, resource, key, "MODIFIED" if before else "ADDED", before, after))
        return after

    def remove(self, resource: str, key: str) -> Stored:
        """Remove an object, and return it as it was last."""
        before = self.of(resource).pop(key)
        self.version += 1
        found = before.copy()
        found["metadata"]["resourceVersion"] = str(self.version)
        after = Stored(self.version, found, msgspec.json.encode(found), before.managers)
        self._tell(Change(self.version, resource, key, "DELETED", before, after))
        return after

    def at(self, resource: str, version: int) -> dict[str, Stored]:
        """Return the objects of a resource as they were at *version*.

        Raises:
            ForgottenError: that is too long ago.
        """
        found = dict(self.of(resource))
        for change in reversed(self.since(version)):
            if change.resource == resource:
                if change.before is None:
                    found.pop(change.key, None)
                else:
                    found[change.key] = change.before
        return found

    def since(self, version: int) -> list[Change]:
        """Return what happened after *version*, in its order.

        Raises:
            ForgottenError: that is too long ago.
        """
        if version < self.forgotten:
            raise ForgottenError
        index = len(self.changes)
        while index and self.changes[index - 1].version > version:
            index -= 1
        return self.changes[index:]

    def forget(self, version: int | None = None) -> None:
        """Forget what happened before *version*; None: until now."""
        self.forgotten = self.version if version is None else max(self.forgotten, version)
        self.changes = [one for one in self.changes if one.version > self.forgotten]

    def follow(self, told: Told) -> Callable[[], None]:
        """Call *told* at each change, until what is returned is called."""
        self._follows += 1
        number: Final = self._follows
        self._followers[number] = told
        return lambda: self._followers.pop(number, None) and None

    def copy(self) -> Self:
        """Return it as it is now, for a fault later."""
        made = type(self)()
        made.put_back(self)
        return made

    def put_back(self, older: Self) -> None:
        """Be as *older* is, with nothing that happened before."""
        self.version = self.forgotten = older.version
        self.objects = {resource: dict(found) for resource, found in older.objects.items()}
        self.changes = []

    def _tell(self, change: Change) -> None:
        self.changes.append(change)
        for told in list(self._followers.values()):
            told(change)
