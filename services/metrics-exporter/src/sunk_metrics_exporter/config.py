"""Every knob of the metrics exporter, its unit and its reason."""

import os
from collections.abc import Sequence

from sunk_events.base import ClusterName
from sunk_metrics_exporter.collect import JobSeries
from sunk_runtime.config import load
from sunk_runtime.settings import Seconds, ServiceSettings

PREFIX = "SUNK_METRICS_EXPORTER_"


class Config(ServiceSettings, frozen=True, kw_only=True):
    """Read once, at start. Durations are in seconds and end in ``_s``."""

    cluster: ClusterName
    """The Slurm cluster's name."""
    stale_s: Seconds = 120.0
    """Older Slurm state is not shown: a series that stands still looks like a cluster that does."""
    job_series: JobSeries = "all"
    """Which jobs have series of their own: ``all`` that slurmctld knows, ``active`` ones, ``none``."""


def read_config(arguments: Sequence[str] = ()) -> Config:
    """Return the settings of this process.

    Raises:
        ConfigError: a setting is unknown, missing or not allowed.
    """
    return load(Config, os.environ, PREFIX, arguments)
