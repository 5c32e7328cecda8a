# pyright: reportPrivateUsage=false
"""An event loop whose time jumps, and the processes that live on it.

What must stay true: nothing here depends on the wall clock, on threads, on addresses of objects or on any
randomness but the seed's; a process's callbacks run in their order, as asyncio promises; which process runs
next is the seed's choice; time jumps only while nobody has anything to do.
"""

import asyncio
import heapq
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final, TypeVar

from sniffio import current_async_library_cvar

T = TypeVar("T")

EPOCH_NS: Final = 1_767_225_600 * 1_000_000_000
"""When every simulation begins: 2026-01-01, in UTC."""
BOOT_NS: Final = 1000 * 1_000_000_000
"""What monotonic clocks show then: 0 would hide who takes it for "never"."""
STUCK: Final = 2_000_000
"""So many turns while somebody always has something to do: it turns in a circle."""
COST_NS: Final = 1000
"""What looking at a clock takes: two looks are never the same moment."""
NEVER_NS: Final = 1 << 60
"""A time that does not come: 36 years later."""
_OUTSIDE: Final = "outside"

Main = Callable[[], Coroutine[Any, Any, None]]


class SimulationError(Exception):
    """The simulation itself cannot go on."""


class DeadlockError(SimulationError):
    """Nobody has anything to do any more, now or later."""


class Clock:
    """What one process believes the time is. Timers do not heed it: kernels measure those otherwise."""

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop
        self.skew_ns = 0
        """How far its wall clock is ahead."""
        self._worked_ns = 0

    def jump(self, seconds: float) -> None:
        """Set the wall clock forwards, or back."""
        self.skew_ns += round(seconds * 1e9)

    def peek_ns(self) -> int:
        """Return the wall clock's time, for a model: looking takes no time."""
        return EPOCH_NS + self._loop.now_ns + self.skew_ns

    def wall_ns(self) -> int:
        """Return what `time.time_ns` says."""
        self._loop.now_ns += COST_NS
        return EPOCH_NS + self._loop.now_ns + self.skew_ns

    def monotonic_ns(self) -> int:
        """Return what `time.monotonic_ns` says."""
        self._loop.now_ns += COST_NS
        return BOOT_NS + self._loop.now_ns

    def worked_ns(self) -> int:
        """Return the processor's time that was spent: work takes none, but for looking at this."""
        self._worked_ns += COST_NS
        return self._worked_ns


class SimTask(asyncio.Task[Any]):
    """A task that sets order by its number, and not by where in memory it is."""

    def __init__(
        self, coro: Coroutine[Any, Any, Any], *, number: int, process: "Process", **more: Any
    ) -> None:
        self.number = number
        self.process = process
        super().__init__(coro, **more)

    def __hash__(self) -> int:
        return self.number

    def cancel(self, msg: object = None) -> bool:
        """As asyncio's; from outside also where its process is paused: a loop that closes waits for each."""
        if self.process.is_paused and self.process.loop.current is self.process.loop.outside:
            self.process.resume()
        return super().cancel(msg)


class SimFuture(asyncio.Future[Any]):
    """A future that sets order by its number too: aiohttp keeps those who wait for a name in a set."""

    number: int
    """Set at once by the loop that makes it: a method `__init__` of ours would take longer than asyncio's."""

    def __hash__(self) -> int:
        return self.number


class SimHandle(asyncio.TimerHandle):
    """A callback that waits for its turn, or for its time: there are many, so it does only what it must."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "SimLoop",
        context: Context,
        when: float = 0.0,
    ) -> None:
        # As asyncio's do it, but for calls of their base and of the loop.
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._when = when
        self._cancelled = False
        self._scheduled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        """As asyncio's."""
        self._cancelled = True
        self._callback, self._args = None, ()


