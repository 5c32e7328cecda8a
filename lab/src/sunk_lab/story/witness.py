"""A witness notes when a thing was last seen, so that "only then" can be proved with one machine's clock.

What was present in an answer was present when its question was sent or later. So whatever must come after the
thing is gone must come after `Witness.last_seen`; no delay of the observer can make that a false alarm.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from sunk_lab.errors import LabError
from sunk_lab.story.observe import PAUSE_S


class Witness:
    """Asks *is_there* all the time, in a thread of its own, while the context lasts."""

    def __init__(self, is_there: Callable[[], bool]) -> None:
        self._is_there = is_there
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.last_seen = 0.0
        """In seconds since the epoch; 0 if it was never seen."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()  # A question has a limit of its own.

    def _watch(self) -> None:
        while not self._stop.is_set():
            requested_at = time.time()
            try:
                if self._is_there():
                    self.last_seen = requested_at
            except (LabError, OSError):
                pass  # A question that failed proves nothing either way.
            time.sleep(PAUSE_S)
