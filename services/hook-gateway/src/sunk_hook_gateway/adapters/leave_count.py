"""Counts leaves to drain a node together with the gateway's other replicas, in one key by compare-and-set.

What must stay true: nobody waits for the count for longer than `WITHIN_S`; while the bus does not answer,
each replica counts for itself.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

import anyio

from sunk_events import subjects
from sunk_events.permissions import DRAIN_LEAVES
from sunk_hook_gateway.hooks import leaves
from sunk_runtime.errors import ConflictError, SunkError
from sunk_runtime.jetstream import Bus
from sunk_slurm.failed_locks import LEAVE_S, FailedLocks

log = logging.getLogger(__name__)

WITHIN_S: Final = 3.0
"""A prolog waits for this past its deadline; its script waits for fifteen seconds more."""


class LeaveCount:
    """The leaves given by all replicas, and what Slurm shows."""

    def __init__(self, bus: Bus, cluster: str, failed: FailedLocks, *, within_s: float = WITHIN_S) -> None:
        self._bus = bus
        self._failed = failed
        self._within_s = within_s
        self._subject = subjects.key_subject(subjects.lease_bucket(cluster), DRAIN_LEAVES)
        self._stream = subjects.bucket_stream(subjects.lease_bucket(cluster))
        self._turn = anyio.Lock()

    async def take(self, node: str, total: int) -> bool:
        """Return whether *node*, one of *total*, may be drained, and count it if so; twice is once."""
        if not self._failed.may_drain(node, total, anyio.current_time()):
            return False  # Of a fleet that is refused at once only the first few ask the bus.
        if not self._bus.is_connected:
            return self._take_alone(node, total)
        try:
            with anyio.fail_after(self._within_s):
                async with self._turn:
                    return await self._take_together(node, total)
        except (SunkError, TimeoutError) as error:
            log.warning("leaves not counted together", extra={"node": node, "error": str(error)})
        return self._take_alone(node, total)

    async def _take_together(self, node: str, total: int) -> bool:
        while True:
            revision, data = await self._look()
            # All replicas write times of the server's clock there, and read them by it.
            now = datetime.now(UTC) + timedelta(seconds=self._bus.clock.skew_s)
            now_s = anyio.current_time()
            counts_s = leaves.left(data, now)
            for one, left_s in counts_s.items():
                self._failed.give_leave(one, now_s, for_s=left_s)
            if not self._failed.may_drain(node, total, now_s):
                return False
            try:
                await self._bus.publish(
                    self._subject,
                    leaves.with_one_more(counts_s, node, now),
                    expected_revision=revision,
                    ttl_s=int(LEAVE_S),
                )
            except ConflictError:  # Another replica was quicker, or our own answer was lost: look again.
                continue
            self._failed.give_leave(node, now_s)
            return True

    def _take_alone(self, node: str, total: int) -> bool:
        now_s = anyio.current_time()
        if not self._failed.may_drain(node, total, now_s):
            return False
        self._failed.give_leave(node, now_s)
        return True

    async def _look(self) -> tuple[int, bytes]:
        """Return the key's revision and what is in it; nothing where NATS has dropped it since."""
        found = await self._bus.last(self._stream, self._subject)
        if found is None:
            return 0, b""
        revision, message = found
        is_dropped = "Nats-Marker-Reason" in message.headers or "KV-Operation" in message.headers
        return revision, b"" if is_dropped else message.data
