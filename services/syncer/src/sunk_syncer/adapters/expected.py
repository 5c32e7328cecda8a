"""What was done lately on account of something, until what follows from it is seen, which names its cause.

A restart forgets it: what follows then names none.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from sunk_events.base import UNKNOWN, Cause, Event

T = TypeVar("T")

EXPECTED_S: Final = 60.0
"""So long after it was done something may show."""


class Expected(Generic[T]):
    """What was done last, of each kind, to each of several things."""

    def __init__(self) -> None:
        self._done: dict[str, dict[type, tuple[T, float]]] = {}

    def expect(self, key: str, done: T) -> None:
        """Remember what is being *done* to *key*."""
        self._done.setdefault(key, {})[type(done)] = done, time.monotonic() + EXPECTED_S

    def of(self, key: str, *, may_last: Callable[[T], bool] = lambda _: False) -> tuple[T, ...]:
        """Return what was done to *key* lately, and longer ago what *may last*."""
        moment = time.monotonic()
        known = self._done.get(key, {}).values()
        self._keep(key, [one for one in known if moment <= one[1] or may_last(one[0])])
        return tuple(done for done, _ in self._done.get(key, {}).values())

    def forget(self, key: str, is_reported: Callable[[T], bool] = lambda _: True) -> None:
        """Forget what was done to *key* and *is reported*."""
        self._keep(key, [one for one in self._done.get(key, {}).values() if not is_reported(one[0])])

    def _keep(self, key: str, known: list[tuple[T, float]]) -> None:
        self._done[key] = {type(one[0]): one for one in known}
        if not known:
            del self._done[key]


def named(facts: Iterable[Event], causes: Iterable[Cause]) -> Cause:
    """Return the first of *causes* that one of *facts* names."""
    reported = {fact.cause for fact in facts}
    return next((cause for cause in causes if cause.id in reported), UNKNOWN)
