"""Asks Slurm for everything of a kind, again and again, as often as that is worth."""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec

from sunk_runtime.backoff import doubled
from sunk_runtime.errors import SunkError
from sunk_slurm.server import MAX_CONNECTIONS
from sunk_syncer.adapters.deadline import within
from sunk_syncer.config import Config
from sunk_syncer.metrics import POLL_SECONDS
from sunk_syncer.policy.polling import PollBudget, pause

log = logging.getLogger(__name__)

FAILED_PAUSE_S: Final = 0.5
FAILED_PAUSE_MAX_S: Final = 15.0
QUIET_LEAST_S: Final = 5.0
"""Where nothing happens, asking more often tells little, however cheap it is."""

LOOKS_AT_ONCE: Final = MAX_CONNECTIONS - 2
"""So many single looks of a kind at once: a list, a drain or a nudge does not wait behind 10,000 of them."""
SETTLED_AT_ONCE: Final = 128
"""So many nodes or jobs are told to the bus at once, while others are looked at: each waits for NATS twice,
and what waits at the same time goes out together."""


class PollSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """How often to ask."""

    poll_s: float
    """The shortest rest."""
    max_s: float
    """The longest from one question to the next, while something happens."""
    share: float
    """What asking may cost of a core, while something happens."""
    quiet_max_s: float
    """The longest while nothing does."""
    quiet_share: float
    """What asking may cost of a core while nothing happens."""
    timeout_s: float

    @classmethod
    def of(cls, config: Config, poll_s: float) -> "PollSchedule":
        """Return the rhythm that *config* sets, with *poll_s* as the shortest rest."""
        return cls(
            poll_s=poll_s,
            max_s=max(config.poll_max_s, poll_s),
            share=config.poll_share,
            quiet_max_s=max(config.quiet_max_s, poll_s),
            quiet_share=config.quiet_share,
            timeout_s=config.poll_timeout_s,
        )


class PollInterval(msgspec.Struct, frozen=True):
    """How long to rest: at least, and at most if nothing happens meanwhile."""

    least_s: float
    most_s: float


class Poller:
    """Calls *look* until cancelled; whatever it fails with, the next turn comes, and later each time."""

    def __init__(
        self,
        kind: str,
        look: Callable[[], Awaitable[bool]],
        schedule: PollSchedule,
        *,
        mark: Callable[[], Callable[[], Awaitable[None]]] | None = None,
    ) -> None:
        """Describe it; `run` runs it.

        Args:
            kind: What is asked for, in the plural.
            look: Asks; returns whether that was more than "nothing new", and so is to be paid for.
            schedule: How often.
            mark: Called before each look; what it returns ends when something may have happened since.
        """
        self._kind = kind
        self._look = look
        self._schedule = schedule
        self._mark = mark
        self._failures = 0
        self._budget = PollBudget(counted=time.monotonic())
        self._woken = anyio.Event()

    async def run(self) -> None:
        """Look, rest, look."""
        while True:
            stirred = self._mark() if self._mark else None
            rest = await self._turn()
            self._woken = anyio.Event()
            with anyio.move_on_after(rest.least_s):
                await self._woken.wait()
            if stirred is not None and rest.most_s > rest.least_s:
                with anyio.move_on_after(rest.most_s - rest.least_s):
                    await stirred()

    def wake(self) -> None:
        """Look now if the last look failed: Slurm answers again."""
        if self._failures:
            self._woken.set()

    async def _turn(self) -> PollInterval:
        """Look once and return how long to rest."""
        started = time.monotonic()
        try:
            with within(self._schedule.timeout_s, f"ask for all {self._kind}"):
                has_news = await self._look()
        except SunkError as error:
            POLL_SECONDS.labels(self._kind, "failed").observe(time.monotonic() - started)
            return self._failed(error)
        cost_s = time.monotonic() - started
        POLL_SECONDS.labels(self._kind, "answered").observe(cost_s)
        if self._failures:
            log.info("poll works again", extra={"kind": self._kind, "failures": self._failures})
            self._failures = 0
        return self._rest(cost_s if has_news else 0.0)

    def _failed(self, error: SunkError) -> PollInterval:
        rest_s = doubled(FAILED_PAUSE_S, self._failures, FAILED_PAUSE_MAX_S)
        self._failures += 1
        log.warning("poll failed", extra={"kind": self._kind, "error": str(error), "retry_s": rest_s})
        return PollInterval(rest_s, rest_s)

    def _rest(self, cost_s: float) -> PollInterval:
        schedule = self._schedule
        self._budget = self._budget.spent(cost_s, time.monotonic(), schedule.share)
        debt_s = max(0.0, -self._budget.credit_s)
        most_busy_s = max(schedule.poll_s, schedule.max_s - cost_s)
        least_s = pause(debt_s, poll_s=schedule.poll_s, poll_max_s=most_busy_s, share=schedule.share)
        if self._mark is None:
            return PollInterval(least_s, least_s)
        most_s = pause(
            cost_s, poll_s=schedule.poll_s, poll_max_s=schedule.quiet_max_s, share=schedule.quiet_share
        )
        return PollInterval(least_s, max(least_s, most_s, QUIET_LEAST_S))
