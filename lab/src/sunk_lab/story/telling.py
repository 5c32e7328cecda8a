"""How the demo is told: lines on the terminal, and what came of each step."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sunk_lab.errors import LabError
from sunk_lab.stack.raw import Object, dig_text
from sunk_lab.story.steps import Timing

HOW_TO_READ: Final = """
How to read the steps: a line that begins with a number is an event on NATS. The number is the seconds since
the demo began, and the subject follows. An arrow (→) says what has happened. Below it is what Slurm and
Kubernetes print."""


@dataclass(frozen=True)
class Told:
    """How one step went."""

    name: str
    seconds: float
    timings: tuple[Timing, ...]
    problem: str = ""


class Narrator:
    """Writes what happens, from several threads, a line at a time."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._alone = threading.Lock()
        self._began = time.monotonic()

    def say(self, text: str = "") -> None:
        """Write a line."""
        with self._alone:
            self._write(text)

    def fact(self, subject: str, event: Object) -> None:
        """Write a fact as it comes by."""
        at = time.monotonic() - self._began
        what = dig_text(event, "data", "reason")
        self.say(f"    {at:7.2f}  {subject}{'  ' + what if what else ''}")


def told_of(name: str, step: Callable[[], list[Timing]], narrator: Narrator) -> Told:
    """Carry out a step and return how it went; what did not hold is told at once."""
    began = time.monotonic()
    try:
        timings, problem = tuple(step()), ""
    except LabError as error:
        timings, problem = (), str(error)
        narrator.say(f"  ✗ {error}")
    return Told(name, time.monotonic() - began, timings, problem)
