"""What the routes need from outside, as small protocols."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from sunk_hook_gateway.access.tokens import Caller, Trust


class Callers(Protocol):
    """Tells who holds a token."""

    @property
    def is_ready(self) -> bool:
        """Whether tokens can be checked now."""
        ...

    def identify_at_once(self, token: str) -> Caller | None:
        """Return who holds *token*; None: `identify` may wait for that.

        Raises:
            AccessError: nobody that we know.
            TransientError: it cannot be told now, and a wait would not help.
        """
        ...

    async def identify(self, token: str) -> Caller:
        """Return who holds *token*.

        Raises:
            AccessError: nobody that we know.
            TransientError: it cannot be told now.
        """
        ...

    async def run(self) -> None:
        """Keep what is needed current, until cancelled."""
        ...


FetchTrust = Callable[[], Awaitable[Trust]]
"""Reads issuer and keys. Raises `TransientError` or `PermanentError`."""
