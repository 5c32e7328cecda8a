"""What fences a leader's write: asked right before it, and named in it."""

from typing import Final, Protocol

FENCE_HEADER: Final = "Sunk-Fencing-Token"
"""On every message that a leader stores: its fencing token. The larger of two is of the later leader."""


class Fence(Protocol):
    """Leave to write; `leases.Leadership` is one."""

    @property
    def token(self) -> int:
        """The fencing token, which only ever grows."""
        ...

    def check(self) -> None:
        """Raise `LostLeadershipError` unless we may still write."""
        ...
