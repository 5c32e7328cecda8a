"""The settings that every service has; each service's `Config` extends them.

Durations are in seconds and end in ``_s``. A secret is a path, never the secret: it rotates on disk.
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sunk_runtime.bus_settings import BusSettings
from sunk_runtime.tracing import TraceSettings

Seconds = Annotated[float, Meta(gt=0)]


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bus is, and where we listen."""

    nats_url: str = "nats://127.0.0.1:4222"
    """One address, or several with commas between."""
    nats_user: str = ""
    """Our user on the bus; empty where it has none."""
    nats_password_file: Path | None = None
    """Holds that user's password."""
    nats_ca_file: Path | None = None
    """CA certificates that NATS' certificate must come from, read again when a connection breaks. With it
    nothing is sent without TLS. The certificate must have the host of ``nats_url``."""
    nats_replicas: Literal[1, 3] = 1
    """How many servers keep each stream that we make: 1, or 3 where three servers are one cluster."""
    nats_publish_retry_s: Annotated[float, Meta(ge=0)] | None = None
    """A publish is repeated this long while no server leads its stream; empty: 15 with 3 replicas, else 0."""
    http_host: str = "127.0.0.1"
    """Address to listen on. The default accepts connections from this machine only."""
    http_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """0 takes any free port."""
    traces_endpoint: str = ""
    """Base URL of an OpenTelemetry collector, such as ``http://collector:4318`` (OTLP); empty: off."""
    traces_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Fraction of the traces started here that is recorded. A trace that another service started follows that
    service's decision."""

    @property
    def traces(self) -> TraceSettings:
        """Where spans go."""
        return TraceSettings(endpoint=self.traces_endpoint, ratio=self.traces_ratio)

    @property
    def bus(self) -> BusSettings:
        """How to connect to NATS."""
        return BusSettings(
            url=self.nats_url,
            user=self.nats_user,
            password_file=self.nats_password_file,
            ca_file=self.nats_ca_file,
            replicas=self.nats_replicas,
            publish_retry_s=self.nats_publish_retry_s,
        )
