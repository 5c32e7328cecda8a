"""One scrape: from the views, asking nobody.

What must stay true: a scrape never shows an empty cluster because nothing is known (503 while a view is
not read), and never shows a state that stands still (old state is left out, its age is told).
"""

import math
import time
from datetime import datetime

import anyio
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sunk_events import subjects
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_metrics_exporter.collect import JobSeries, Slurm, collect
from sunk_metrics_exporter.metrics import SCRAPE_SECONDS, STATE_AGE
from sunk_metrics_exporter.render import render
from sunk_runtime.views import StateView, now


class Scrapes:
    """Answers scrapes from the views."""

    def __init__(
        self,
        nodes: StateView[SlurmNodeState],
        jobs: StateView[SlurmJobState],
        partitions: StateView[SlurmPartitionState],
        statistics: StateView[SlurmStatisticsState],
        *,
        stale_s: float,
        job_series: JobSeries,
    ) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._partitions = partitions
        self._statistics = statistics
        self._stale_s = stale_s
        self._job_series: JobSeries = job_series

    def route(self) -> Route:
        """Return the route that stands in for the chassis' own /metrics."""
        return Route("/metrics", self._metrics)

    async def _metrics(self, _: Request) -> Response:
        started = time.perf_counter()
        views = (self._nodes, self._jobs, self._partitions, self._statistics)
        if missing := [view.bucket for view in views if not view.is_complete]:
            text = f"state is not read yet: {', '.join(missing)}\n"
            return PlainTextResponse(text, status_code=503, headers={"Retry-After": "1"})
        slurm = Slurm(
            self._nodes.values(),
            self._jobs.values(),
            self._partitions.values(),
            self._statistics.get(subjects.STATISTICS_KEY),
        )
        text = await anyio.to_thread.run_sync(self._text, slurm, now())
        SCRAPE_SECONDS.observe(time.perf_counter() - started)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    def _text(self, slurm: Slurm, moment: datetime) -> bytes:
        newest = slurm.newest()
        age_s = math.inf if newest is None else max((moment - newest).total_seconds(), 0.0)
        STATE_AGE.set(age_s)
        if age_s > self._stale_s:
            return generate_latest()
        samples = collect(slurm, moment, job_series=self._job_series)
        return render(samples).encode() + generate_latest()
