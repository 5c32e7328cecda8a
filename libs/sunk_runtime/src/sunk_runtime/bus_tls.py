"""TLS to NATS: whose certificates we accept, and what is said of one that we do not.

What must stay true: with a file of CA certificates nothing is sent to a server that speaks no TLS, or whose
certificate or name is wrong. A file that was renewed counts at the next connect.

Source: nats-py 2.16, which upgrades a connection only if the server says that it must.
"""

import logging
import ssl
from pathlib import Path

from sunk_runtime.errors import ConfigError

log = logging.getLogger(__name__)


class NoTlsError(ssl.SSLError):
    """The server speaks no TLS, and we must have it."""


class Trust:
    """The CA certificates of a file."""

    def __init__(self, file: Path) -> None:
        """Read *file*.

        Raises:
            ConfigError: it cannot be read, or holds no certificate.
        """
        self._file = file
        try:
            self.context = ssl.create_default_context(cafile=file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cannot read CA certificates in {file} (nats_ca_file): {error}") from error

    def read_again(self) -> None:
        """Take up certificates that came into the file; only log failure. Those of before still count."""
        try:
            self.context.load_verify_locations(self._file)
        except (OSError, ssl.SSLError) as error:
            log.warning("CA certificates not read", extra={"file": str(self._file), "error": str(error)})


def refusal(error: Exception, *, has_ca_file: bool) -> str | None:
    """Return what is wrong with the server's TLS, and which setting that is; None if nothing is."""
    if isinstance(error, NoTlsError):
        return (
            "NATS does not use TLS, and nats_ca_file is set: turn TLS on in NATS, or leave nats_ca_file empty"
        )
    if not isinstance(error, ssl.SSLCertVerificationError):
        return None
    why = error.verify_message or str(error)
    if has_ca_file:
        fix = "Its CA must be in nats_ca_file, and the host of nats_url in the certificate"
        return f"NATS' certificate is refused: {why}. {fix}"
    return f"NATS uses TLS, and its certificate is refused: {why}. Set nats_ca_file to a file with its CA"
