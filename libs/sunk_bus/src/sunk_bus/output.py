"""Where results and notes go: results to standard output, all else to standard error."""

import os
import sys
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

_WIDE: Final = 240
"""Without a terminal there is no width to keep; a table wraps at this one."""


class _Results(Console):
    def on_broken_pipe(self) -> None:
        """End quietly: the program that read our lines has seen enough."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # For the flush at the end.
        raise SystemExit(0)


class Output:
    """Two consoles. Colours only where a terminal reads."""

    def __init__(self) -> None:
        width = None if sys.stdout.isatty() else _WIDE
        self._out = _Results(width=width, highlight=False, markup=False, emoji=False)
        self._notes = Console(stderr=True, highlight=False, markup=False, emoji=False)

    def show(self, what: RenderableType) -> None:
        """Write a table or a paragraph."""
        self._out.print(what)

    def line(self, line: Text | str) -> None:
        """Write one line, however long, at once."""
        self._out.print(line, soft_wrap=True)

    def note(self, line: str) -> None:
        """Tell the person, not the program that reads."""
        self._notes.print(Text(line, "dim"), soft_wrap=True)

    def error(self, line: str) -> None:
        """Say in one sentence what went wrong."""
        self._notes.print(Text(f"sunk-bus: {line}"), soft_wrap=True)
