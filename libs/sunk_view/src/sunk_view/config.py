"""Every knob of the view, its unit and its reason."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from sunk_events.base import ClusterName
from sunk_runtime.config import load
from sunk_runtime.settings import Seconds, ServiceSettings

PREFIX = "SUNK_VIEW_"


class Config(ServiceSettings, frozen=True, kw_only=True):
    """Read once, at start. Durations are in seconds and end in ``_s``."""

    clusters: Annotated[tuple[ClusterName, ...], Meta(min_length=1)]
    """The Slurm clusters to show."""
    namespaces: tuple[str, ...] = ()
    """The namespaces of the Slurm clusters, in the order of ``clusters``. Empty: no pod-scheduler shows."""
    namespace: str = "sunk"
    """Where the nodeset-controller is."""
    kubeconfig: Path | None = None
    """How to reach the API server; empty inside a cluster."""
    tls_cert_file: Path
    """The certificate that the API server checks against the APIService's ``caBundle``."""
    tls_key_file: Path
    """The certificate's key."""
    tls_port: Annotated[int, Meta(ge=0, le=65535)] = 8443
    """Where the API server connects. ``http_port`` has probes and metrics only."""
    rate_per_s: Annotated[float, Meta(gt=0)] = 5.0
    """How many questions a second a caller may ask for long. ServiceAccounts of a namespace count as one."""
    burst: Annotated[int, Meta(ge=1)] = 20
    """How many questions a caller may ask before the rate counts; eight of them are answered at a time."""
    decisions_s: Seconds = 10.0
    """For how long a permission that the API server granted or denied is remembered."""
    answer_s: Seconds = 3.0
    """How long to wait for the answer of a service."""
    silent_s: Seconds = 15.0
    """After so long without a sign of life of the bus nothing is answered: it may be old."""


def read_config(arguments: Sequence[str] = ()) -> Config:
    """Return the settings of this process.

    Raises:
        ConfigError: a setting is unknown, missing or not allowed.
    """
    return load(Config, os.environ, PREFIX, arguments)
