"""The processes that `failover` ends and starts again, and the connections between them."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import httpx
from anyio.abc import SocketStream

from sunk_lab.ports import free_port

_CHUNK: Final = 65536


class Balanced:
    """Gives each connection to one of *ports* by chance, to one that is dead too: the client is cut off."""

    def __init__(self, *ports: int) -> None:
        self.ports = ports
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    async def run(self) -> None:
        """Serve until cancelled."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self.port)
        await listener.serve(self._pass_on)

    async def _pass_on(self, client: SocketStream) -> None:
        async with client:
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                server = await anyio.connect_tcp("127.0.0.1", random.choice(self.ports))  # noqa: S311 - no secret
                async with server, anyio.create_task_group() as tasks:
                    for source, target in ((client, server), (server, client)):
                        tasks.start_soon(_pump, source, target, tasks.cancel_scope)


async def _pump(source: SocketStream, target: SocketStream, whole: anyio.CancelScope) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        while True:
            await target.send(await source.receive(_CHUNK))
    whole.cancel()


class Replica:
    """One of two processes of a service, which may be ended and started again."""

    def __init__(self, service: str, port: int, settings: Mapping[str, str], folder: Path) -> None:
        self._module = "sunk_" + service.replace("-", "_")
        self.url = f"http://127.0.0.1:{port}"
        prefix = self._module.upper() + "_"
        own = {**settings, "HTTP_PORT": str(port)}
        self._environment = {"PATH": os.environ["PATH"]}  # noqa: TID251 - a child's environment is made here
        self._environment |= {prefix + name: value for name, value in own.items()}
        self._log = folder / f"{service}-{port}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; it running is success."""
        if self.is_running:
            return
        with self._log.open("ab") as log:
            argv = [sys.executable, "-m", self._module]
            self._process = subprocess.Popen(argv, env=self._environment, stdout=log, stderr=log)

    @property
    def losses(self) -> int:
        """How often it lost its lease although it lived."""
        return self._log.read_text().count('"no longer leading"') if self._log.exists() else 0

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; it may end later."""
        if self._process is not None:
            self._process.send_signal(number)

    def end(self) -> None:
        """End it at once; it not running is success."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def metrics(self, http: httpx.AsyncClient) -> str:
        """Return its metrics; none while it does not answer."""
        try:
            return (await http.get(f"{self.url}/metrics")).text
        except httpx.TransportError:
            return ""

    async def is_ready(self, http: httpx.AsyncClient) -> bool:
        """Whether it says that it is ready."""
        try:
            return (await http.get(f"{self.url}/readyz")).is_success
        except httpx.TransportError:
            return False
