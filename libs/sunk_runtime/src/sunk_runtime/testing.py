"""A real nats-server for tests, which may be killed, stopped and started again."""

import os
import shutil
import signal
import subprocess
import sysconfig
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from pathlib import Path
from typing import Final

import anyio
import msgspec

WITHIN_S: Final = 10.0
"""How long a test waits for what must come; far more than it takes."""


class _Ports(msgspec.Struct, frozen=True):
    nats: tuple[str, ...] = ()


class NatsServer:
    """One nats-server with JetStream on disk in *folder*; it keeps its port and its data over restarts."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self._folder = folder
        self._config = folder / "nats.conf"
        self._extra = config
        self._port = -1
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect; there from the first start on."""
        return f"nats://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it and return when it listens."""
        binary = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or "nats-server"
        self._config.write_text(
            f'listen: "127.0.0.1:{self._port}"\nports_file_dir: "{self._folder}"\n'
            f'jetstream {{ store_dir: "{self._folder}" }}\n{self._extra}\n'
        )
        with (self._folder / "nats.log").open("ab") as log:
            process = subprocess.Popen([binary, "-c", str(self._config)], stdout=log, stderr=log)
        self._process = process
        self._port = self._listening(self._folder / f"nats-server_{process.pid}.ports", process)

    def kill(self) -> None:
        """Kill it as the kernel does when memory is short."""
        self._signal(signal.SIGKILL)
        self._wait()

    def stop(self) -> None:
        """Let it hang: connections stay, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a `stop`."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self._process is not None:
            self.kill()

    def _listening(self, ports: Path, process: "subprocess.Popen[bytes]") -> int:
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline and process.poll() is None:
            try:
                (url, *_) = msgspec.json.decode(ports.read_bytes(), type=_Ports).nats
                return int(url.rpartition(":")[2])
            except (OSError, ValueError, msgspec.DecodeError):
                time.sleep(0.005)
        raise RuntimeError(f"nats-server did not start: see {self._folder / 'nats.log'}")

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)

    def _wait(self) -> None:
        if self._process is not None:
            self._process.wait(WITHIN_S)
            self._process = None


async def until(condition: Callable[[], bool | Awaitable[bool]], *, within_s: float = WITHIN_S) -> None:
    """Return when *condition* holds; fail when it does not within *within_s* seconds."""
    with anyio.fail_after(within_s):
        while True:
            holds = condition()
            if await holds if isawaitable(holds) else holds:
                return
            await anyio.sleep(0.01)
