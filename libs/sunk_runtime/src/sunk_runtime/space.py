"""Whether NATS has space for what we write: said once when it has none, and once when it has again."""

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from sunk_runtime.errors import FullError
from sunk_runtime.metrics import BUS_FULL

log = logging.getLogger(__name__)

FORGET_S: Final = 30.0
"""Every loop that has something to write has tried again by then."""


class Space:
    """What the last write showed."""

    def __init__(self) -> None:
        self._is_full = False
        self._refused = 0.0

    @property
    def is_there(self) -> bool:
        """Whether no write was refused for lack of space lately; without a write it cannot know."""
        return not self._is_full or time.monotonic() - self._refused > FORGET_S

    @contextmanager
    def noting(self) -> Generator[None]:
        """Note how the write in the context ends; an error other than `FullError` says nothing."""
        try:
            yield
        except FullError as error:
            if not self._is_full:
                log.error("bus full", extra={"error": str(error)})  # noqa: TRY400 - no bug here, no traceback
            self._is_full, self._refused = True, time.monotonic()
            BUS_FULL.set(1)
            raise
        if self._is_full:
            log.info("bus has space again")
        self._is_full = False
        BUS_FULL.set(0)