class Process:
    """What a process of an operating system is: code that may be killed or paused, with a clock of its own.

    Make it with `SimLoop.process`, run it with `start`. It ends once; one that is started again is a new one.
    """

    def __init__(
        self,
        loop: "SimLoop",
        name: str,
        *,
        host: str,
        pid: int,
        env: Mapping[str, str] | None = None,
        argv: tuple[str, ...] = (),
    ) -> None:
        self.loop: Final = loop
        self.name: Final = name
        self.host: Final = host
        self.pid: Final = pid
        self.env = dict(env or {})
        self.argv = [name, *argv]
        self.clock: Final = Clock(loop)
        self.ready: deque[asyncio.Handle] = deque()
        self.is_alive = True
        """Not killed, and not ended."""
        self.is_paused = False
        self.is_queued = False
        """Whether it waits for its turn."""
        self.code: int | None = None
        """How it ended: 0 by itself, 1 by an error, -9 killed."""
        self.error: BaseException | None = None
        """What it ended by."""
        self.at_end: list[Callable[[Process], object]] = []
        """Called when it ended, whatever way; the network closes its connections so."""
        self._signals: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}
        self._pauses = 0
        self._main: asyncio.Task[None] | None = None
        self.context: Final[Context] = copy_context()
        self.context.run(PROCESS.set, self)
        self.context.run(current_async_library_cvar.set, "asyncio")  # As `anyio.run` does.

    def __repr__(self) -> str:
        return f"<process {self.name}>"

    def start(self, main: Main) -> "Process":
        """Run *main* as its life; return itself."""
        self._main = self.context.run(self.loop.create_task, self._live(main))
        return self

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run *coroutine* in it, besides what it does already."""
        return self.context.run(self.loop.create_task, coroutine)

    def run(self, function: Callable[..., T], *args: object) -> T:
        """Call *function* now, as a part of it."""
        before, self.loop.current = self.loop.current, self
        try:
            return self.context.copy().run(function, *args)
        finally:
            self.loop.current = before

    def kill(self) -> None:
        """End it between two of its lines: nothing of it runs any more, what it holds open is closed."""
        if self.is_alive:
            self._end(-9, None)

    def kill_after(self, turns: int | None) -> None:
        """Kill it before the callback that follows so many from now; None: let it live.

        With the numbers from 0 on it dies at each `await` of its way that waits: each is one callback or two.
        """
        self.ready = deque(self.ready) if turns is None else _Countdown(self, turns)

    def exit(self, code: int) -> None:
        """End it with *code*, as it does itself."""
        if self.is_alive:
            self._end(code, None)

    def signal(self, number: int) -> None:
        """Send it a signal that it may handle; otherwise it dies of it."""
        if not self.is_alive:
            return
        handler = self._signals.get(number)
        if handler is None:
            self._end(-number, None)
        else:
            self.loop.soon(self, handler[0], *handler[1])

    def handle_signal(self, number: int, callback: Callable[..., object] | None, *args: object) -> bool:
        """Call *callback* at signal *number*; None: no more. Return whether that changed anything."""
        if callback is None:
            return self._signals.pop(number, None) is not None
        self._signals[number] = (callback, args)
        return True

    def pause(self, seconds: float | None = None) -> None:
        """Let nothing of it run for so long; what comes waits. None: until `resume`."""
        self.is_paused = True
        self.loop.rest(self)
        self._pauses += 1
        if seconds is not None:
            self.loop.at(self.loop.outside, seconds, self._resume, self._pauses)

    def resume(self) -> None:
        """End a pause."""
        self._resume(self._pauses)

    async def ended(self) -> int:
        """Return how it ended, as soon as it did."""
        if self.code is None:
            future: asyncio.Future[None] = self.loop.create_future()
            self.at_end.append(lambda _: future.done() or future.set_result(None))
            await future
        assert self.code is not None
        return self.code

    def _resume(self, pause: int) -> None:
        if pause == self._pauses and self.is_paused:
            self.is_paused = False
            self.loop.is_ready(self)

    async def _live(self, main: Main) -> None:
        try:
            await main()
        except SystemExit as error:
            self._end(int(error.code or 0), error)
        except Exception as error:  # noqa: BLE001 - that is how a process ends
            self._end(1, error)
        except BaseExceptionGroup as group:
            self._end(1, group)
        else:
            self._end(0, None)

    def _end(self, code: int, error: BaseException | None) -> None:
        if self.loop.is_over:
            return
        self.is_alive = False
        self.code, self.error = code, error
        self.loop.bury(self)  # First: some of its tasks are held by what is ready only.
        self.ready.clear()
        for tell in self.at_end:
            tell(self)


class _Countdown(deque[asyncio.Handle]):
    """The callbacks that a process has before it: it is killed when it takes one too many."""

    def __init__(self, process: Process, turns: int) -> None:
        super().__init__(process.ready)
        self._process = process
        self._turns = turns

    def popleft(self) -> asyncio.Handle:
        if self._turns:
            self._turns -= 1
            return super().popleft()
        self._process.kill()
        nothing = SimHandle(lambda: None, (), self._process.loop, self._process.context)
        nothing.cancel()
        return nothing


PROCESS: Final[ContextVar[Process]] = ContextVar("PROCESS")
"""Whose code it is; none set: the simulation's own."""


