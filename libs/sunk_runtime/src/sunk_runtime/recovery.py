"""Recovery: what was away is back, so a loop that backs off because of it need not wait any longer."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

Wake = Callable[[], None]


class Recovery:
    """One that may be away (the bus, a view, an API server) and those who want to hear that it is back."""

    def __init__(self) -> None:
        self._wakes: list[Wake] = []

    def announce(self) -> None:
        """Wake everybody who listens; nobody listening is fine."""
        for wake in tuple(self._wakes):
            wake()

    @contextmanager
    def waking(self, wake: Wake) -> Generator[None]:
        """Call *wake* at each recovery while the context lasts. It must neither wait nor raise."""
        self._wakes.append(wake)
        try:
            yield
        finally:
            self._wakes.remove(wake)
