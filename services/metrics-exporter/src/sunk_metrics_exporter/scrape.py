"""One scrape: from the views, asking nobody.

What must stay true: a scrape never shows an empty cluster because nothing is known (503 while a view is
not read), and never shows a state that stands still (old state is left out, its age is told).
"""

import logging
import math
import time
import zlib
from datetime import datetime

import anyio
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, REGISTRY
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState, SlurmPartitionState, SlurmStatisticsState
from sunk_metrics_exporter.accept import wants_gzip, wants_open
from sunk_metrics_exporter.book import Book, Slurm
from sunk_metrics_exporter.collect import JobChoice
from sunk_metrics_exporter.metrics import (
    JOB_SERIES,
    JOBS_WITHOUT_SERIES,
    SCRAPE_BYTES,
    SCRAPE_SECONDS,
    STATE_AGE,
)
from sunk_runtime.views import S, StateView, now

log = logging.getLogger(__name__)

OPEN_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Scrapes:
    """Answers scrapes from the views, one after the other: the second of two at once finds little to do."""

    def __init__(
        self,
        nodes: StateView[SlurmNodeState],
        jobs: StateView[SlurmJobState],
        partitions: StateView[SlurmPartitionState],
        statistics: StateView[SlurmStatisticsState],
        *,
        stale_s: float,
        choice: JobChoice,
        job_series_max: int,
    ) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._partitions = partitions
        self._statistics = statistics
        self._stale_s = stale_s
        self._book = Book(choice, job_series_max)
        self._turn = anyio.Lock()
        self._is_capped = False

    def route(self) -> Route:
        """Return the route that stands in for the chassis' own /metrics."""
        return Route("/metrics", self._metrics)

    async def _metrics(self, request: Request) -> Response:
        started = time.perf_counter()
        is_open = wants_open(request.headers.get("accept", ""))
        is_gzip = wants_gzip(request.headers.get("accept-encoding", ""))
        async with self._turn:
            views = (self._nodes, self._jobs, self._partitions, self._statistics)
            if missing := [view.bucket for view in views if not view.is_complete]:
                text = f"state is not read yet: {', '.join(missing)}\n"
                return PlainTextResponse(text, status_code=503, headers={"Retry-After": "1"})
            slurm = Slurm(
                _by_key(self._nodes),
                _by_key(self._jobs),
                _by_key(self._partitions),
                _by_key(self._statistics),
            )
            body = await anyio.to_thread.run_sync(self._body, slurm, now(), is_open, is_gzip)
        SCRAPE_SECONDS.observe(time.perf_counter() - started)
        headers = {"Vary": "Accept, Accept-Encoding"} | ({"Content-Encoding": "gzip"} if is_gzip else {})
        return Response(body, media_type=OPEN_TYPE if is_open else CONTENT_TYPE_PLAIN_0_0_4, headers=headers)

    def _body(self, slurm: Slurm, moment: datetime, is_open: bool, is_gzip: bool) -> bytes:  # noqa: FBT001 - a thread's function takes no names
        newest = slurm.newest()
        age_s = math.inf if newest is None else max((moment - newest).total_seconds(), 0.0)
        STATE_AGE.set(age_s)
        text = b""
        if age_s <= self._stale_s:
            self._book.update(slurm)
            self._tell_of_cap()
            text = self._book.text(moment, is_open=is_open).encode(errors="replace")
        encode, _ = choose_encoder(OPEN_TYPE if is_open else "")
        text += encode(REGISTRY)
        SCRAPE_BYTES.set(len(text))
        return zlib.compress(text, level=1, wbits=31) if is_gzip else text

    def _tell_of_cap(self) -> None:
        jobs = self._book.jobs
        JOB_SERIES.set(jobs.size)
        JOBS_WITHOUT_SERIES.set(jobs.left_out)
        if self._is_capped == bool(jobs.left_out):
            return
        self._is_capped = bool(jobs.left_out)
        extra = {"jobs_without_series": jobs.left_out, "series": jobs.size}
        if self._is_capped:
            log.warning("cap on job series is hit: some jobs have no series of their own", extra=extra)
        else:
            log.info("every job has series of its own again", extra=extra)


def _by_key(view: StateView[S]) -> dict[str, S]:
    return dict(zip(view.keys(), view.values(), strict=True))
