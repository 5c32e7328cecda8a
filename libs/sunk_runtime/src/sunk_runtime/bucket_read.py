"""What a bucket has of a key, and what a whole read of a bucket has found so far; no I/O."""

from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec
from nats.aio.msg import Msg

from sunk_events.base import State
from sunk_runtime.errors import BusUnavailableError

S = TypeVar("S", bound=State)

IDLE_MAX: Final = 5
"""Heartbeats in the middle of a whole read before it begins anew: a marker may have aged out meanwhile."""
BEHIND_MAX: Final = 2
"""The same where nothing is pending, but the leader has more: another replica may have it."""


class Found(msgspec.Struct, Generic[S], frozen=True):
    """What the bucket has of a key."""

    value: S | None
    revision: int
    stored: datetime
    stored_s: float
    """When the server stored it, on its clock; 0 where that is not known."""
    is_readable: bool = True
    trace: str = ""
    """The trace in which it was written, where that is recorded."""


class WholeRead(Generic[S]):
    """A whole read that is under way: the keys so far, and whether they are all."""

    def __init__(
        self, reach: int, pending: int, before: dict[str, int], *, followed: int, last: int, stored_s: float
    ) -> None:
        self.keys: set[str] = set()
        self.before: Final = before
        """What revisions were known when the read began; a key that has another was written since."""
        self.followed: Final = followed
        """How far the bucket was followed before: a key of before that was not known was gone by then."""
        self.last = last
        """The last message that the bucket was given, as far as this read knows."""
        self.older: dict[str, Found[S]] = {}
        """Either a replica that lags has it, and something newer follows, or the bucket went back.

        It went back, too, where a revision is not lower but was stored before: two copies of one store may
        have gone on apart.
        """
        self.anew: set[str] = set()
        """Those of them that were stored after what was known: no older copy of the store has them so."""
        self.newest = float("-inf")
        """When the newest message that was read was stored."""
        self.newest_s = 0.0
        """The same on the server's clock."""
        self.stored_s: Final = stored_s
        """When the newest message was stored that was known when the read began."""
        self._reach = reach
        """The leader's last message when the read began; a replica that lags has yet to come there."""
        self._pending = pending
        self._idle = 0
        self.is_over = not pending and not reach

    def took(self, key: str, at: Msg.Metadata) -> None:
        """Note that *key* was read, and how far the read has come."""
        self.keys.add(key)
        self.newest_s = max(self.newest_s, at.timestamp.timestamp())
        self.last = max(self.last, at.sequence.stream)
        self._pending = at.num_pending
        self.is_over = self.is_over or (not at.num_pending and at.sequence.stream >= self._reach)

    def note_heartbeat(self, *, is_idle: bool) -> None:
        """Note a sign of life; raise `BusUnavailableError` if there were too many without a delivery."""
        self._idle += is_idle
        if self._idle > IDLE_MAX:
            raise BusUnavailableError("what was pending did not come")
        if self._idle > BEHIND_MAX and not self._pending:
            raise BusUnavailableError("the replica that was read is behind the leader")

    def is_news(self, key: str, found: Found[S], *, known: int, stored_s: float | None) -> bool:
        """Whether what was *found* of *key* is to be believed before the read is over.

        Only in a whole read the bucket may have gone back: what is older is kept until the read is over, and
        one revision may be of another value. A key that is not known, and was written before we came so far,
        was gone.

        Args:
            key: The key.
            found: What the bucket has of it.
            known: The revision that is known; 0: none.
            stored_s: When that was stored. None: we wrote it, so it was there after all we know.
        """
        if known:
            is_news = found.revision >= known and found.stored_s >= (stored_s or 0)
            is_anew = stored_s is not None and found.stored_s > stored_s
        else:
            is_anew = found.stored_s > self.stored_s
            is_news = found.revision > self.followed and is_anew
        if not is_news:
            self.older[key] = found
            (self.anew.add if is_anew else self.anew.discard)(key)
        return is_news
