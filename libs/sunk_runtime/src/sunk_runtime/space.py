"""Whether NATS has space for what we write: said once when it has none, and once when it has again."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from sunk_runtime.errors import FullError
from sunk_runtime.metrics import BUS_FULL

log = logging.getLogger(__name__)


class Space:
    """What the last write showed."""

    def __init__(self) -> None:
        self.is_there = True
        """Whether the last write was not refused for lack of space."""

    @contextmanager
    def noting(self) -> Generator[None]:
        """Note how the write in the context ends; an error other than `FullError` says nothing."""
        try:
            yield
        except FullError as error:
            if self.is_there:
                log.error("bus full", extra={"error": str(error)})  # noqa: TRY400 - no bug here, no traceback
            self.is_there = False
            BUS_FULL.set(1)
            raise
        if not self.is_there:
            log.info("bus has space again")
        self.is_there = True
        BUS_FULL.set(0)
