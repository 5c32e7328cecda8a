"""Where the bus is and who looks at it: from the environment, and what the arguments say instead."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from sunk_runtime.config import load
from sunk_runtime.errors import ConfigError
from sunk_runtime.jetstream import BusSettings
from sunk_runtime.settings import Seconds

PREFIX: Final = "SUNK_BUS_"


class CliSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What ``SUNK_BUS_*`` or the options say."""

    url: str = "nats://127.0.0.1:4222"
    """One address, or several with commas between."""
    user: str = ""
    password_file: Path | None = None
    creds: Path | None = None
    """A credentials file of NATS, instead of user and password."""
    ca_file: Path | None = None
    """CA certificates that the server's certificate must come from. With it every connection uses TLS."""
    cluster: str = ""
    """The Slurm cluster to look at; empty: all on this bus."""
    timeout_s: Seconds = 5.0
    """How long to try to connect."""

    @property
    def bus(self) -> BusSettings:
        """How to connect."""
        return BusSettings(
            url=self.url,
            user=self.user,
            password_file=self.password_file,
            credentials_file=self.creds,
            ca_file=self.ca_file,
        )


def settings(options: Mapping[str, object], environment: Mapping[str, str] | None = None) -> CliSettings:
    """Return the settings: an option that was given wins over its variable.

    Raises:
        ConfigError: a variable is unknown or not allowed, or a file cannot be read.
    """
    found = load(CliSettings, os.environ if environment is None else environment, PREFIX)
    given = {name: options[name] for name in CliSettings.__struct_fields__ if options.get(name) is not None}
    found = msgspec.structs.replace(found, **given)
    for path in filter(None, (found.password_file, found.creds, found.ca_file)):
        try:
            path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    return found
