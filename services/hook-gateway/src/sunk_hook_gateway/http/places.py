"""How many calls are held at once: of nodes, of placeholders, and of those who are not let in yet.

What must stay true: none of the three takes a place of another, and no single caller takes all of a kind.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from sunk_runtime.errors import TransientError

MAX_CALLS_PER_JOB: Final = 16
"""A placeholder's script makes one call at a time; its user has its token too, and no more than these."""
MAX_STRANGERS: Final = 512
MAX_STRANGERS_PER_ADDRESS: Final = 32


class Places:
    """Places of one kind."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._taken = 0
        self._taken_by: Counter[str] = Counter()

    @contextmanager
    def one(self, who: str) -> Generator[None]:
        """Take a place for *who* while the context lasts; nobody in particular has an empty name.

        Raises:
            TransientError: there is none left.
        """
        if self._taken >= self._most or (who and self._taken_by[who] >= self._most_of_one):
            raise TransientError("too many calls are held")
        self._taken += 1
        self._taken_by[who] += 1
        try:
            yield
        finally:
            self._taken -= 1
            self._taken_by[who] -= 1
            if not self._taken_by[who]:
                del self._taken_by[who]
