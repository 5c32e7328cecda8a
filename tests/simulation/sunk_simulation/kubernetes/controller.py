# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""A controller, as Kubernetes has them: it looks at each key that something concerns, and again later.

What must stay true: it decides by what the store has when it looks, never by what it remembers; who is
started again looks at everything.
"""

from collections.abc import Iterable
from random import Random
from typing import Final, Protocol

from sunk_simulation.kubernetes.errors import StatusError
from sunk_simulation.kubernetes.registry import Registry
from sunk_simulation.kubernetes.store import Change, Store
from sunk_simulation.loop import Process
from sunk_simulation.trace import Trace

LAG_S: Final = (0.001, 0.05)
"""How long it takes from a change to a look at it."""
AGAIN_S: Final = 1.0
"""How long after a look that failed, or while nobody answers, it looks again."""


class Cluster(Protocol):
    """What controllers have of the whole."""

    @property
    def registry(self) -> Registry:
        """The API server's objects, which they change without HTTP."""
        ...

    @property
    def store(self) -> Store:
        """The same, to look at."""
        ...

    @property
    def is_running(self) -> bool:
        """Whether the API server answers."""
        ...

    @property
    def trace(self) -> Trace:
        """Where what happens is written."""
        ...

    @property
    def heard(self) -> dict[str, float]:
        """When each kubelet said last that it lives."""
        ...

    def tell(self, who: str, what: str, **more: object) -> None:
        """Write a line."""
        ...


class Controller:
    """The base of all; each says what concerns it, and what it does about a key."""

    name = "controller"

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self.cluster: Final = cluster
        self.random: Final = random
        self._process: Process | None = None
        self._due: dict[str, tuple[float, int]] = {}
        self._looks = 0

    @property
    def registry(self) -> Registry:
        """The API server's objects."""
        return self.cluster.registry

    @property
    def store(self) -> Store:
        """The same, to look at."""
        return self.cluster.store

    def start(self, process: Process) -> None:
        """Work in *process*, for as long as that lives."""
        self._process = process
        self._due = {}
        stop = self.store.follow(self._changed)
        process.at_end.append(lambda _: stop())
        for key in self.all():
            self.look(key)

    def look(self, key: str, within_s: float | None = None) -> None:
        """Look at *key* soon, or within so many seconds if nothing else happens."""
        process = self._process
        if process is None:
            return
        seconds = self.random.uniform(*LAG_S) if within_s is None else within_s
        due = process.loop.time() + seconds
        if key in self._due and self._due[key][0] <= due:
            return
        self._looks += 1
        self._due[key] = (due, self._looks)
        process.loop.at(process, seconds, self._turn, key, self._looks)

    def all(self) -> Iterable[str]:
        """Return all the keys that there are."""
        raise NotImplementedError

    def keys(self, change: Change) -> Iterable[str]:
        """Return the keys that *change* concerns."""
        raise NotImplementedError

    def sync(self, key: str) -> float | None:
        """Do what *key* needs; return in how many seconds to look again, though nothing happens."""
        raise NotImplementedError

    @property
    def can_work(self) -> bool:
        """Whether the API server answers it."""
        return self.cluster.is_running

    def _changed(self, change: Change) -> None:
        for key in self.keys(change):
            self.look(key)

    def _turn(self, key: str, look: int) -> None:
        if self._due.get(key, (0.0, 0))[1] != look:
            return
        del self._due[key]
        if not self.can_work:
            self.look(key, AGAIN_S)
            return
        try:
            again = self.sync(key)
        except StatusError as error:
            self.cluster.tell(self.name, "is refused", key=key, why=error.message)
            again = AGAIN_S
        if again is not None:
            self.look(key, again)
