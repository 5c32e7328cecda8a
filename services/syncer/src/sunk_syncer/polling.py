"""Asks Slurm for everything of a kind, again and again, as often as that is worth."""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from sunk_runtime.errors import SunkError
from sunk_syncer.belief import pause
from sunk_syncer.config import Config
from sunk_syncer.deadline import within
from sunk_syncer.metrics import ANSWERED, POLL_SECONDS

log = logging.getLogger(__name__)

FAILED_PAUSE_S: Final = 1.0
FAILED_PAUSE_MAX_S: Final = 15.0


class Poller:
    """Calls *look* until cancelled; whatever it fails with, the next turn comes, and later each time."""

    def __init__(
        self,
        kind: str,
        look: Callable[[], Awaitable[bool]],
        *,
        poll_s: float,
        config: Config,
    ) -> None:
        self._kind = kind
        self._look = look
        self._poll_s = poll_s
        self._config = config
        self._failures = 0

    async def run(self) -> None:
        """Look, rest, look."""
        while True:
            rest_s = await self._turn()
            await anyio.sleep(rest_s)

    async def _turn(self) -> float:
        """Look once and return how long to rest."""
        started = time.monotonic()
        outcome, rest_s = "answered", self._poll_s
        try:
            with within(self._config.poll_timeout_s, f"ask for all {self._kind}"):
                has_news = await self._look()
        except SunkError as error:
            outcome, rest_s = "failed", min(FAILED_PAUSE_S * 2**self._failures, FAILED_PAUSE_MAX_S)
            self._failures = min(self._failures + 1, 10)
            log.warning("poll failed", extra={"kind": self._kind, "error": str(error), "retry_s": rest_s})
        else:
            cost_s = time.monotonic() - started if has_news else 0.0
            rest_s = pause(
                cost_s,
                poll_s=self._poll_s,
                poll_max_s=self._config.poll_max_s,
                share=self._config.poll_share,
            )
            ANSWERED.labels(self._kind).set_to_current_time()
            if self._failures:
                log.info("poll works again", extra={"kind": self._kind, "failures": self._failures})
                self._failures = 0
        POLL_SECONDS.labels(self._kind, outcome).observe(time.monotonic() - started)
        return rest_s
