"""Every knob of the metrics exporter, its unit and its reason."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from sunk_events.base import ClusterName
from sunk_metrics_exporter.collect import JobSeries
from sunk_runtime.config import load
from sunk_runtime.jetstream import BusSettings

PREFIX = "SUNK_METRICS_EXPORTER_"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Read once, at start. Durations are in seconds and end in ``_s``."""

    cluster: ClusterName
    """The Slurm cluster's name."""
    nats_url: str = "nats://127.0.0.1:4222"
    """One address, or several with commas between."""
    nats_user: str = ""
    """Our user on the bus; empty where it has none."""
    nats_password_file: Path | None = None
    """A path, never the password: it rotates on disk."""
    nats_replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    """How many servers keep each stream that we make."""
    http_host: str = "127.0.0.1"
    """Where to listen. Prometheus comes from another machine: set it."""
    http_port: Annotated[int, Meta(ge=0, le=65535)] = 8084
    """0 takes any free port, which the log names."""
    stale_s: Annotated[float, Meta(gt=0)] = 120.0
    """Older Slurm state is not shown: a series that stands still looks like a cluster that does."""
    job_series: JobSeries = "all"
    """Which jobs have series of their own: ``all`` that slurmctld knows, ``active`` ones, ``none``."""

    @property
    def bus(self) -> BusSettings:
        """How to connect to NATS."""
        return BusSettings(
            url=self.nats_url,
            user=self.nats_user,
            password_file=self.nats_password_file,
            replicas=self.nats_replicas,
        )


def read_config() -> Config:
    """Return the settings of this process.

    Raises:
        ConfigError: a setting is unknown, missing or not allowed.
    """
    return load(Config, os.environ, PREFIX)