class SimLoop(asyncio.BaseEventLoop):
    """Runs processes by the seed, in virtual time."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.get_debug = bool  # type: ignore[method-assign]
        """No. Each handle and each future asks: a method of ours costs one turn in fifty."""
        self.now_ns = 0
        """Since the beginning."""
        self.random: Final = Random(f"{seed}:order")
        self.entropy: Final = Random(f"{seed}:entropy")
        """For what programs ask of the system: `os.urandom`, `secrets`."""
        self.stuck = STUCK
        self.is_over = False
        """Whether nothing goes on any more; what is said then, garbage says."""
        self.turns = 0
        """How many callbacks ran."""
        self.errors: list[str] = []
        """What callbacks and tasks raised that nobody heard."""
        self._runnable: list[Process] = []
        self._timers: list[tuple[int, int, SimHandle, Process]] = []
        self._numbers = 0
        self._pids = 100
        self._idle_turns = 0
        self._graves: list[asyncio.Task[Any]] = []
        self.outside: Final = Process(self, _OUTSIDE, host=_OUTSIDE, pid=1)
        """Who directs the simulation: it is no process, and is never killed."""
        self.outside.env, self.outside.argv = os.environ, sys.argv  # type: ignore[assignment]
        self.current = self.outside
        """Whose turn it is."""

    def process(
        self, name: str, *, host: str = "", env: Mapping[str, str] | None = None, argv: tuple[str, ...] = ()
    ) -> Process:
        """Return a new process, which does nothing yet; by default it is alone on a host of its name."""
        self._pids += 1
        return Process(self, name, host=host or name, pid=self._pids, env=env, argv=argv)

    def soon(self, process: Process, callback: Callable[..., object], *args: object) -> None:
        """Call *callback* in *process* as soon as it is its turn."""
        self._queue(process, SimHandle(callback, args, self, process.context.copy()))

    def at(
        self, process: Process, seconds: float, callback: Callable[..., object], *args: object
    ) -> asyncio.TimerHandle:
        """Call *callback* in *process* after so many seconds."""
        return self._schedule(
            process, self.now_ns + round(seconds * 1e9), callback, args, process.context.copy()
        )

    def is_ready(self, process: Process) -> None:
        """Take note that *process* may go on."""
        if process.ready and not process.is_queued and not process.is_paused:
            process.is_queued = True
            self._runnable.append(process)

    def bury(self, process: Process) -> None:
        """Keep what *process* was at from ever going on: its `finally` blocks would run as garbage."""
        self.rest(process)
        for task in sorted(asyncio.all_tasks(self), key=_number):
            if getattr(task, "process", None) is process:
                self._bury(task)

    def _bury(self, task: "asyncio.Task[Any]") -> None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        asyncio._unregister_task(task)
        self._graves.append(task)

    def time(self) -> float:
        """Return what every process' monotonic clock says."""
        return (BOOT_NS + self.now_ns) / 1e9

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's."""
        if self._closed:  # type: ignore[attr-defined]
            self._check_closed()  # type: ignore[attr-defined]
        if context is None:
            context = copy_context()
        process = context.get(PROCESS) or self.outside
        handle = SimHandle(callback, args, self, context)
        if process.is_alive:
            process.ready.append(handle)
            if not process.is_queued and not process.is_paused:
                process.is_queued = True
                self._runnable.append(process)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        return self.call_at((BOOT_NS + self.now_ns) / 1e9 + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's."""
        if self._closed:  # type: ignore[attr-defined]
            self._check_closed()  # type: ignore[attr-defined]
        if context is None:
            context = copy_context()
        when_ns = NEVER_NS
        if when * 1e9 < NEVER_NS:
            when_ns = round(when * 1e9) - BOOT_NS
            while (BOOT_NS + when_ns) / 1e9 < when:  # Who is called too early would only ask again.
                when_ns += 1
        return self._schedule(context.get(PROCESS) or self.outside, when_ns, callback, args, context)

    def create_future(self) -> "asyncio.Future[Any]":
        """As asyncio's."""
        self._numbers += 1
        future = SimFuture(loop=self)
        future.number = self._numbers
        return future

    def create_task(  # pyright: ignore[reportIncompatibleMethodOverride] - coroutines only
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        """As asyncio's."""
        self._numbers += 1
        process = (PROCESS.get(None) if context is None else context.get(PROCESS)) or self.outside
        more: dict[str, Any] = {"loop": self, "name": name, "context": context}
        return SimTask(coro, number=self._numbers, process=process, **more)

    async def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> T:  # type: ignore[override]
        """Call *func* here: there are no threads."""
        await asyncio.sleep(0)
        return func(*args)

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:
        """Handle a signal that `Process.signal` sends."""
        self.current.handle_signal(sig, callback, *args)

    def remove_signal_handler(self, sig: int) -> bool:
        """Handle it no more."""
        return self.current.handle_signal(sig, None)

    def remove_reader(self, fd: object) -> bool:
        """Do nothing: no socket is read here, and a listener's connections are a protocol's at once."""
        return False

    async def shutdown_asyncgens(self) -> None:
        """Leave generators to `close`: one of a process that was killed would wait for the dead."""

    def close(self) -> None:
        """End everything, the dead too."""
        self.is_over = True
        for task in sorted(asyncio.all_tasks(self), key=_number):
            self._bury(task)
        super().close()
        before, hook = logging.root.manager.disable, sys.unraisablehook
        logging.disable()  # What is said now, garbage says.
        sys.unraisablehook = lambda _: None
        for task in self._graves:
            _let_go(task)
        logging.disable(before)
        sys.unraisablehook = hook
        self._graves.clear()
        self._timers.clear()

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what nobody heard; a test looks at `errors`."""
        error = context.get("exception")
        self.errors.append(f"{self.current.name}: {context.get('message')}: {error!r}")
        super().default_exception_handler(context)

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _write_to_self(self) -> None: ...

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def _queue(self, process: Process, handle: asyncio.Handle) -> None:
        if not process.is_alive:
            return
        process.ready.append(handle)
        self.is_ready(process)

    def _schedule(
        self,
        process: Process,
        when_ns: int,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context,
    ) -> asyncio.TimerHandle:
        handle = SimHandle(callback, args, self, context, when_ns / 1e9)
        self._numbers += 1
        heapq.heappush(self._timers, (when_ns, self._numbers, handle, process))
        return handle

    def _run_once(self) -> None:
        timers, runnable = self._timers, self._runnable
        if not runnable:
            self._pass_time()
        while timers and timers[0][0] <= self.now_ns:
            _, _, handle, process = heapq.heappop(timers)
            if not handle._cancelled:
                self._queue(process, handle)
        if not runnable:
            return  # Who is due is paused, or dead.
        self._idle_turns += 1
        if self._idle_turns > self.stuck:
            raise SimulationError(f"{self.current.name} turns in a circle")
        index = int(self.random.random() * len(runnable)) if len(runnable) > 1 else 0
        process = runnable[index]
        self.current = process
        own_env, own_argv = os.environ, sys.argv
        os.environ, sys.argv = process.env, process.argv  # type: ignore[assignment]
        try:
            self._run_ready(process)
        finally:
            self.current = self.outside
            os.environ, sys.argv = own_env, own_argv

    def _run_ready(self, process: Process) -> None:
        """Run what is ready of *process*, but nothing that becomes ready meanwhile."""
        ready = process.ready
        for _ in range(len(ready)):
            if not ready or process.is_paused:  # By what it did; or it is dead.
                break
            handle = ready.popleft()
            if handle._cancelled:  # type: ignore[attr-defined]
                continue
            self.turns += 1
            try:
                handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio does
                self._raised(handle, error)
        if not ready or process.is_paused:
            self.rest(process)

    def _raised(self, handle: asyncio.Handle, error: BaseException) -> None:
        """Tell what *handle*'s callback raised, as `asyncio.Handle` does."""
        callback = asyncio.format_helpers._format_callback_source(handle._callback, handle._args)  # type: ignore[attr-defined]
        message = f"Exception in callback {callback}"
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    def block(self, is_over: Callable[[], bool]) -> None:
        """Let everybody else go on until *is_over*, where a test calls what blocks."""
        task, current = asyncio.current_task(self), self.current
        if task is not None:
            asyncio.tasks._leave_task(self, task)
        try:
            while not is_over():
                self._run_once()
        finally:
            self.current = current
            if task is not None:
                asyncio.tasks._enter_task(self, task)

    def rest(self, process: Process) -> None:
        """Give it no turn until it `is_ready` again."""
        if process.is_queued:
            process.is_queued = False
            self._runnable.remove(process)

    def _pass_time(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers or timers[0][0] >= NEVER_NS:
            raise DeadlockError("nobody has anything to do any more")
        self.now_ns = max(self.now_ns, timers[0][0])
        self._idle_turns = 0


def _number(task: "asyncio.Task[Any]") -> int:
    return task.number if isinstance(task, SimTask) else -1


def _let_go(task: "asyncio.Task[Any]") -> None:
    """Close the coroutine of a task that never goes on, whatever it says to that."""
    coroutine = task.get_coro()
    for _ in range(100):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001, S112 - it waits for something once more
            continue
        break
    with suppress(RuntimeError):
        task.cancel()
