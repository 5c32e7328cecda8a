"""Asks for slurmctld's counters, and wakes the pollers that wait for a change of nodes or jobs.

What must stay true: while the counters are not known, everything counts as changed.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal

import anyio

from sunk_runtime.errors import SunkError
from sunk_syncer.adapters.ports import SlurmStatistics
from sunk_syncer.metrics import ANSWERED
from sunk_syncer.pollers.poll_loop import Poller, PollSchedule
from sunk_syncer.states.activity import Activity, activity

log = logging.getLogger(__name__)

Kind = Literal["nodes", "jobs"]
Counted = tuple[tuple[str, int], ...] | None
"""None: that is not known."""


class ActivityPoller:
    """Follows the counters of one slurmctld. Only the leader runs it."""

    def __init__(self, slurm: SlurmStatistics, schedule: PollSchedule) -> None:
        self._slurm = slurm
        self._poller = Poller("counters", self.poll, schedule)
        self._seen: Activity | None = None
        self._clock_s = 0
        self.clock_turns = 0
        """How often slurmctld's clock was seen to go back; "since" a time of before nothing changed."""
        self._news = anyio.Event()

    async def run(self) -> None:
        """Poll until cancelled."""
        await self._poller.run()

    def wake(self) -> None:
        """Ask now: Slurm answers again."""
        self._poller.wake()

    async def poll(self) -> bool:
        """Ask once; return False: this is never worth stretching."""
        try:
            seen = await self._slurm.diag()
            self._note_clock(seen.req_time.value or self._clock_s)
            self._take(activity(seen))
            ANSWERED.labels("counters").set_to_current_time()
        except SunkError:
            self._take(None)
            raise
        return False

    def since(self, kind: Kind) -> Callable[[], Awaitable[None]]:
        """Return what ends when something may have changed of *kind* since now."""
        return partial(self._until_more, kind, self._counted(kind))

    async def _until_more(self, kind: Kind, before: Counted) -> None:
        while before is not None and self._counted(kind) == before:
            await self._news.wait()

    def _counted(self, kind: Kind) -> Counted:
        if self._seen is None:
            return None
        return self._seen.nodes if kind == "nodes" else self._seen.jobs

    def _note_clock(self, clock_s: int) -> None:
        if clock_s < self._clock_s:
            self.clock_turns += 1
            log.warning("slurmctld's clock went back", extra={"by_s": self._clock_s - clock_s})
        self._clock_s = clock_s

    def _take(self, seen: Activity | None) -> None:
        if seen != self._seen:
            self._seen = seen
            self._news.set()
            self._news = anyio.Event()
