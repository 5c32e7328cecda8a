"""A connection for somebody who looks: it gives up after a while and says what to do."""

import math
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio

from sunk_bus.config import CliSettings
from sunk_bus.output import Output
from sunk_bus.reading import Record, clusters_of, reading, start_at, stream_infos, stream_name
from sunk_events import subjects
from sunk_runtime.errors import BusUnavailableError, PermanentError, SunkError, TransientError
from sunk_runtime.jetstream import Bus, connect

_SECRET: Final = re.compile(r"//[^/,@]*@")
_AGAIN_S: Final = 0.5


class Session:
    """The bus, which part of it to look at, and where to write."""

    def __init__(self, bus: Bus, settings: CliSettings, out: Output) -> None:
        self.bus = bus
        self.out = out
        self.cluster = settings.cluster
        """The one to look at; empty: all."""
        self.timeout_s = settings.timeout_s
        self.where = _SECRET.sub("//", settings.url)

    async def streams(self) -> list[str]:
        """Return the name of every stream."""
        return [stream_name(info) for info in await stream_infos(self.bus)]

    async def clusters(self, wanted: str = "*") -> list[str]:
        """Return the clusters to look at.

        Raises:
            PermanentError: there is none, or none called so; says which there are.
        """
        there = clusters_of(await self.streams())
        if not there:
            raise PermanentError(
                f"{self.where} has no facts of any cluster: no service has created its streams yet"
            )
        name = wanted if wanted != "*" else self.cluster or "*"
        if self.cluster and name != self.cluster:
            raise PermanentError(f"the subject names cluster {name}, --cluster {self.cluster}")
        if name == "*":
            return there
        if name not in there:
            raise PermanentError(f"no cluster is called {name!r}: there are {', '.join(there)}")
        return [name]

    async def require_dead_letters(self) -> None:
        """Raise `PermanentError` where the stream of dead letters is not there."""
        if subjects.DEAD_LETTER_STREAM not in await self.streams():
            raise PermanentError(f"{self.where} has no dead letters: no service has created its streams yet")

    async def follow(
        self, stream: str, seq: int, filter_subject: str, take: Callable[[Record], None]
    ) -> None:
        """Hand what is stored from *seq* on to *take*, each message once, until cancelled."""
        created = ""
        while True:
            try:
                made = await self._created(stream)
                if created and made != created:
                    self.out.note(f"{stream} was created again")
                    seq = 1
                created = made
                async with reading(self.bus, stream, start_at(seq), filter_subject) as reader:
                    while True:
                        if record := await reader.next():
                            seq = record.seq + 1
                            take(record)
            except SunkError as error:  # Gone for good or not: the command goes on reading.
                self.out.note(f"{error}; trying again")
                pause_s = _AGAIN_S if isinstance(error, TransientError) else self.timeout_s
                await anyio.sleep(pause_s)

    async def _created(self, stream: str) -> str:
        return str((await self.bus.js.stream_info(stream)).created)


@asynccontextmanager
async def opened(settings: CliSettings, out: Output) -> AsyncGenerator[Session]:
    """Connect within the time that the settings allow.

    Raises:
        BusUnavailableError: nobody answered; says where and what to do.
        PermanentError: NATS refuses the user.
    """
    with anyio.move_on_after(settings.timeout_s) as patience:
        async with connect(settings.bus, "sunk-bus") as bus:
            patience.deadline = math.inf
            yield Session(bus, settings, out)
    if patience.cancelled_caught:
        where = _SECRET.sub("//", settings.url)
        raise BusUnavailableError(
            f"no NATS answers at {where} within {settings.timeout_s:g} s: "
            "check that it runs and that this is its address. --url or SUNK_BUS_URL sets another address, "
            "-v shows the errors"
        )
