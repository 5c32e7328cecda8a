"""What one look takes of the processor from one pause to the next, without the garbage collector."""

import gc
import time
from collections.abc import Awaitable, Generator
from typing import Any, Final


class _Collections:
    """What the garbage collector has taken of the processor: the look that runs just then did not take it."""

    def __init__(self) -> None:
        self.taken_s = 0.0
        self._began = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.taken_s += time.thread_time() - self._began


_collections: Final = _Collections()


def _own_time() -> float:
    return time.thread_time() - _collections.taken_s


class TimedLook:
    """A look whose steps are timed: what it takes of the processor from one pause to the next.

    Processor time, for a process that gets none has blocked nobody by itself.
    """

    def __init__(self, look: Awaitable[float | None]) -> None:
        self._look = look
        self.longest_s = 0.0

    def __await__(self) -> Generator[Any, Any, float | None]:
        steps = self._look.__await__()
        given: Any = None
        error: BaseException | None = None
        while True:
            began = _own_time()
            try:
                paused = steps.send(given) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                self.longest_s = max(self.longest_s, _own_time() - began)
            given, error = None, None
            try:
                given = yield paused
            except BaseException as thrown:  # noqa: BLE001 - handed on
                error = thrown
