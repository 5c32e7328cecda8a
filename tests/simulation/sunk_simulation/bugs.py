"""What services log, or end by, that no fault of a server may lead to."""

import logging
from collections.abc import Iterable
from typing import Final

from sunk_runtime.errors import SunkError
from sunk_simulation.simulation import Kept

_WORDS: Final = ("key failed", "stopped by a bug")


class Bugs(logging.Handler):
    """Hears of them."""

    def __init__(self, services: Iterable[Kept]) -> None:
        super().__init__()
        self._services: Final = tuple(services)
        self._said: str | None = None
        logging.getLogger().addHandler(self)

    def said(self) -> str | None:
        """Return the first."""
        if self._said is None:
            ended = (bug for kept in self._services if (bug := _bug(kept.process.error)) is not None)
            self._said = next(ended, None)
        return self._said

    def end(self) -> None:
        """Hear no more."""
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, if it is one."""
        if self._said is None and any(word in record.getMessage() for word in _WORDS):
            error = record.exc_info[1] if record.exc_info else None
            self._said = f"{record.getMessage()}: {error!r}"


def _bug(error: BaseException | None) -> str | None:
    if error is None:
        return None
    rest = BaseExceptionGroup("", [error]).split((SunkError, SystemExit))[1]
    return None if rest is None else repr(rest)
