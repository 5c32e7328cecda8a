"""The keys that changed, for one who looks at them one after the other.

What must stay true: a key that changed is handed over at least once after its last change; how often it
changed until then costs nothing.
"""

from collections.abc import Iterable

import anyio


class Changes:
    """The keys of a view that changed, each once until it is taken."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = dict.fromkeys(keys)
        self._news = anyio.Event()

    def add(self, key: str) -> None:
        """Remember *key*; it being remembered already is fine."""
        self._keys[key] = None
        self._news.set()

    def taken(self) -> tuple[str, ...]:
        """Take all keys that have changed and were not taken, without waiting for any."""
        keys = tuple(self._keys)
        self._keys.clear()
        return keys

    def __aiter__(self) -> "Changes":
        return self

    async def __anext__(self) -> str:
        while not self._keys:
            self._news = anyio.Event()
            await self._news.wait()
        key = next(iter(self._keys))
        del self._keys[key]
        return key
