"""One run: a seed, a network, processes, what must never happen, and a trace of it all.

    with Simulation(seed=7) as sim:
        sim.run(story(sim))

What must stay true: a run is a function of its seed, its story and the code; whoever wants to draw lots does
so from `sim.random`, by a name of its own, so that one who draws more often changes nobody else's.
"""

import logging
import random
import traceback
from collections.abc import Callable, Container, Coroutine, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TextIO, TypeVar

from sunk_simulation.ambient import install
from sunk_simulation.loop import Main, Process, SimulationError
from sunk_simulation.network import Network, NetworkLoop
from sunk_simulation.trace import LogLines, Trace

T = TypeVar("T")

Check = Callable[[], str | None]
"""Looks at the servers' state and returns what is wrong with it, in a sentence; None: nothing."""


class BreachError(SimulationError):
    """Something happened that must never happen."""

    def __init__(self, name: str, said: str, seed: int, timeline: tuple[str, ...]) -> None:
        super().__init__(f"seed {seed}: {name}: {said}")
        self.name: Final = name
        self.said: Final = said
        self.timeline: Final = timeline


class Simulation(AbstractContextManager["Simulation"]):
    """A world that is made anew for each run."""

    def __init__(
        self, seed: int = 0, *, out: TextIO | None = None, only: Container[str] | None = None
    ) -> None:
        """Make the world of *seed*; *out* gets every line of the trace; *only* these items happen."""
        install()
        self.seed: Final = seed
        self.items: Final[list[str]] = []
        """What the story did, each by its name: what may be left out when it is told again."""
        self.loop: Final = NetworkLoop(seed)
        self.network: Final[Network] = self.loop.network
        self.trace: Final = Trace(lambda: self.loop.now_ns, out)
        self.network.on_event = lambda what, who: self.trace.write("network", what, who=who)
        self._checks: dict[str, Check] = {}
        self._randoms: dict[str, Random] = {}
        self._only = only
        self._counts: dict[str, int] = {}
        self._breach: BreachError | None = None
        self._log = LogLines(self.trace, lambda: self.loop.current.name)
        self._was: tuple[list[logging.Handler], int] = ([], logging.WARNING)

    def __enter__(self) -> Self:
        random.seed(self.seed)
        root = logging.getLogger()
        self._was = (root.handlers[:], root.level)
        root.addHandler(self._log)
        root.setLevel(logging.INFO)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        root = logging.getLogger()
        root.removeHandler(self._log)
        root.setLevel(self._was[1])
        self.loop.close()

    @property
    def now_s(self) -> float:
        """Seconds since the beginning."""
        return self.loop.now_ns / 1e9

    def random(self, name: str) -> Random:
        """Return the seed's lots for *name*."""
        if name not in self._randoms:
            self._randoms[name] = Random(f"{self.seed}:{name}")
        return self._randoms[name]

    def item(self, kind: str) -> Random | None:
        """Return the lots of the next fault, deed or the like that the story has; None: it is left out.

        Each has lots of its own, so that to leave one out changes no other: that is how `shrink` works.
        """
        number = self._counts[kind] = self._counts.get(kind, 0) + 1
        name = f"{kind}-{number}"
        if self._only is not None and name not in self._only:
            return None
        self.items.append(name)
        self.trace.write("story", "item", name=name)
        return Random(f"{self.seed}:{name}")

    def start(
        self,
        name: str,
        main: Main,
        *,
        host: str = "",
        env: Mapping[str, str] | None = None,
        argv: tuple[str, ...] = (),
    ) -> Process:
        """Start a process that runs *main*, on a host of its name unless another is given."""
        self.network.revive_host(host or name)
        process = self.loop.process(name, host=host, env=env, argv=argv)
        self.trace.write(name, "starts", pid=process.pid)
        process.at_end.append(self._tell_of_end)
        return process.start(main)

    def keep(
        self,
        name: str,
        main: Main,
        *,
        restart_s: float = 1.0,
        host: str = "",
        env: Mapping[str, str] | None = None,
        argv: tuple[str, ...] = (),
    ) -> "Kept":
        """Start a process, and another one whenever it ended, as the kubelet does."""
        return Kept(self, name, main, restart_s, {"host": host, "env": env, "argv": argv})

    def never(self, name: str, check: Check) -> None:
        """Have *check* look whenever the servers' state changed; what it says ends the run."""
        self._checks[name] = check

    def changed(self) -> None:
        """Look whether what must never happen has: each model of a server calls this after each change."""
        for name, check in self._checks.items():
            said = check()
            if said is not None and self._breach is None:
                self.breach(name, said)

    def breach(self, name: str, said: str) -> None:
        """End the run because of what *said* tells."""
        self.trace.write("checker", f"{name}: {said}")
        self._breach = BreachError(name, said, self.seed, tuple(self.trace.last))
        self.loop.stop()

    async def settles(self, what: str, check: Check, *, within_s: float) -> None:
        """Return when *check* says nothing any more; it is a breach if that takes too long."""
        ends = self.loop.now_ns + round(within_s * 1e9)
        while (said := check()) is not None:
            if self.loop.now_ns > ends:
                self.breach(what, f"after {within_s:.0f} s: {said}")
            await self.sleep(0.25)

    async def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        future = self.loop.create_future()
        self.loop.at(self.loop.outside, seconds, lambda: future.done() or future.set_result(None))
        await future

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Run *story*, which directs everything, to its end.

        Raises:
            BreachError: something happened that must never happen.
            SimulationError: nobody has anything to do any more, or somebody turns in a circle.
        """
        task = self.loop.outside.spawn(story)
        try:
            return self.loop.run_until_complete(task)
        except (RuntimeError, SimulationError):
            if self._breach is None:
                raise
            raise self._breach from None

    def _tell_of_end(self, process: Process) -> None:
        more = {"error": "; ".join(_leaves(process.error))} if process.error is not None else {}
        self.trace.write(process.name, "ended", code=process.code, **more)


def _leaves(error: BaseException) -> list[str]:
    """Return what went wrong, each with the last line of ours or of a library that it came from."""
    if isinstance(error, BaseExceptionGroup):
        inner: tuple[BaseException, ...] = error.exceptions  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - isinstance loses the argument
        return [leaf for one in inner for leaf in _leaves(one)]
    where = traceback.extract_tb(error.__traceback__)[-1:]
    at = f" at {Path(where[0].filename).name}:{where[0].lineno}" if where else ""
    return [f"{error!r}{at}"]


class Kept:
    """A process that is started again whenever it ended."""

    def __init__(
        self, sim: Simulation, name: str, main: Main, restart_s: float, more: dict[str, Any]
    ) -> None:
        self._sim = sim
        self._name = name
        self._main = main
        self._restart_s = restart_s
        self._more = more
        self._is_wanted = True
        self.process = self._start()
        """The one that runs, or ran last."""

    def stop(self) -> None:
        """Start it no more; the one that runs goes on."""
        self._is_wanted = False

    def _start(self) -> Process:
        process = self._sim.start(self._name, self._main, **self._more)
        process.at_end.append(self._again)
        return process

    def _again(self, _: Process) -> None:
        self._sim.network.later(self._restart_s, self._next)

    def _next(self) -> None:
        if self._is_wanted:
            self.process = self._start()
