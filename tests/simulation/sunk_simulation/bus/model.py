"""A nats-server of a simulation: its store, its process and its faults."""

import asyncio
from random import Random
from typing import Final

from sunk_simulation.bus.server import Server
from sunk_simulation.bus.settings import Settings
from sunk_simulation.bus.store import Store
from sunk_simulation.loop import Process
from sunk_simulation.network import Network, NetworkLoop
from sunk_simulation.trace import Trace

PORT: Final = 4222
SYNC_S: Final = 120.0
"""How often nats-server writes to its disk, unless it is told to do so always."""


class ModelNats:
    """A nats-server that may be started, killed, paused; what it stored stays, but for what a fault takes.

    `store` is what a checker looks at.
    """

    def __init__(
        self,
        loop: NetworkLoop,
        trace: Trace,
        random: Random,
        *,
        name: str = "nats",
        host: str = "",
        port: int = PORT,
        settings: Settings | None = None,
        servers: int = 1,
    ) -> None:
        """Describe it; *servers*: of how many it is the model, which allows so many replicas."""
        self.store: Final = Store()
        self.name: Final = name
        self.host: Final = host or name
        self.port: Final = port
        self.settings = settings or Settings()
        self.process: Process | None = None
        self.server: Server | None = None
        self._loop: Final = loop
        self._network: Final[Network] = loop.network
        self._trace: Final = trace
        self._random: Final = random
        self._servers: Final = servers
        self._synced: Store = Store()
        self._lose = 0
        self.changed = lambda: None
        """Called after each change of the store: `Simulation.changed`."""

    @property
    def is_running(self) -> bool:
        """Whether it does."""
        return self.process is not None and self.process.is_alive

    def start(self) -> None:
        """Start it; it running is success."""
        if self.is_running:
            return
        self._network.revive_host(self.host)
        self.process = process = self._loop.process(self.name, host=self.host)
        self._trace.write(self.name, "starts", streams=len(self.store.streams))
        process.run(self._open, process)
        process.start(self._sync)

    def kill(self) -> None:
        """End it between two lines; what it acknowledged is there afterwards, as the kernel has it."""
        if self.process is not None and self.process.is_alive:
            self._trace.write(self.name, "is killed")
            self.process.kill()
        self.server = None

    def lose_power(self) -> None:
        """End it, and with it what was not synced to its disk yet."""
        self.kill()
        self._trace.write(self.name, "loses what was not synced")
        self.store.put_back(self._synced)
        self.changed()

    def go_back(self, older: Store) -> None:
        """End it, and give it the disk that it had when *older* was made by `store.copy()`."""
        self.kill()
        self._trace.write(self.name, "goes back")
        self.store.put_back(older)
        self.changed()

    def be_new(self) -> None:
        """End it, and give it an empty disk."""
        self.kill()
        self._trace.write(self.name, "has a new disk")
        self.store.forget()
        self._synced = Store()
        self.changed()

    def lose_answers(self, count: int = 1) -> None:
        """Let so many of the next acknowledgements and answers get lost, after what was asked took effect."""
        self._lose += count

    def lose_stream(self, name: str) -> None:
        """Have one stream be gone with all that it held, as where somebody removed it."""
        server = self.server
        if server is not None and self.process is not None and name in self.store.streams:
            self.process.run(server.jetstream.call, f"$JS.API.STREAM.DELETE.{name}", "", b"")
            self._trace.write(self.name, "loses a stream", stream=name)
            self.changed()

    def purge_stream(self, name: str) -> None:
        """Have one stream be empty, as where somebody purged it; it goes on counting."""
        server = self.server
        if server is not None and self.process is not None and name in self.store.streams:
            self.process.run(server.jetstream.call, f"$JS.API.STREAM.PURGE.{name}", "", b"")
            self.changed()

    def lag(self, stream: str, messages: int, seconds: float) -> None:
        """Let who begins to read *stream* read a replica that is so many messages behind, for so long."""
        server, found = self.server, self.store.streams.get(stream)
        if server is not None and found is not None:
            self._trace.write(self.name, "has a replica that lags", stream=stream, messages=messages)
            server.jetstream.lagging[stream] = max(0, found.last_seq - messages)
            self._network.later(seconds, self._catch_up, server, stream)

    def have_no_leader(self, stream: str, seconds: float) -> None:
        """Let nobody answer what is published to *stream* for so long, as while a leader is chosen."""
        server = self.server
        if server is not None:
            self._trace.write(self.name, "has no leader", stream=stream)
            server.jetstream.leaderless.add(stream)
            self._network.later(seconds, server.jetstream.leaderless.discard, stream)

    def _catch_up(self, server: Server, stream: str) -> None:
        if server is self.server and self.process is not None:
            self.process.run(server.jetstream.catch_up, stream)

    def _open(self, process: Process) -> None:
        # Who listens is there at once: whoever started it may connect.
        self.server = server = Server(
            self.store,
            self.settings,
            loop=self._loop,
            now_ns=process.clock.peek_ns,
            name=self.name,
            random=self._random,
            told=self._told,
            servers=self._servers,
        )
        server.loses_answer = self._is_lost
        self._network.listen(process, "", self.port, server.client)

    async def _sync(self) -> None:
        while True:
            self._synced = self.store.copy()
            await asyncio.sleep(SYNC_S)

    def _is_lost(self, subject: str) -> bool:
        if not self._lose:
            return False
        self._lose -= 1
        self._trace.write(self.name, "answer is lost", subject=subject)
        return True

    def _told(self, what: str, **more: object) -> None:
        self._trace.write(self.name, what, **more)
        self.changed()
