"""Which Secrets hold the certificate, and what it is for."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from sunk_runtime.config import load
from sunk_runtime.settings import Seconds

PREFIX: Final = "SUNK_CERTIFICATE_"


class CertificateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What ``SUNK_CERTIFICATE_*`` or the arguments say."""

    namespace: str
    """Where both Secrets are."""
    names: tuple[str, ...]
    """Host names of the certificate, with commas between."""
    authority_secret: str = "sunk-nats-authority"  # noqa: S105 - the name of a Secret.
    """Holds the authorities with their keys."""
    server_secret: str = "sunk-nats-tls"  # noqa: S105 - the name of a Secret.
    """Holds the server's certificate, its key and ca.crt."""
    kubeconfig: Path | None = None
    """A kubeconfig; none in a Pod."""
    look_s: Seconds = 60.0
    """How often it is looked whether something is to be renewed, or was emptied: Pods wait for it."""


def settings(arguments: Sequence[str]) -> CertificateSettings:
    """Return the settings: an argument wins over its variable.

    Raises:
        ConfigError: one is unknown, missing or not allowed.
    """
    return load(CertificateSettings, os.environ, PREFIX, arguments)
