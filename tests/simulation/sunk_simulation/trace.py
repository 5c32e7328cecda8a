"""What happened, in order: a line each, and one digest of all of them, by which two runs are compared."""

import hashlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TextIO

KEPT: Final = 50
"""How many lines a failure shows."""
_BUILT_IN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Trace:
    """The lines of one run. Only what is the same in each run of a seed may stand in one."""

    def __init__(self, now_ns: Callable[[], int], out: TextIO | None = None) -> None:
        self.lines = 0
        self.last: Final[deque[str]] = deque(maxlen=KEPT)
        self._now_ns = now_ns
        self._out = out
        self._hash = hashlib.sha256()

    def write(self, who: str, what: str, /, **more: object) -> None:
        """Add a line: *who* did *what*, in a few words; *more* are its particulars."""
        ns = self._now_ns()
        parts = " ".join(f"{name}={value}" for name, value in more.items())
        line = f"{ns // 1_000_000_000:6d}.{ns % 1_000_000_000 // 1000:06d} {who:<24} {what} {parts}".rstrip()
        self.lines += 1
        self.last.append(line)
        self._hash.update(line.encode("utf-8", "backslashreplace"))
        self._hash.update(b"\n")
        if self._out is not None:
            self._out.write(line + "\n")

    @property
    def digest(self) -> str:
        """What is the same for two runs that were the same."""
        return self._hash.hexdigest()


class LogLines(logging.Handler):
    """Writes what services log into the trace, with the process whose code logged it."""

    def __init__(self, trace: Trace, who: Callable[[], str]) -> None:
        super().__init__()
        self._trace = trace
        self._who = who

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        more = {name: value for name, value in sorted(vars(record).items()) if name not in _BUILT_IN}
        if record.exc_info and record.exc_info[1] is not None:
            more["exception"] = repr(record.exc_info[1])
        self._trace.write(self._who(), f"{record.levelname.lower()}: {record.getMessage()}", **more)
