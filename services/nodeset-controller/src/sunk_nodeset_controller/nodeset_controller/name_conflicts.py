"""Names that Pods of somebody else have in the namespace of a NodeSet: they are left alone for a while."""

import time
from collections.abc import Callable, Iterable
from typing import Final

REMEMBERED_S: Final = 600.0
"""Then the name is tried again: its Pod may have gone."""


class NameConflicts:
    """Names that Pods of somebody else have, by NodeSet.

    They are found out by trying, for we see only Pods with our label.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, dict[str, float]] = {}

    def note(self, key: str, names: Iterable[str]) -> None:
        """Note that the NodeSet *key* met Pods of somebody else under *names*."""
        now = self._clock()
        known = {name: until for name, until in self._until.get(key, {}).items() if until > now}
        self._until[key] = known | dict.fromkeys(names, now + REMEMBERED_S)

    def of(self, key: str) -> frozenset[str]:
        """Return the names that the NodeSet *key* cannot have."""
        now = self._clock()
        return frozenset(name for name, until in self._until.get(key, {}).items() if until > now)

    def forget(self, key: str) -> None:
        """Forget a NodeSet that is gone."""
        self._until.pop(key, None)
