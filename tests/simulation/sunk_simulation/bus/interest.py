"""Who wants which subjects."""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T")


def matches(pattern: str, subject: str) -> bool:
    """Whether *pattern*, with wildcards, matches *subject*, which may have wildcards as well."""
    if pattern in (">", subject):
        return True
    wanted = pattern.split(".")
    given = subject.split(".")
    for position, part in enumerate(wanted):
        if part == ">":
            return len(given) > position
        if position >= len(given) or part not in ("*", given[position]):
            return False
    return len(wanted) == len(given)


def overlap(one: str, other: str) -> bool:
    """Whether there is a subject that both match."""
    left, right = one.split("."), other.split(".")
    for mine, theirs in zip(left, right, strict=False):
        if ">" in (mine, theirs):
            return True
        if "*" not in (mine, theirs) and mine != theirs:
            return False
    return len(left) == len(right)


class _Node(Generic[T]):
    __slots__ = ("below", "here", "rest")

    def __init__(self) -> None:
        self.below: dict[str, _Node[T]] = {}
        self.here: dict[T, None] = {}
        """Whose pattern ends here."""
        self.rest: dict[T, None] = {}
        """Whose pattern ends here with ``>``."""


class Interest(Generic[T]):
    """Those who want something, by pattern, in the order in which they said so."""

    def __init__(self) -> None:
        self._root: Final[_Node[T]] = _Node()
        self._literal: Final[dict[str, dict[T, None]]] = {}
        self._found: Final[dict[str, tuple[T, ...]]] = {}
        """Who wants which subject, as found since the last of them came or went."""

    def add(self, pattern: str, who: T) -> None:
        """Note that *who* wants what *pattern* matches."""
        self._found.clear()
        if "*" not in pattern and ">" not in pattern:
            self._literal.setdefault(pattern, {})[who] = None
            return
        node = self._root
        parts = pattern.split(".")
        for part in parts[:-1]:
            node = node.below.setdefault(part, _Node())
        if parts[-1] == ">":
            node.rest[who] = None
        else:
            node.below.setdefault(parts[-1], _Node()).here[who] = None

    def remove(self, pattern: str, who: T) -> None:
        """Note that it wants it no more."""
        self._found.clear()
        if "*" not in pattern and ">" not in pattern:
            found = self._literal.get(pattern, {})
            found.pop(who, None)
            if not found:
                self._literal.pop(pattern, None)
            return
        node = self._root
        parts = pattern.split(".")
        for part in parts[:-1]:
            node = node.below[part]
        if parts[-1] == ">":
            node.rest.pop(who, None)
        else:
            node.below[parts[-1]].here.pop(who, None)

    def of(self, subject: str) -> tuple[T, ...]:
        """Return who wants *subject*."""
        found = self._found.get(subject)
        if found is None:
            below = self._below(self._root, subject.split("."), 0)
            found = self._found[subject] = (*self._literal.get(subject, ()), *below)
        return found

    def has(self, subject: str) -> bool:
        """Whether anybody wants *subject*."""
        return bool(self.of(subject))

    def _below(self, node: _Node[T], parts: list[str], position: int) -> Iterator[T]:
        if position == len(parts):
            yield from node.here
            return
        yield from node.rest
        for part in (parts[position], "*"):
            below = node.below.get(part)
            if below is not None:
                yield from self._below(below, parts, position + 1)
