"""Whom to believe that he is slurmrestd: the authorities of a file, or those that every browser knows.

The file is read again when it has changed: authorities are renewed too.
"""

import ssl
from pathlib import Path

import httpx


class Trust:
    """What connections with TLS are made with."""

    def __init__(self, ca_file: Path | None = None) -> None:
        self._file = ca_file
        self._context: ssl.SSLContext | None = None
        self._seen: tuple[int, int] | None = None

    @property
    def context(self) -> ssl.SSLContext:
        """What the next connection is to be made with.

        Raises:
            httpx.ConnectError: the file cannot be read, or holds no certificate; it may in a moment.
        """
        if self._file is None:
            self._context = self._context or httpx.create_ssl_context(trust_env=False)
            return self._context
        try:
            found = self._file.stat()
            seen = found.st_mtime_ns, found.st_ino
            if self._context is None or seen != self._seen:
                self._context, self._seen = ssl.create_default_context(cafile=self._file), seen
        except OSError as error:  # ssl.SSLError is one.
            raise httpx.ConnectError(f"read {self._file}: {error.strerror or error}") from error
        return self._context
