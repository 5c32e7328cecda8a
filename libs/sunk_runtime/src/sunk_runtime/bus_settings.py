"""Where NATS is, who we are there, and what we make there."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from sunk_runtime.errors import ConfigError

ELECTION_S: Final = 15.0
"""Longer than three servers take to choose a stream's new leader, which is about 5 s."""


class BusSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where NATS is and who we are there."""

    url: str = "nats://127.0.0.1:4222"
    user: str = ""
    password_file: Path | None = None
    credentials_file: Path | None = None
    """NATS' own file of a user's JWT and seed, instead of user and password; it needs ``nats-py[nkeys]``."""
    ca_file: Path | None = None
    """CA certificates that the server's certificate must come from. With it every connection uses TLS."""
    replicas: int = 1
    facts_max_bytes: int = 1 << 30
    facts_max_age_s: int = 7 * 86400
    publish_retry_s: float | None = None
    """How long a publish is repeated while no server leads its stream; by default only of three servers."""

    @property
    def retry_s(self) -> float:
        """For how long a publish is repeated while no server leads its stream."""
        if self.publish_retry_s is not None:
            return self.publish_retry_s
        return ELECTION_S if self.replicas > 1 else 0.0

    def password_reader(self) -> Callable[[], str] | None:
        """Return what reads the password's file anew each time; None where there is none.

        Raises:
            ConfigError: the file cannot be read now.
        """
        file = self.password_file
        if file is None:
            return None
        try:
            file.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read the password in {file}: {error.strerror}") from error
        return lambda: file.read_text().strip()
