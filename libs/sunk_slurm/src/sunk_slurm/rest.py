"""Calls of slurmrestd: several servers tried in turn, each behind its circuit, and waiting calls are woken.

What must stay true: what cannot be repeated is sent a second time only if the first was certainly not sent;
while no server answers, calls fail at once; a server in use is asked for the long document of its versions
once an hour at most, and not while it has just failed: that would keep a slow one from its calls.
"""

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Final, Self, TypeVar

import anyio

from sunk_runtime.errors import ConfigError, SunkError
from sunk_slurm.answers import understood
from sunk_slurm.call import Call
from sunk_slurm.connections import Transport
from sunk_slurm.errors import NotSentError, SlurmUnavailableError, TooLateError, may_be_the_way
from sunk_slurm.server import Server
from sunk_slurm.tokens import Tokens
from sunk_slurm.trust import Trust
from sunk_slurm.wire import Answer

T = TypeVar("T", bound=Answer)

_NOT_MODIFIED: Final = 304
_OUTAGE: Final = 3
"""So many failures in a row are an outage; loops that back off because of it are woken at its end."""
NEWER_S: Final = 3600.0
"""A server is asked for its versions no more often than that; without the version in use it is at once."""
SETTLED_S: Final = 30.0
"""The rest after an outage, which may have brought a newer version."""


class Rest:
    """The slurmrestd of one cluster. Use it as a context."""

    def __init__(
        self, url: str, tokens: Tokens, *, trust: Trust | None = None, transport: Transport | None = None
    ) -> None:
        urls = [part.strip() for part in url.split(",") if part.strip()]
        if not urls:
            raise ConfigError("give slurmrestd's address")
        self._servers: Final = [Server(part, tokens, trust=trust, transport=transport) for part in urls]
        self._failures = 0
        self._recoveries = 0
        self._recovered = anyio.Event()
        self._tasks = anyio.create_task_group()

    @property
    def version(self) -> str:
        """The API version in use; empty before the first call."""
        return next((server.version for server in self._in_turn() if server.version), "")

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        for server in self._servers:
            self._tasks.start_soon(server.choose_versions)
            self._tasks.start_soon(self._probe, server)
            self._tasks.start_soon(_look_for_newer, server)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)  # An error of the caller's stays as it is.
        finally:
            with anyio.CancelScope(shield=True):
                for server in self._servers:
                    await server.close()

    async def recoveries(self) -> AsyncGenerator[None]:
        """Yield each time that Slurm answers again after an outage."""
        seen = self._recoveries
        while True:
            while self._recoveries == seen:
                await self._recovered.wait()
            seen = self._recoveries
            yield

    async def call(self, call: Call, kind: type[T]) -> T | None:
        """Return the answer to *call*; None is HTTP 304, "not modified".

        Raises:
            SlurmUnavailableError: no answer, not Slurm's, or a failure that may pass.
            SlurmConflictError: what it names is in another state.
            TooLateError: its turn came after `Call.send_until`.
            SlurmRejectedError: Slurm refuses.
        """
        servers = self._in_turn()
        for server in servers:
            try:
                answer = await _ask(server, call, kind)
            except SlurmUnavailableError as error:
                self._failures += 1
                if server is servers[-1] or not _may_another_help(call, error):
                    raise
            else:
                self._note_answer()
                return answer
        raise AssertionError("unreachable: the last server answers or fails")

    def _in_turn(self) -> list[Server]:
        """Return the servers in their order, those that are only probed last."""
        return sorted(self._servers, key=lambda server: server.circuit.is_open)

    def _note_answer(self) -> None:
        if self._failures >= _OUTAGE:
            self._wake()
        self._failures = 0

    def _wake(self) -> None:
        self._recoveries += 1
        self._recovered.set()
        self._recovered = anyio.Event()

    async def _probe(self, server: Server) -> None:
        """Probe *server* whenever its circuit is open."""
        while True:
            await server.opened.wait()
            await anyio.sleep(server.circuit.rest_s)
            if server.circuit.is_open and await server.probe():
                self._wake()


async def _look_for_newer(server: Server) -> None:
    """Have *server* asked for its versions after an outage, and now and then: a newer one may answer."""
    outages = 0
    while True:
        if server.outages == outages:
            with anyio.move_on_after(NEWER_S):
                await server.opened.wait()
        while True:
            outages = server.outages
            await anyio.sleep(SETTLED_S)
            if server.outages == outages and not server.circuit.is_open:
                break
        server.want_version()
        await anyio.sleep(NEWER_S)


def _may_another_help(call: Call, error: SlurmUnavailableError) -> bool:
    """Whether the next server may be asked, and may know better."""
    if error.is_sent and not call.may_repeat:
        return False
    return error.number is None or may_be_the_way(error.number)


async def _ask(server: Server, call: Call, kind: type[T]) -> T | None:
    """Ask one server, and judge it by whether what it says makes sense."""
    try:
        reply = await server.ask(call)
        answer = None if reply.status == _NOT_MODIFIED else understood(call.doing, kind, reply)
    except (NotSentError, TooLateError):
        raise
    except SlurmUnavailableError as error:
        if error.number is None:
            server.note_failure(str(error))
        else:
            server.note_success()
        raise
    except SunkError:
        server.note_success()
        raise
    server.note_success()
    return answer


class RestClient:
    """What calls slurmrestd by *rest*, from when it is entered as a context until it is left."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def __aenter__(self) -> Self:
        await self._rest.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._rest.__aexit__(kind, error, traceback)
