"""What the gateway speaks TLS with: a certificate on disk that is renewed there, as cert-manager does.

What must stay true: a connection is made with the newest pair that fits together; one that was written by
half leaves the one before in use. A context that connections are made from is never changed: OpenSSL does
not lock it, and the process dies.

Source: SSL_CTX_use_certificate(3), SSL_set_SSL_CTX(3); Python, `ssl.SSLContext.sni_callback`.
"""

import logging
import os
import ssl
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from cryptography import x509

from sunk_hook_gateway.metrics import CERTIFICATE_END, CERTIFICATE_START
from sunk_runtime.errors import ConfigError

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""How often the files are looked at."""


class Certificate:
    """A certificate with its key, for as long as `run` runs the newest one."""

    def __init__(self, file: Path, key_file: Path) -> None:
        """Read both.

        Raises:
            ConfigError: they cannot be read, or are no pair.
        """
        self._files = file, key_file
        try:
            self._seen = self._stamp()
            self._newest = self._read()
            self.context: Final = self._read()
            """What a server listens with; each connection goes on with the newest."""
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file}, {key_file}: no certificate with its key: {error}") from error
        self.context.sni_callback = self._hand_over

    async def run(self, *, look_s: float = LOOK_S) -> None:
        """Take over what is renewed on disk, until cancelled; connections that stand are left alone."""
        while True:
            await anyio.sleep(look_s)
            await anyio.to_thread.run_sync(self._renew)

    def _renew(self) -> None:
        try:
            stamp = self._stamp()
            if stamp == self._seen:
                return
            self._newest = self._read()
        except (OSError, ValueError) as error:
            log.warning("certificate not renewed", extra={"file": str(self._files[0]), "error": str(error)})
        else:
            self._seen = stamp
            log.info("certificate renewed", extra={"file": str(self._files[0])})

    def _hand_over(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Go on with the newest certificate; called for each connection, whether or not it names a server."""
        connection.context = self._newest

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._files)
        shown = x509.load_pem_x509_certificate(self._files[0].read_bytes())  # The first is the server's.
        name = str(self._files[0])
        CERTIFICATE_START.labels(name).set(shown.not_valid_before_utc.timestamp())
        CERTIFICATE_END.labels(name).set(shown.not_valid_after_utc.timestamp())
        return context

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        """Return what changes when one of the files does, also where a link is turned."""
        found = (os.stat(file) for file in self._files)  # noqa: PTH116 - follows links, as it shall
        return tuple((one.st_mtime_ns, one.st_ino) for one in found)
