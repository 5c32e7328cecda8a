"""How many calls are held at once: of nodes, of placeholders, of users, and of those who are not let in yet.

What must stay true: none of the four takes a place of another, and no single caller takes all of a kind.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from math import ceil
from typing import Final

import anyio

from sunk_runtime.call_rates import CallRates
from sunk_runtime.errors import TransientError

MAX_CALLS_PER_JOB: Final = 16
"""A placeholder's script makes one call at a time; its user has its token too, and no more than these."""
MAX_USERS: Final = 64
MAX_CALLS_PER_USER: Final = 4
USER_RATE_PER_S: Final = 1.0
USER_BURST: Final = 10
"""Questions of a user of Slurm: the syncer answers them among all else that it does."""
MAX_CHECKS: Final = 64
MAX_CHECKS_PER_ADDRESS: Final = 32
"""Users' tokens that are being checked. All users of a login node have its address; each check is short."""
MAX_UNKNOWN: Final = 512
MAX_UNKNOWN_PER_ADDRESS: Final = 32


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


class UserPlaces:
    """Places of Slurm's users, each of whom may ask so often."""

    def __init__(self) -> None:
        self._places = Places(MAX_USERS, MAX_CALLS_PER_USER)
        self.checks = Places(MAX_CHECKS, MAX_CHECKS_PER_ADDRESS)
        """Of those whose tokens are not checked yet, by their addresses."""
        self._rates = CallRates(USER_RATE_PER_S, USER_BURST)

    def one(self, user: str) -> AbstractContextManager[None]:
        """Return a place for *user*, to be taken. Raises `TransientError`."""
        if wait_s := self._rates.wait_s(user, anyio.current_time()):
            raise TransientError(f"too many questions: ask again in {ceil(wait_s)} s")
        return self._places.one(user)
