"""One replica of the exporter at a time counts: facts, whose durable consumer has one reader, and durations.

What must stay true: a replica that waits for its turn is as ready as the one that counts, as every replica
answers scrapes from its own views; what several replicas observed of one thing would be added up.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

from sunk_events.base import Event
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockLocked
from sunk_events.nodes import SlurmNodeState
from sunk_events.placements import PlacementBound
from sunk_metrics_exporter.metrics import (
    BIND_SECONDS,
    DRAIN_SECONDS,
    FACT_DELAY_SECONDS,
    FACTS,
    JOB_WAIT_SECONDS,
    LOCK_SECONDS,
)
from sunk_metrics_exporter.sunk_metrics.durations import Drains, Waits
from sunk_runtime.clock import now
from sunk_runtime.leases import Leadership
from sunk_runtime.settle import FactConsumer
from sunk_runtime.views import StateView

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


async def count(event: Event) -> None:
    """Count *event* by type, and the two waits that users feel. One that comes twice is counted twice."""
    FACTS.labels(str(event.__struct_config__.tag)).inc()
    FACT_DELAY_SECONDS.observe(max((now() - event.time).total_seconds(), 0.0))
    match event:
        case LockLocked() if event.data.waited_s is not None:
            LOCK_SECONDS.observe(event.data.waited_s)
        case PlacementBound() if event.data.waited_s is not None:
            BIND_SECONDS.observe(event.data.waited_s)
        case _:
            pass


async def observe_changes(nodes: StateView[SlurmNodeState], jobs: StateView[SlurmJobState]) -> None:
    """Follow nodes and jobs, and observe what their changes tell, until cancelled."""
    waits = Waits(now())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_observe_nodes, nodes)
        tasks.start_soon(_observe_jobs, jobs, waits)


async def _observe_nodes(nodes: StateView[SlurmNodeState]) -> None:
    drains = Drains()
    async for key in nodes.changes():
        ended = drains.see(key, nodes.get(key))
        if ended is not None:
            cause, length_s = ended
            DRAIN_SECONDS.labels(cause.owner, cause.cause).observe(length_s)


async def _observe_jobs(jobs: StateView[SlurmJobState], waits: Waits) -> None:
    async for key in jobs.changes():
        job = jobs.get(key)
        waited_s = waits.see(key, job)
        if job is not None and waited_s is not None:
            JOB_WAIT_SECONDS.labels(job.partition).observe(waited_s)
