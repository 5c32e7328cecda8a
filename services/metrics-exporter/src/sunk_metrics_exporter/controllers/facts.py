"""Facts as they fly by: counted by type, and the two waits that users feel."""

from sunk_events.base import Event
from sunk_events.locks import LockLocked
from sunk_events.placements import PlacementBound
from sunk_metrics_exporter.metrics import BIND_SECONDS, FACT_DELAY_SECONDS, FACTS, LOCK_SECONDS
from sunk_runtime.views import now


async def count(event: Event) -> None:
    """Count *event*. Delivered twice it is counted twice: a count is no state."""
    FACTS.labels(str(event.__struct_config__.tag)).inc()
    FACT_DELAY_SECONDS.observe(max((now() - event.time).total_seconds(), 0.0))
    match event:
        case LockLocked() if event.data.waited_s is not None:
            LOCK_SECONDS.observe(event.data.waited_s)
        case PlacementBound() if event.data.waited_s is not None:
            BIND_SECONDS.observe(event.data.waited_s)
        case _:
            pass
