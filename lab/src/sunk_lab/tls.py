"""A proxy that speaks TLS for a server that does not, such as Debian's slurmrestd.

On asyncio's streams: tests cut connections by `abort` and `close` from outside of their tasks, which anyio's
do not let them.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from sunk_lab.kube.certificates import Authority

_CHUNK: Final = 65536
_NAME: Final = "server"


class TlsProxy:
    """What stands before a server and speaks TLS for it. Make it with `tls_proxy`."""

    def __init__(self, server: str, folder: Path) -> None:
        host, _, port = server.removeprefix("http://").partition(":")
        self._server = host, int(port)
        self._folder = folder
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._open = set[asyncio.StreamWriter]()
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self.connections = 0
        """That were ever made."""
        self.ca_file = folder / "ca.crt"
        """Of the authority that clients are to believe."""
        self.url = ""

    def certify(self, authority: str) -> None:
        """Have a new certificate of *authority*, which is the one that clients are told of from now on."""
        made = Authority(self._folder / authority)
        made.found()
        for old in (made.crt(_NAME), made.key(_NAME)):
            old.unlink(missing_ok=True)
        made.issue(_NAME, _NAME, names="IP:127.0.0.1")
        self.context.load_cert_chain(made.crt(_NAME), made.key(_NAME))
        new = self.ca_file.with_suffix(".new")
        new.write_bytes(made.crt().read_bytes())
        new.rename(self.ca_file)

    def end_all(self) -> None:
        """End every connection, as proxies do with those that are idle."""
        for client in self._open:
            client.close()

    async def join(self, received: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        self.connections += 1
        self._open.add(client)
        self._all_ended.clear()
        try:
            answered, server = await asyncio.open_connection(*self._server)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_carry(received, server, client))
                tasks.create_task(_carry(answered, client, server))
        except OSError:
            pass  # Nobody listens there now: the client is told by its own end.
        finally:
            client.close()
            self._open.discard(client)
            if not self._open:
                self._all_ended.set()

    async def abort(self) -> None:
        """End every connection now, and return when there is none."""
        for client in self._open:
            client.transport.abort()
        await self._all_ended.wait()


async def _carry(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, other: asyncio.StreamWriter
) -> None:
    """Carry one way until either end is gone; then neither stays."""
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    target.close()
    other.close()


@asynccontextmanager
async def tls_proxy(url: str, folder: Path) -> AsyncGenerator[TlsProxy]:
    """Serve what is served at *url*, with a certificate for 127.0.0.1, for as long as the context lasts."""
    proxy = TlsProxy(url, folder)
    proxy.certify("first")
    listening = await asyncio.start_server(proxy.join, "127.0.0.1", 0, ssl=proxy.context)
    proxy.url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listening.close()
        await proxy.abort()
