"""How often services ask and say that they live, while nothing happens: most seeds let them do so less often.

With the constants of services three quarters of a seed's work are heartbeats. `CALM` has them beat, renew and
poll as in a large installation, five to ten times less often; what follows from an event is as it always is.
One seed in eight is `BRISK`: all is as services have it by themselves.
"""

from collections.abc import Mapping
from random import Random
from typing import Final

import msgspec

from sunk_runtime import http, leases, pull

_RESTLESS: Final = 8
"""One seed in so many is brisk."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often what."""

    heartbeat_s: float = pull.HEARTBEAT_S
    dead_s: float = pull.DEAD_S
    renew_s: float = leases.RENEW_S
    look_s: float = leases.LOOK_S
    tick_s: float = http.TICK_S
    settings: Mapping[str, Mapping[str, str]] = {}
    """Of services, where their own defaults are too brisk."""

    def begin(self) -> None:
        """Let all services of this interpreter go by it."""
        pull.HEARTBEAT_S, pull.DEAD_S = self.heartbeat_s, self.dead_s  # type: ignore[misc]
        leases.RENEW_S, leases.LOOK_S = self.renew_s, self.look_s  # type: ignore[misc]
        http.TICK_S = self.tick_s  # type: ignore[misc]
        _present.append(self)


BRISK: Final = Pace()
CALM: Final = Pace(
    heartbeat_s=8.0,
    dead_s=20.0,
    renew_s=3.75,
    look_s=2.5,
    tick_s=60.0,
    settings={
        "syncer": {"poll_s": "2", "lease_ttl_s": "15", "statistics_s": "60"},
        "nodeset-controller": {"lease_ttl_s": "15"},
    },
)


def of(seed: int) -> Pace:
    """Return the pace of a seed."""
    return BRISK if Random(f"{seed}:pace").random() * _RESTLESS < 1 else CALM


_present: Final[list[Pace]] = []


def settings(service: str) -> Mapping[str, str]:
    """Return what the present pace sets for *service*."""
    return _present[-1].settings.get(service, {}) if _present else {}
