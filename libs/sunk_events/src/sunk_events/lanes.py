"""Work that waits, a lane per key: first in first out within a key, fair between keys.

What must stay true: a key that was taken is not handed out again before it was given back. No I/O, no
tasks: the caller that takes a key does the work.
"""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """Items by key, and the keys whose turn may come."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[T]] = {}
        self._ready: deque[str] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    @property
    def ready(self) -> int:
        """How many keys can be taken now."""
        return len(self._ready)

    def add(self, key: str, item: T) -> None:
        """Put *item* at the end of the lane of *key*."""
        lane = self._lanes.get(key)
        if lane is None:
            self._lanes[key] = deque((item,))
            self._ready.append(key)
        else:
            lane.append(item)

    def take(self) -> tuple[str, T] | None:
        """Return the first item of the key that waits longest; None: no key is free."""
        if not self._ready:
            return None
        key = self._ready.popleft()
        return key, self._lanes[key][0]

    def put_back(self, key: str) -> None:
        """Offer the item of *key* that was taken once more; what came after it goes on waiting."""
        self._ready.append(key)

    def give_back(self, key: str) -> None:
        """Drop the item of *key* that was taken; the next one's turn comes after the other keys'."""
        lane = self._lanes[key]
        lane.popleft()
        if lane:
            self._ready.append(key)
        else:
            del self._lanes[key]
