"""One scrape: from the views, asking nobody.

What must stay true: a scrape never shows an empty cluster because nothing is known (503 while a view is
not read), and never shows a state that stands still (a kind that is old is left out, its age is told).
"""

import logging
import time
import zlib
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

import anyio
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sunk_events import subjects
from sunk_metrics_exporter.adapters.views import Views
from sunk_metrics_exporter.metrics import (
    DRAIN_OLDEST,
    DRAIN_WITHOUT_CAUSE_OLDEST,
    DRAINED_NODES,
    DRAINS_WITHOUT_CAUSE,
    JOB_SERIES,
    JOBS_WITHOUT_SERIES,
    LOCK_OLDEST,
    LOCKS,
    PLACEMENT_OLDEST,
    PLACEMENTS,
    SCRAPE_BYTES,
    SCRAPE_SECONDS,
    STATE_AGE,
)
from sunk_metrics_exporter.slurm_metrics.ages import Kind, LastSeen, ages, last_seen
from sunk_metrics_exporter.slurm_metrics.exposition import Exposition, Slurm
from sunk_metrics_exporter.slurm_metrics.samples import JobChoice
from sunk_metrics_exporter.sunk_metrics.current import Current
from sunk_runtime.clock import now

log = logging.getLogger(__name__)

OPENMETRICS: Final = "application/openmetrics-text"
Encode = Callable[[Collector], bytes]


def chosen_format(accept: str) -> tuple[Encode, str]:
    """Return how prometheus-client answers *accept* and the content type; plain text where it fails."""
    try:
        return choose_encoder(accept)
    except TypeError:  # Of a version that is no number.
        return choose_encoder("")


class Scrapes:
    """Answers scrapes from the views, one after the other: the second of two at once finds little to do."""

    def __init__(
        self,
        views: Views,
        *,
        stale_s: float,
        choice: JobChoice,
        job_series_max: int,
    ) -> None:
        self._views = views
        self._stale_s = stale_s
        self._exposition = Exposition(choice, job_series_max)
        self._last_seen = LastSeen()
        self._turn = anyio.Lock()
        self._is_capped = False

    def route(self) -> Route:
        """Return the route that stands in for the chassis' own /metrics."""
        return Route("/metrics", self._metrics)

    async def _metrics(self, request: Request) -> Response:
        started = time.perf_counter()
        encode, media_type = chosen_format(request.headers.get("accept", ""))
        is_gzip = gzip_accepted(request.headers.get("accept-encoding", ""))
        async with self._turn:
            if missing := [view.bucket for view in self._views.all() if not view.is_complete]:
                text = f"state is not read yet: {', '.join(missing)}\n"
                return PlainTextResponse(text, status_code=503, headers={"Retry-After": "1"})
            moment = now()
            seen = self._views.slurm()
            current = self._views.current(seen, moment)
            render = partial(self._text, seen, current, moment, encode=encode, is_gzip=is_gzip)
            body = await anyio.to_thread.run_sync(partial(render, is_open=media_type.startswith(OPENMETRICS)))
        SCRAPE_SECONDS.observe(time.perf_counter() - started)
        headers = {"Vary": "Accept, Accept-Encoding"} | ({"Content-Encoding": "gzip"} if is_gzip else {})
        return Response(body, media_type=media_type, headers=headers)

    def _text(
        self,
        slurm: Slurm,
        current: Current,
        moment: datetime,
        *,
        encode: Encode,
        is_open: bool,
        is_gzip: bool,
    ) -> bytes:
        self._exposition.update(slurm)
        self._report_cap()
        statistics = slurm.statistics.get(subjects.STATISTICS_KEY)
        self._last_seen = last_seen(self._last_seen, self._exposition.newest(), statistics, moment)
        old = ages(self._last_seen, moment)
        for kind, age_s in old.items():
            STATE_AGE.labels(kind).set(age_s)
        fresh: set[Kind] = {kind for kind, age_s in old.items() if age_s <= self._stale_s}
        _set_current(current, is_fresh="nodes" in fresh)
        text = self._exposition.text(moment, is_open=is_open, fresh=fresh).encode(errors="replace")
        text += encode(REGISTRY)
        SCRAPE_BYTES.set(len(text))
        return zlib.compress(text, level=1, wbits=31) if is_gzip else text

    def _report_cap(self) -> None:
        jobs = self._exposition.jobs
        JOB_SERIES.set(jobs.size)
        JOBS_WITHOUT_SERIES.set(jobs.left_out)
        if self._is_capped == bool(jobs.left_out):
            return
        self._is_capped = bool(jobs.left_out)
        extra = {"jobs_without_series": jobs.left_out, "series": jobs.size}
        if self._is_capped:
            log.warning("limit of job series is reached: some jobs have no series of their own", extra=extra)
        else:
            log.info("every job has series of its own again", extra=extra)


def _set_current(current: Current, *, is_fresh: bool) -> None:
    """Set the gauges; what Slurm said is left out of them too when it is old."""
    for gauge in (DRAINED_NODES, DRAIN_OLDEST, DRAINS_WITHOUT_CAUSE, DRAIN_WITHOUT_CAUSE_OLDEST):
        gauge.clear()
    if is_fresh:
        for cause, drained in current.drains.items():
            DRAINED_NODES.labels(cause.owner, cause.cause).set(drained.nodes)
            DRAIN_OLDEST.labels(cause.owner, cause.cause).set(drained.oldest_s)
        for had, drained in current.without_cause.items():
            DRAINS_WITHOUT_CAUSE.labels(had).set(drained.nodes)
            DRAIN_WITHOUT_CAUSE_OLDEST.labels(had).set(drained.oldest_s)
    for lock, count in current.locks.items():
        LOCKS.labels(lock).set(count)
    LOCK_OLDEST.set(current.lock_oldest_s)
    for phase, count in current.placements.items():
        PLACEMENTS.labels(phase).set(count)
    PLACEMENT_OLDEST.set(current.placement_oldest_s)
