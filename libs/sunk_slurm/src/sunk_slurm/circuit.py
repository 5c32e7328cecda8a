"""A circuit: whether a server that failed is worth asking again. Pure.

Open after a few failures in a row, so that requests fail at once instead of waiting for one that hangs;
then only a probe asks, later each time, and the first answer closes it.
"""

from typing import Final

import msgspec

from sunk_runtime.backoff import doubled

FAILURES: Final = 3
"""So many failures in a row open it: one may be bad luck, such as a connection that was just closed."""
PROBE_FIRST_S: Final = 0.25
PROBE_LAST_S: Final = 2.0
"""The longest rest between two probes: a server that is back is used again that soon."""


class Circuit(msgspec.Struct, frozen=True):
    """What is known of one server."""

    failures: int = 0
    """In a row."""
    probes: int = 0
    """Since it opened."""

    @property
    def is_open(self) -> bool:
        """Nobody but the probe may ask."""
        return self.failures >= FAILURES

    @property
    def rest_s(self) -> float:
        """How long to rest before the next probe."""
        return doubled(PROBE_FIRST_S, self.probes, PROBE_LAST_S)

    def failed(self) -> "Circuit":
        """Return the circuit after a request that was not answered."""
        return Circuit(min(self.failures + 1, FAILURES), self.probes)

    def probed(self) -> "Circuit":
        """Return the circuit after a probe that was not answered."""
        return Circuit(self.failures, self.probes + 1)
