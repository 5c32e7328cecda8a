"""Runs tests that were written for nats-server against the model, in virtual time.

``pytest -p sunk_simulation.bus.pytest_plugin``: `sunk_lab.nats.NatsServer` is the model then, and a test's
event loop a simulated one. So a contract of both is one suite. SUNK_SIMULATION_TRACE=1 shows
what happened, SUNK_SIMULATION_SEED is the seed of each test.
"""

import shutil
from pathlib import Path
from random import Random
from typing import Final, Self

from sunk_simulation.ambient import install

install()  # Before anything of ours is imported: what it takes for itself then is the simulation's.

from sunk_lab import nats  # noqa: E402
from sunk_lab.errors import LabError  # noqa: E402
from sunk_simulation.bus.model import ModelNats  # noqa: E402
from sunk_simulation.bus.settings import read  # noqa: E402
from sunk_simulation.bus.store import Store  # noqa: E402
from sunk_simulation.testing import world  # noqa: E402

pytest_plugins = ["sunk_simulation.pytest_plugin"]
_MIB: Final = 1 << 20


class NatsServer:
    """The model behind the face of `sunk_lab.nats.NatsServer`; its store is in *folder* at rest."""

    def __init__(
        self,
        folder: Path,
        processes: object = None,
        *,
        port: int = 0,
        max_store_mib: int | None = None,
        sync: str = "",
        extra: str = "",
    ) -> None:
        """Describe it."""
        self._folder = folder.absolute()
        self._port = port
        self._settings = read(extra, max_store=max_store_mib * _MIB if max_store_mib else None)
        self._model: ModelNats | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        """Return where clients connect."""
        port = self._port or self._last_port()
        if not port:
            raise LabError(f"the NATS of {self._folder} has no port yet: start it first")
        return f"nats://127.0.0.1:{port}"

    @property
    def pid(self) -> int | None:
        """Return its pid while it runs."""
        is_running = self._model is not None and self._model.is_running
        return self._model.process.pid if is_running and self._model and self._model.process else None

    def start(self) -> None:
        """Start it; it running is success."""
        if self.pid:
            return
        sim = world.now()
        self._folder.mkdir(parents=True, exist_ok=True)
        port = self._port or self._last_port() or world.port()
        self._port_file.write_text(str(port))
        outside = sim.loop.outside.host
        self._model = ModelNats(
            sim.loop,
            sim.trace,
            Random(port),
            host=outside,
            port=port,
            settings=self._settings,
        )
        if self._store.exists():
            self._model.store.put_back(Store.load(self._store.read_bytes()))
        self._model.start()

    def stop(self) -> None:
        """End it; what it stored stays."""
        self.kill()

    def kill(self) -> None:
        """End it; it not running is success."""
        if self._model is not None and self._model.is_running:
            self._model.kill()
            self._store.parent.mkdir(exist_ok=True)
            self._store.write_bytes(self._model.store.dump())

    def hang(self) -> None:
        """Let it hang."""
        if self._model is not None and self._model.process is not None:
            self._model.process.pause()

    def resume(self) -> None:
        """End a `hang`."""
        if self._model is not None and self._model.process is not None:
            self._model.process.resume()

    def retire(self) -> None:
        """Have it send its clients away."""
        if self._model is not None and self._model.server is not None:
            self._model.server.retire()
            self.kill()

    def keep_store(self, name: str = "kept") -> None:
        """Restart it, and keep what it has stored until now as *name*."""
        self.stop()
        shutil.copytree(self._store.parent, self._folder / name)
        self.start()

    def put_store_back(self, name: str = "kept") -> None:
        """Kill it and start it with what `keep_store` has kept."""
        self.kill()
        self.wipe()
        shutil.copytree(self._folder / name, self._store.parent)
        self.start()

    def wipe(self) -> None:
        """Remove all that it stored."""
        self._store.unlink(missing_ok=True)
        if self._store.parent.exists():
            self._store.parent.rmdir()

    def restart(self) -> None:
        """End it and start it again."""
        self.stop()
        self.start()

    @property
    def _store(self) -> Path:
        return self._folder / "store" / "model"

    @property
    def _port_file(self) -> Path:
        return self._folder / "port"

    def _last_port(self) -> int:
        return int(self._port_file.read_text()) if self._port_file.exists() else 0


nats.NatsServer = NatsServer  # type: ignore[misc, assignment]
