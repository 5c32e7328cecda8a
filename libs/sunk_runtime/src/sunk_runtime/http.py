"""/healthz, /readyz, /metrics, and a service's own routes.

Ready means: its views are complete and it can do its own work. Never "everything else is up too", which
would turn one outage into many.
"""

import asyncio  # anyio has no name for a server's listening sockets.
import logging
import ssl
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit
from typing import Final, cast

import anyio
import anyio.lowlevel
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from sunk_runtime.errors import PermanentError
from sunk_runtime.http_door import MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, Door
from sunk_runtime.http_guard import GuardedProtocol

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
TURNS: Final = 4
"""Of the event loop, from a connection's acceptance to its being known to uvicorn."""
SPARE_FILES: Final = 256
"""For what is not a connection of this server: the bus, threads, another server, files."""


class Health:
    """What has to hold for this process to be ready, by name."""

    def __init__(self) -> None:
        self._checks: dict[str, Callable[[], bool]] = {}

    def require(self, name: str, check: Callable[[], bool]) -> None:
        """Be ready only while *check* is true."""
        self._checks[name] = check

    def missing(self) -> list[str]:
        """Return the names of the checks that do not hold."""
        return sorted(name for name, check in self._checks.items() if not check())


class _Server(uvicorn.Server):
    """uvicorn within our own life cycle: signals are ours."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def main_loop(self) -> None:
        """Wake once a second, for the header with the date, and not ten times: our end is a cancellation."""
        while not await self.on_tick(0):  # noqa: ASYNC110 - the date changes by itself
            await anyio.sleep(TICK_S)


def routes(health: Health, *, has_metrics: bool = True) -> list[BaseRoute]:
    """Return the routes that every service has."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        missing = health.missing()
        return JSONResponse({"ready": not missing, "missing": missing}, status_code=503 if missing else 200)

    async def metrics(_: Request) -> Response:
        text = await anyio.to_thread.run_sync(generate_latest)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    about = [Route("/healthz", healthz), Route("/readyz", readyz)]
    return [*about, Route("/metrics", metrics)] if has_metrics else [*about]


async def serve_http(
    host: str,
    port: int,
    health: Health,
    more: Sequence[BaseRoute] = (),
    *,
    tls: ssl.SSLContext | None = None,
    max_connections: int = MAX_CONNECTIONS,
    max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
    has_metrics: bool = True,
) -> None:
    """Serve until cancelled; nothing is ready before this port listens.

    *more* goes first, so that a service may have its own /metrics.
    """
    app = Starlette(routes=[*more, *routes(health, has_metrics=has_metrics)])
    door = Door(_that_fit(max_connections), max_connections_per_address)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        # uvicorn calls it, and asks no more of it than that.
        http=cast("type[asyncio.Protocol]", partial(GuardedProtocol, door=door, tls=tls)),
        lifespan="off",
        backlog=4096,
        proxy_headers=False,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=5,
    )
    server = _Server(config)
    health.require(f"port {port}", lambda: server.started)
    try:
        await server.serve()
    except SystemExit as error:
        raise PermanentError(f"cannot listen on {host}:{port}: see the log line before") from error
    finally:
        server.should_exit = True
        with anyio.move_on_after(6, shield=True):
            if server.started:
                await _stop_accepting(server)
                await server.shutdown()
        with anyio.CancelScope(shield=True):
            await _end_connections(door)


def _that_fit(connections: int) -> int:
    """Let this process have a file for each of so many *connections*, and return for how many it may."""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    wanted = connections + SPARE_FILES
    if hard != RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != RLIM_INFINITY and soft < wanted:
        setrlimit(RLIMIT_NOFILE, (wanted, hard))
    return max(1, wanted - SPARE_FILES)


async def _stop_accepting(server: uvicorn.Server) -> None:
    """Let uvicorn know of connections that came with the stop: asyncio forgets those of a closed server."""
    loop = asyncio.get_running_loop()
    for listener in server.servers:
        for one in listener.sockets:
            loop.remove_reader(one.fileno())
    for _ in range(TURNS):
        await anyio.lowlevel.checkpoint()


async def _end_connections(door: Door) -> None:
    """End what is held for longer than a stop may take: uvicorn only cancels the calls."""
    await anyio.lowlevel.checkpoint()  # A call that was cancelled may still answer.
    door.cut_all()
    await anyio.lowlevel.checkpoint()  # Their sockets are closed in the loop's next turn.
