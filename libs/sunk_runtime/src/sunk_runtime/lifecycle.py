"""run() and serve(): one task group, signals, hand back on stop.

One failing loop ends the process: the platform starts it anew and the bus tells it everything again.
"""

import asyncio  # For handlers of signals, see `stoppable`.
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final

import anyio

from sunk_runtime.errors import ConfigError, SunkError
from sunk_runtime.logging import configure

log = logging.getLogger(__name__)

GRACE_S: Final = 8.0
"""What is under way has this long to end after SIGTERM; Kubernetes' patience ends later."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Loop = Callable[[], Coroutine[Any, Any, None]]
Stop = Callable[[], None]

_stops: ContextVar[list[Stop]] = ContextVar("_stops")
"""What being told to stop does: the last of these."""


def identity(service: str) -> str:
    """Return who we are among the replicas of *service*."""
    return f"{service}-{socket.gethostname()}-{os.getpid()}"


def run(service: str, main: Callable[[], Awaitable[None]]) -> None:
    """Run *main* as the process: 0 when it was told to stop, 1 when a loop failed, 2 for a wrong setting."""
    configure(service)
    _collect_less()
    try:
        anyio.run(stoppable, main, backend_options={"use_uvloop": True})
    except ConfigError as error:
        log.critical("wrong settings", extra={"error": str(error)})
        sys.exit(2)
    except BaseExceptionGroup as group:
        _report(group)
        sys.exit(1)
    except SunkError as error:
        log.critical("stopped", extra={"error": str(error)})
        sys.exit(1)


def _collect_less() -> None:
    """Have the garbage collector look at what is new, seldom, and never again at what was imported.

    A gateway that held a thousand calls spent a fifth of its time on looking through both.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


def _report(group: BaseExceptionGroup[BaseException]) -> None:
    """Log what ended the process: our own errors in a line, a bug with its traceback."""
    bugs = group.split(SunkError)[1]
    if bugs is not None:
        log.critical("stopped by a bug", exc_info=bugs)
        return
    leaves: list[str] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop()
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - isinstance loses the argument
        else:
            leaves.append(str(error))
    log.critical("stopped", extra={"errors": leaves})


async def stoppable(main: Callable[[], Awaitable[None]]) -> None:
    """Run *main*, cancelled by a signal that comes before `serve` (it may wait for NATS) or after it."""
    # anyio's receiver of signals would need a task, which wraps errors, and gives way to nobody.
    event_loop = asyncio.get_running_loop()
    with anyio.CancelScope() as scope:
        stops: list[Stop] = [scope.cancel]
        _stops.set(stops)

        def on_signal(number: signal.Signals) -> None:
            log.info("stopping", extra={"signal": number.name})
            stops[-1]()

        for number in _SIGNALS:
            event_loop.add_signal_handler(number, on_signal, number)
        await main()


async def serve(
    *loops: Loop, grace_s: float = GRACE_S, stopping: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Run every loop until one fails or we are told to stop. Only below `run`, which hears the signals.

    Args:
        loops: Each runs for ever.
        grace_s: How long *stopping* may take.
        stopping: Called at SIGTERM before the loops are cancelled: stop taking work, end what is under way.
    """
    stop_requested = anyio.Event()
    stops = _stops.get()
    stops.append(stop_requested.set)
    try:
        async with anyio.create_task_group() as tasks:
            for loop in loops:
                tasks.start_soon(loop)
            await stop_requested.wait()
            if stopping is not None:
                with anyio.move_on_after(grace_s):
                    await stopping()
            tasks.cancel_scope.cancel()
    finally:
        stops.pop()
