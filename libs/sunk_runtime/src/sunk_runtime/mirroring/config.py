"""Where the server of other teams is, and whose streams it mirrors."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from sunk_events.base import ClusterName
from sunk_runtime.bus_settings import BusSettings
from sunk_runtime.config import load
from sunk_runtime.settings import Seconds

PREFIX: Final = "SUNK_MIRROR_"


class MirrorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What ``SUNK_MIRROR_*`` or the arguments say."""

    clusters: tuple[ClusterName, ...]
    """The Slurm clusters, with commas between."""
    url: str = "nats://127.0.0.1:4222"
    """Where the server of other teams is."""
    user: str = ""
    """Who we are there."""
    password_file: Path | None = None
    """Holds that user's password."""
    ca_file: Path | None = None
    """CA certificates of the server."""
    look_s: Seconds = 15.0
    """How often each mirror is compared with its stream."""
    facts_max_bytes: int = 1 << 30
    facts_max_age_s: int = 7 * 86400

    @property
    def bus(self) -> BusSettings:
        """How to connect."""
        return BusSettings(
            url=self.url, user=self.user, password_file=self.password_file, ca_file=self.ca_file
        )


def settings(arguments: Sequence[str]) -> MirrorSettings:
    """Return the settings: an argument wins over its variable.

    Raises:
        ConfigError: one is unknown, missing or not allowed.
    """
    return load(MirrorSettings, os.environ, PREFIX, arguments)
