"""Every knob of the metrics exporter, its unit and its reason."""

import os
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from sunk_events.base import ClusterName
from sunk_metrics_exporter.slurm_metrics.samples import JobChoice, JobLabel, JobSeries
from sunk_runtime.config import load
from sunk_runtime.settings import Seconds, ServiceSettings

PREFIX = "SUNK_METRICS_EXPORTER_"


class Config(ServiceSettings, frozen=True, kw_only=True):
    """Read once, at start. Durations are in seconds and end in ``_s``."""

    cluster: ClusterName
    """The Slurm cluster's name."""
    stale_s: Seconds = 120.0
    """Older Slurm state is not shown: a series that stands still looks like a cluster that does.

    In a quiet cluster the syncer asks for all nodes once in its ``quiet_max_s``: this must be well above.
    """
    job_series: JobSeries = "all"
    """Which jobs have series of their own: ``all`` that slurmctld knows, ``running`` ones, or none."""
    job_labels: tuple[JobLabel, ...] = ("partition", "account", "user", "name")
    """Which labels the series of single jobs have besides ``id``, ``node`` and ``state``."""
    job_series_max: Annotated[int, Meta(gt=0)] = 200_000
    """How many series single jobs may have together. Jobs beyond that have none; a metric counts them."""

    @property
    def job_choice(self) -> JobChoice:
        """Which series single jobs have."""
        return JobChoice(which=self.job_series, labels=frozenset(self.job_labels))


def read_config(arguments: Sequence[str] = ()) -> Config:
    """Return the settings of this process.

    Raises:
        ConfigError: a setting is unknown, missing or not allowed.
    """
    return load(Config, os.environ, PREFIX, arguments)
