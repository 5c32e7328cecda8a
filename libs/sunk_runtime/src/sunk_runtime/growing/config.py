"""Where the one server and the three are."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from sunk_runtime.bus_settings import BusSettings
from sunk_runtime.config import load
from sunk_runtime.settings import Seconds

PREFIX: Final = "SUNK_GROW_"


class GrowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What ``SUNK_GROW_*`` or the arguments say."""

    source: str
    """Where the one server is."""
    target: str
    """Where the three are; several addresses with commas between."""
    user: str = ""
    """A user of both that may do everything."""
    password_file: Path | None = None
    ca_file: Path | None = None
    """CA certificates of both."""
    volume_mib: int = 0
    """Size of the volume that has both sides' streams for a while; 0: not known."""
    within_s: Seconds = 1800.0
    """How long to try."""

    def bus(self, url: str) -> BusSettings:
        """How to connect to *url*."""
        return BusSettings(url=url, user=self.user, password_file=self.password_file, ca_file=self.ca_file)


def settings(arguments: Sequence[str]) -> GrowSettings:
    """Return the settings: an argument wins over its variable.

    Raises:
        ConfigError: one is unknown, missing or not allowed.
    """
    return load(GrowSettings, os.environ, PREFIX, arguments)
