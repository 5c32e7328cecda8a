"""Follows nodes and jobs, and observes what their changes tell."""

import anyio

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_metrics_exporter.metrics import DRAIN_SECONDS, JOB_WAIT_SECONDS
from sunk_metrics_exporter.sunk_metrics.durations import Drains, Waits
from sunk_runtime.views import StateView, now


async def watch(nodes: StateView[SlurmNodeState], jobs: StateView[SlurmJobState]) -> None:
    """Observe until cancelled."""
    waits = Waits(now())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch_nodes, nodes)
        tasks.start_soon(_watch_jobs, jobs, waits)


async def _watch_nodes(nodes: StateView[SlurmNodeState]) -> None:
    drains = Drains()
    async for key in nodes.changes():
        ended = drains.see(key, nodes.get(key))
        if ended is not None:
            cause, length_s = ended
            DRAIN_SECONDS.labels(cause.owner, cause.cause).observe(length_s)


async def _watch_jobs(jobs: StateView[SlurmJobState], waits: Waits) -> None:
    async for key in jobs.changes():
        job = jobs.get(key)
        waited_s = waits.see(key, job)
        if job is not None and waited_s is not None:
            JOB_WAIT_SECONDS.labels(job.partition).observe(waited_s)
