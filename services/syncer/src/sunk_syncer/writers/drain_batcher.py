"""Drains of many nodes in few calls: a drain that waits is written with all others of the same reason.

What must stay true: a node is written only shortly after it was read as not drained; one node that Slurm
refuses is written alone and holds up nobody.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import anyio

from sunk_runtime.errors import ConflictError, SunkError, TransientError
from sunk_runtime.leases import Leadership
from sunk_slurm.errors import SlurmRejectedError
from sunk_syncer.adapters.deadline import within
from sunk_syncer.adapters.ports import DrainWrites
from sunk_syncer.metrics import BULK_NODES, WRITES_WAITING

log = logging.getLogger(__name__)

BULK_MAX: Final = 200
"""Nodes in one call; they wait for each other, and what was read grows old meanwhile."""
GATHER_S: Final = 0.1
"""How long the first one waits at most for others that are being looked at."""
_GATHER_STEP_S: Final = 0.005
TOO_OLD: Final = "what was read of the node is too old for a write"
OVERTAKEN: Final = "another client has drained the node since it was read"


class _Waiting:
    """A node that is to be drained."""

    def __init__(self, node: str, reason: str, good_until: float) -> None:
        self.node = node
        self.reason = reason
        self.good_until = good_until
        self.is_taken = False
        self.is_settled = anyio.Event()
        self.must_go_alone = False
        self.error: SunkError | None = None


class DrainBatcher:
    """Writes drains. Only the leader has one."""

    def __init__(
        self,
        slurm: DrainWrites,
        leadership: Leadership,
        slots: anyio.CapacityLimiter,
        *,
        timeout_s: float,
        others: Callable[[], int],
        is_drained: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to write.

        Args:
            slurm: Where to.
            leadership: Asked before each write.
            slots: Writes in flight.
            timeout_s: Of one write.
            others: How many nodes are being looked at now, and may want to be written in a moment.
            is_drained: Whether a node was seen drained by now: a list of many is a second old or two, and a
                single look at one of them may have come since.
            clock: Tells whether a look has become too old.
        """
        self._slurm = slurm
        self._leadership = leadership
        self._slots = slots
        self._timeout_s = timeout_s
        self._others = others
        self._is_drained = is_drained
        self._clock = clock
        self._waiting: list[_Waiting] = []

    @property
    def waiting(self) -> int:
        """How many nodes wait for their call."""
        return len(self._waiting)

    async def drain(self, node: str, reason: str, *, good_until: float) -> None:
        """Drain *node*, which was read as not drained; until *good_until* that may be written upon.

        Raises:
            ConflictError: that has passed.
            SunkError: it may be drained all the same.
        """
        mine = _Waiting(node, reason, good_until)
        self._waiting.append(mine)
        WRITES_WAITING.set(len(self._waiting))
        try:
            async with self._slots:
                await self._gather(mine)
                while not mine.is_taken:
                    await self._write_all(reason)
            await mine.is_settled.wait()
        finally:
            if not mine.is_taken:
                self._waiting.remove(mine)
            WRITES_WAITING.set(len(self._waiting))
        if mine.must_go_alone:
            async with self._slots:
                await self._write((mine,))
        elif mine.error is not None:
            raise mine.error

    async def _gather(self, mine: _Waiting) -> None:
        """Wait a moment for others that are about to come."""
        until = time.monotonic() + GATHER_S
        while not mine.is_taken and self._others() and time.monotonic() < until:
            if len(self._with(mine.reason)) >= BULK_MAX:
                return
            await anyio.sleep(_GATHER_STEP_S)

    def _with(self, reason: str) -> list[_Waiting]:
        return [waiting for waiting in self._waiting if waiting.reason == reason]

    async def _write_all(self, reason: str) -> None:
        """Write those who wait with *reason*, longest first, and tell each what became of it."""
        batch = self._with(reason)[:BULK_MAX]
        for waiting in batch:
            waiting.is_taken = True
            self._waiting.remove(waiting)
            waiting.error = TransientError("the write was given up")
        try:
            await self._write_fresh(batch)
        finally:
            for waiting in batch:
                waiting.is_settled.set()

    async def _write_fresh(self, batch: list[_Waiting]) -> None:
        """Write those of *batch* that may still be written upon."""
        why_not = {waiting: self._why_not(waiting) for waiting in batch}
        fresh = [waiting for waiting in batch if not why_not[waiting]]
        error = await self._written(fresh) if fresh else None
        for waiting, why in why_not.items():
            waiting.error = ConflictError(why) if why else error

    def _why_not(self, waiting: _Waiting) -> str:
        """Return why what was read of a node is not to be written upon; nothing where it may."""
        if self._clock() > waiting.good_until:
            return TOO_OLD
        return OVERTAKEN if self._is_drained(waiting.node) else ""

    async def _written(self, batch: list[_Waiting]) -> SunkError | None:
        """Write *batch* and return what went wrong for all of it."""
        try:
            await self._write(batch)
        except SlurmRejectedError as error:
            if len(batch) == 1:
                return error
            log.warning("drain of several refused", extra={"nodes": len(batch), "error": str(error)})
            for waiting in batch:
                waiting.must_go_alone = True
        except ConflictError as error:
            return error
        except SunkError as error:
            return TransientError(str(error))
        return None

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        self._leadership.check()
        if reasons := [why for why in map(self._why_not, batch) if why]:
            raise ConflictError(reasons[0])
        nodes, reason = [waiting.node for waiting in batch], batch[0].reason
        slurm = self._slurm.sending_until(min(waiting.good_until for waiting in batch))
        timeout_s = min(self._timeout_s, self._leadership.left_s)
        BULK_NODES.observe(len(nodes))
        with within(timeout_s, f"drain {len(nodes)} nodes"):
            if len(nodes) == 1:
                await slurm.drain(nodes[0], reason)
            else:
                await slurm.drain_several(nodes, reason)
                log.info("nodes drained together", extra={"nodes": len(nodes), "reason": reason})
