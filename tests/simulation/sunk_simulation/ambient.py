# pyright: reportPrivateUsage=false
"""What programs ask of the system without asking anybody: the time, randomness, who and where they are.

`install` puts ours in the place of Python's, once and for the whole interpreter. Ours ask the simulation
whose code runs at that moment; outside of one they are Python's own, so tests that know nothing of it go on.

What must stay true: no code that runs in a simulation sees the wall clock, a thread or the system's
randomness. What a module took for itself at its import (``from time import monotonic``, a default argument)
is taken before ours stand, unless `install` came first: `strays` finds these.
"""

import ctypes
import gc
import math
import os
import random
import socket
import ssl
import sys
import time
from asyncio import get_running_loop
from asyncio.events import _get_running_loop  # pyright: ignore[reportUnknownVariableType] - it raises nothing
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import count
from types import FunctionType, ModuleType
from typing import Any, Final, TypeVar, cast

import aiohappyeyeballs
from anyio._backends import _asyncio as backend

from sunk_simulation import network
from sunk_simulation.loop import SimLoop

T = TypeVar("T")

_LOOKED_AT: Final = frozenset(
    {
        "aiohttp",
        "anyio",
        "httpcore",
        "httpx",
        "kubernetes_asyncio",
        "nats",
        "prometheus_client",
        "starlette",
        "sunk_events",
        "sunk_hook_gateway",
        "sunk_kube",
        "sunk_metrics_exporter",
        "sunk_nodeset_controller",
        "sunk_pod_scheduler",
        "sunk_runtime",
        "sunk_slurm",
        "sunk_syncer",
        "uvicorn",
    }
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES_OF_PYTHON: Final = (
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "thread_time",
    "sleep",
    "localtime",
    "gmtime",
)
_NAMES: Final = (
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "thread_time",
    "sleep",
    "localtime",
    "gmtime",
)
_REAL: Final[dict[str, Callable[..., Any]]] = {name: getattr(time, name) for name in _NAMES}
_NOW: Final = datetime.now
_URANDOM: Final = os.urandom
_GETPID: Final = os.getpid
_GETHOSTNAME: Final = socket.gethostname
_is_installed = False


def simulation() -> SimLoop | None:
    """Return the loop whose code is running now, if that is simulated."""
    loop = cast("object", _get_running_loop())
    return loop if isinstance(loop, SimLoop) else None


def install() -> None:
    """Put ours in the place of Python's; a second time does nothing."""
    global _is_installed  # noqa: PLW0603 - the interpreter has one time
    if _is_installed:
        return
    _is_installed = True
    for name, ours in _TIMES.items():
        setattr(time, name, ours)
    _into_type(datetime, "now", classmethod(_now))
    _into_type(datetime, "utcnow", classmethod(_utcnow))
    _into_type(datetime, "today", classmethod(_now))
    _into_type(date, "today", classmethod(_today))
    os.urandom = _urandom
    random._urandom = _urandom  # type: ignore[attr-defined]
    os.getpid = _getpid
    socket.gethostname = _gethostname
    backend.AsyncIOBackend.run_sync_in_worker_thread = classmethod(_in_no_thread)  # type: ignore[method-assign, assignment]
    aiohappyeyeballs.start_connection = _start_connection
    backend.CancelScope = _Scope  # type: ignore[misc]
    ssl.SSLContext.load_default_certs = _load_default_certs  # type: ignore[method-assign]
    _remember_headers()


def strays() -> list[str]:
    """Return where a service, or a library of its I/O, holds Python's own clock or source of randomness."""
    real = {id(one): name for name, one in _REAL.items()}
    real[id(_URANDOM)], real[id(_GETPID)], real[id(_GETHOSTNAME)] = "urandom", "getpid", "gethostname"
    found: set[str] = set()
    for module in list(sys.modules.values()):
        if module.__name__ == __name__ or module.__name__.partition(".")[0] not in _LOOKED_AT:
            continue
        for where, value in _held(module):
            if id(value) in real:
                found.add(f"{module.__name__}.{where} is {real[id(value)]}")
    return sorted(found)


def _held(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yield what *module* holds by name, and the defaults of its functions and methods."""
    for name, value in list(vars(module).items()):
        yield name, value
        members = list(vars(value).items()) if isinstance(value, type) else [(name, value)]
        for inner, member in members:
            function: object = getattr(member, "__func__", member)
            if isinstance(function, FunctionType):
                defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
                yield from ((f"{name}:{inner}", one) for one in defaults)


def _into_type(kind: type, name: str, value: object) -> None:
    """Set an attribute of a type that is written in C."""
    attributes: dict[str, object] = gc.get_referents(kind.__dict__)[0]
    attributes[name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _time_ns() -> int:
    loop = simulation()
    return _REAL["time_ns"]() if loop is None else loop.current.clock.wall_ns()


def _time() -> float:
    loop = simulation()
    return _REAL["time"]() if loop is None else loop.current.clock.wall_ns() / 1e9


def _monotonic_ns() -> int:
    loop = simulation()
    return _REAL["monotonic_ns"]() if loop is None else loop.current.clock.monotonic_ns()


def _monotonic() -> float:
    loop = simulation()
    return _REAL["monotonic"]() if loop is None else loop.current.clock.monotonic_ns() / 1e9


def _perf_counter_ns() -> int:
    loop = simulation()
    return _REAL["perf_counter_ns"]() if loop is None else loop.current.clock.monotonic_ns()


def _perf_counter() -> float:
    loop = simulation()
    return _REAL["perf_counter"]() if loop is None else loop.current.clock.monotonic_ns() / 1e9


def _process_time() -> float:
    loop = simulation()
    return _REAL["process_time"]() if loop is None else loop.current.clock.worked_ns() / 1e9


def _thread_time() -> float:
    loop = simulation()
    return _REAL["thread_time"]() if loop is None else loop.current.clock.worked_ns() / 1e9


def _sleep(seconds: float) -> None:
    if simulation() is not None:
        raise RuntimeError("a program that is simulated blocks its event loop")
    _REAL["sleep"](seconds)


def _localtime(seconds: float | None = None) -> time.struct_time:
    return _REAL["localtime"](_time() if seconds is None else seconds)


def _gmtime(seconds: float | None = None) -> time.struct_time:
    return _REAL["gmtime"](_time() if seconds is None else seconds)


_TIMES: Final[dict[str, Callable[..., Any]]] = {
    "time": _time,
    "time_ns": _time_ns,
    "monotonic": _monotonic,
    "monotonic_ns": _monotonic_ns,
    "perf_counter": _perf_counter,
    "perf_counter_ns": _perf_counter_ns,
    "process_time": _process_time,
    "thread_time": _thread_time,
    "sleep": _sleep,
    "localtime": _localtime,
    "gmtime": _gmtime,
}


def _now(kind: type[datetime], tz: tzinfo | None = None) -> datetime:
    loop = simulation()
    if loop is None:
        return _NOW(tz) if kind is datetime else kind.fromtimestamp(_REAL["time"](), tz)
    moment = _EPOCH + timedelta(microseconds=loop.current.clock.wall_ns() // 1000)
    if tz is None:
        moment = moment.replace(tzinfo=None)
    elif tz is not UTC:
        moment = moment.astimezone(tz)
    if kind is datetime:
        return moment
    return kind.combine(moment.date(), moment.timetz())


def _utcnow(kind: type[datetime]) -> datetime:
    return _now(kind, UTC).replace(tzinfo=None)


def _today(_: type[date]) -> date:
    return _now(datetime).date()


def _urandom(size: int, /) -> bytes:
    loop = simulation()
    return _URANDOM(size) if loop is None else loop.entropy.randbytes(size)


def _getpid() -> int:
    loop = simulation()
    return _GETPID() if loop is None else loop.current.pid


def _gethostname() -> str:
    loop = simulation()
    return _GETHOSTNAME() if loop is None else loop.current.host


_start: Final[Callable[..., Any]] = vars(aiohappyeyeballs)["start_connection"]


async def _start_connection(*args: Any, **named: Any) -> Any:
    """Connect as aiohttp does, which makes its sockets itself."""
    return await (_start if simulation() is None else network.start_connection)(*args, **named)


_load_default_certs_of_system: Final = ssl.SSLContext.load_default_certs


def _load_default_certs(context: ssl.SSLContext, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
    """Load none where there is no TLS: each client would read all of the system's, for 20 ms."""
    if simulation() is None:
        _load_default_certs_of_system(context, purpose)


def _remember_headers() -> None:
    """Have nats-py parse headers once that come again and again: most heartbeats say what the last did."""
    from nats.aio.client import Client  # noqa: PLC0415 - it takes the clock for itself as it is imported

    parsed = lru_cache(maxsize=4096)(Client._parse_header_lines)
    Client._parse_header_lines = staticmethod(lambda raw: dict(parsed(raw)))  # type: ignore[method-assign]


_in_thread: Final = backend.AsyncIOBackend.run_sync_in_worker_thread.__func__  # type: ignore[attr-defined]


async def _in_no_thread(
    kind: type[backend.AsyncIOBackend],
    func: Callable[..., T],
    args: tuple[Any, ...],
    *more: Any,
    **named: Any,
) -> T:
    """Call *func* here, where anyio would have a thread do it."""
    if simulation() is None:
        return await _in_thread(kind, func, args, *more, **named)
    await kind.checkpoint()
    return await get_running_loop().run_in_executor(None, func, *args)


_numbers: Final = count(1)


class _Scope(backend.CancelScope):
    """A scope that sets order by its age, and not by where in memory it is."""

    __slots__ = ("_number",)

    def __init__(self, *, deadline: float = math.inf, shield: bool = False) -> None:
        self._number = next(_numbers)
        super().__init__(deadline, shield)

    def __hash__(self) -> int:
        return self._number
