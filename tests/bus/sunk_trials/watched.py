"""A bus that keeps a journal of what was acknowledged, and kills at a chosen step."""

import os
import signal
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from sunk_events import subjects
from sunk_events.base import State
from sunk_events.codec import decode_event, decode_state
from sunk_events.nodes import NodeDrained, SlurmNodeState
from sunk_runtime.jetstream import Bus
from sunk_trials.words import Line, Order

_BUCKET: Final = subjects.bucket("c1", SlurmNodeState)
_STATE: Final = subjects.bucket_keys(_BUCKET).removesuffix(">")
_FACT: Final = subjects.facts("c1").removesuffix(">")


class Journal:
    """A file of lines that outlives its writer."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, line: Line) -> None:
        """Append *line*; it is there when this returns, whoever is killed next."""
        os.write(self._file, msgspec.json.encode(line) + b"\n")


class Trap:
    """Kills somebody at a step, once for each order."""

    def __init__(self) -> None:
        self._order: Order | None = None
        self._passed = 0

    def set(self, order: Order) -> None:
        """Wait for the step of *order*; what was set before is forgotten."""
        self._order, self._passed = order, 0

    def step(self, name: str) -> None:
        """Say that *name* is reached."""
        order = self._order
        if order is None or order.step not in {name, "any"}:
            return
        self._passed += 1
        if self._passed <= order.after:
            return
        self._order = None
        if name.endswith(".sent") and order.delay_s:
            threading.Timer(order.delay_s, kill, [order.pids]).start()
        else:
            kill(order.pids)


def kill(pids: tuple[int, ...]) -> None:
    """End *pids*, or ourselves, as the kernel does when memory is short."""
    for pid in pids or (os.getpid(),):
        os.kill(pid, signal.SIGKILL)


class Watched(Bus):
    """The real connection, with a trap at each step and a journal of what was acknowledged."""

    def __init__(self, real: Bus, journal: Journal, trap: Trap) -> None:
        self.__dict__.update(real.__dict__)
        self._journal = journal
        self._trap = trap

    async def publish(self, subject: str, data: bytes, **more: Any) -> int:  # noqa: ANN401 - whatever the real one takes
        """Publish and note the acknowledgement."""
        if not subject.startswith((_FACT, _STATE)):
            return await super().publish(subject, data, **more)
        what = "fact" if subject.startswith(_FACT) else "state"
        if what == "fact":
            self._trap.step("fact.begin")
        self._trap.step(f"{what}.sent")
        stored = await super().publish(subject, data, **more)
        self._journal.add(_line(subject, data, stored))
        self._trap.step(f"{what}.acked")
        return stored

    async def send_bare(self, words: Coroutine[Any, Any, None]) -> None:
        """Acknowledge, which is a step of its own."""
        self._trap.step("ack.begin")
        await super().send_bare(words)
        self._trap.step("ack.sent")


def _line(subject: str, data: bytes, stored: int) -> Line:
    if subject.startswith(_FACT):
        fact = cast("NodeDrained", decode_event(data))
        return Line(what="fact", key=fact.subject, number=int(fact.data.reason), id=fact.id, revision=stored)
    state = decode_state(SlurmNodeState, data)
    return Line(what="state", key=subjects.key_of(_BUCKET, subject), number=number_of(state), revision=stored)


def number_of(state: State | None) -> int:
    """Return how often the thing was counted."""
    return int(state.reason) if isinstance(state, SlurmNodeState) else 0
