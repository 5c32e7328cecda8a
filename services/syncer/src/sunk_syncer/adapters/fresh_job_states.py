"""The states of all jobs, asked for again where an earlier list may not decide.

What must stay true: a list that somebody gets was asked for after he came. Those who come while one is on its
way share the next; lists take at most a third of the time, however many callers there are.
"""

import time
from typing import Final

import anyio

from sunk_runtime.errors import SunkError, TransientError
from sunk_slurm.reads import KnownJob
from sunk_syncer.adapters.deadline import within
from sunk_syncer.adapters.ports import SlurmJobs

REST: Final = 2.0
"""After a list follow so many times as long without one."""


class FreshStates:
    """Lists of the states of all jobs of one cluster."""

    def __init__(self, slurm: SlurmJobs, timeout_s: float) -> None:
        self._slurm = slurm
        self._timeout_s = timeout_s
        self._turn = anyio.Lock()
        self._requested_at = float("-inf")
        """When the last list was asked for."""
        self._rests_until = float("-inf")
        self._listed: dict[int, KnownJob] | SunkError = {}

    async def listed(self) -> dict[int, KnownJob]:
        """Return the state of every job, as slurmctld has it once this is called.

        Raises:
            TransientError: Slurm did not answer, or refused: the caller has nothing to fix.
        """
        came = time.monotonic()
        async with self._turn:
            if self._requested_at <= came:
                await self._list()
            if isinstance(self._listed, SunkError):
                raise TransientError(str(self._listed))
            return self._listed

    async def _list(self) -> None:
        """Ask for a list, and keep what comes of it for all who wait."""
        await anyio.sleep(max(0.0, self._rests_until - time.monotonic()))
        requested_at = time.monotonic()
        try:
            with within(self._timeout_s, "list job states"):
                self._listed = await self._slurm.job_states()
        except SunkError as error:
            self._listed = error
        self._requested_at, ended = requested_at, time.monotonic()
        self._rests_until = ended + REST * (ended - requested_at)
