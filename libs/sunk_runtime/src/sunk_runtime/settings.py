"""The settings that every service has; each service's `Config` extends them.

Durations are in seconds and end in ``_s``. A secret is a path, never the secret: it rotates on disk.
"""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from sunk_runtime.jetstream import BusSettings

Seconds = Annotated[float, Meta(gt=0)]


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bus is, and where we listen."""

    nats_url: str = "nats://127.0.0.1:4222"
    """One address, or several with commas between."""
    nats_user: str = ""
    """Our user on the bus; empty where it has none."""
    nats_password_file: Path | None = None
    nats_replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    """How many servers keep each stream that we make."""
    http_host: str = "127.0.0.1"
    """Where to listen. Whoever comes from another machine needs another address."""
    http_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """0 takes any free port."""

    @property
    def bus(self) -> BusSettings:
        """How to connect to NATS."""
        return BusSettings(
            url=self.nats_url,
            user=self.nats_user,
            password_file=self.nats_password_file,
            replicas=self.nats_replicas,
        )
