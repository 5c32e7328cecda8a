"""The certificate authorities of slurmrestd, from a file.

httpx takes one `ssl.SSLContext` for as long as a client lives. This one has each connection begun by another,
made anew whenever the file has changed: authorities are renewed too.

Source: anyio, ``TLSStream.wrap``: a context's ``wrap_bio`` may do I/O, it is called in a thread.
"""

import ssl
from pathlib import Path
from typing import Self


class Trust(ssl.SSLContext):
    """What connections with TLS are made with."""

    def __new__(cls, ca_file: Path) -> Self:
        """Make one for a client."""
        del ca_file
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, ca_file: Path) -> None:
        self._file = ca_file
        self._inner: ssl.SSLContext | None = None
        self._seen: tuple[int, int] | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - as in Python
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begin a connection that trusts the authorities in the file now.

        Raises:
            ssl.SSLError: the file cannot be read, or holds no certificate; it may in a moment.
        """
        return self._now().wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def _now(self) -> ssl.SSLContext:
        try:
            found = self._file.stat()
            seen = found.st_mtime_ns, found.st_ino
            if self._inner is None or seen != self._seen:
                self._inner, self._seen = ssl.create_default_context(cafile=self._file), seen
        except OSError as error:  # ssl.SSLError is one.
            text = f"read {self._file}: {error.strerror or error}"
            raise ssl.SSLError(error.errno or 0, text) from None
        return self._inner
