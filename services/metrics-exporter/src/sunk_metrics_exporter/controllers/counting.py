"""One replica of the exporter at a time counts: facts, whose durable consumer has one reader, and durations.

What must stay true: a replica that waits for its turn is as ready as the one that counts, as every replica
answers scrapes from its own views; what several replicas observed of one thing would be added up.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

from sunk_runtime.leases import Leadership
from sunk_runtime.settle import FactConsumer

LEASE_TTL_S: Final = 10
"""Longer than NATS takes to choose a leader among three: nothing hurries, a fact waits to be counted."""


class Counting:
    """Counts facts, and observes durations, while we lead."""

    def __init__(self, consumer: FactConsumer, observe: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._consumer = consumer
        self._observe = observe
        self._is_leading = False

    @property
    def is_well(self) -> bool:
        """Facts come, or it is not our turn."""
        return self._consumer.is_consuming or not self._is_leading

    async def run(self, _: Leadership) -> None:
        """Count until cancelled. No count is written anywhere, so none is fenced."""
        self._is_leading = True
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._observe)
                tasks.start_soon(self._consumer.run)
        finally:
            self._is_leading = False
