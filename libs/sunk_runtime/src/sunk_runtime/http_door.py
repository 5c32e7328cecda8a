"""Who may be connected: a bound for all, and one for each address.

What must stay true: a connection that answers nobody's request yet gives way to a new one, the one that has
waited for longest first; one whose request is being answered never does. So a caller that only connects, or
leaves its request unfinished, keeps nobody out, whatever the bounds are.

uvicorn's own `limit_concurrency` counts no addresses, and refuses the last to come, probes too.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, Protocol

from sunk_runtime.metrics import CONNECTIONS_CUT

MAX_CONNECTIONS: Final = 32_768
MAX_CONNECTIONS_PER_ADDRESS: Final = 1_024


class Connection(Protocol):
    """One that can be ended at once."""

    def cut(self) -> None:
        """End the connection."""
        ...


class Door:
    """The connections of one server."""

    def __init__(
        self,
        max_connections: int = MAX_CONNECTIONS,
        max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS,
    ) -> None:
        self._max: Final = max_connections
        self._max_per_address: Final = max_connections_per_address
        self._addresses: dict[Connection, str] = {}
        self._counts: Counter[str] = Counter()
        self._waiting: dict[Connection, None] = {}
        """Those that answer nothing, the longest first."""
        self._waiting_by_address: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        """Return how many are connected."""
        return len(self._addresses)

    def enter(self, one: Connection, address: str) -> bool:
        """Let *one* in, which answers nothing yet; False where all that it could replace are busy."""
        if self._counts[address] >= self._max_per_address:
            CONNECTIONS_CUT.labels("address").inc()
            if not _cut_first(self._waiting_by_address.get(address, {})):
                return False
        if len(self._addresses) >= self._max:
            CONNECTIONS_CUT.labels("all").inc()
            if not _cut_first(self._waiting):
                return False
        self._addresses[one] = address
        self._counts[address] += 1
        self.wait(one)
        return True

    def wait(self, one: Connection) -> None:
        """Note that *one* answers nothing any more."""
        if one in self._addresses and one not in self._waiting:
            self._waiting[one] = None
            self._waiting_by_address.setdefault(self._addresses[one], {})[one] = None

    def begin(self, one: Connection) -> None:
        """Note that *one* answers a request now."""
        if one in self._waiting:
            del self._waiting[one]
            address = self._addresses[one]
            of_address = self._waiting_by_address[address]
            del of_address[one]
            if not of_address:
                del self._waiting_by_address[address]

    def leave(self, one: Connection) -> None:
        """Forget *one*; twice is once."""
        self.begin(one)
        if (address := self._addresses.pop(one, None)) is not None:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    def cut_all(self) -> None:
        """End every connection."""
        for one in list(self._addresses):
            one.cut()


def _cut_first(waiting: Mapping[Connection, None]) -> bool:
    """End the one that has waited for longest, if there is one."""
    if (first := next(iter(waiting), None)) is None:
        return False
    first.cut()
    return True
