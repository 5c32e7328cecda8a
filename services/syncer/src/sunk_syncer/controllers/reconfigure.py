"""Has Slurm read its configuration again when a file of it has changed: topology, gres.

What must stay true: one reconfigure at a time, changes that come soon after one another are one; nothing
waits for it. Each change is told twice, for slurmctld reads the files of its own Pod, which another kubelet
brings there. Each slurmd starts anew for it, and a job that was in its prolog is never launched: it is
RUNNING without its script, or is requeued as NODE_FAIL (seen on 24.11 and 26.05). So it waits for prologs, as
long as these may take.
What Slurm was made to read last stands on the bus, so that a new leader, or one that lost the
lease for a moment, asks only if the files have changed since.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import anyio

from sunk_runtime.errors import SunkError
from sunk_runtime.leases import Leadership
from sunk_syncer.adapters.ports import Reconfigures
from sunk_syncer.config import Config
from sunk_syncer.metrics import RECONFIGURE_SECONDS

log = logging.getLogger(__name__)

_FAILED_PAUSE_S: Final = 5.0


class ReconfigureController:
    """Follows the files. Only the leader runs it."""

    def __init__(
        self,
        slurm: Reconfigures,
        leadership: Leadership,
        config: Config,
        *,
        done: str = "",
        in_prolog: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """Prepare to follow them.

        Args:
            slurm: What reconfigures Slurm.
            leadership: Ours.
            config: The files, and how long they must stay as they are.
            done: The digest that Slurm was reconfigured for last; empty where it is not known.
            in_prolog: Returns the jobs that are in their prologs.
        """
        self._slurm = slurm
        self._leadership = leadership
        self._files = tuple(Path(part) for part in config.reconfigure_files.split(":") if part)
        self._config = config
        self._in_prolog = in_prolog
        self._waits_since: float | None = None
        """Since when prologs keep it from what is due; files that change meanwhile begin no new wait."""
        self.done = done
        """The digest of what Slurm was made to read last."""

    async def run(self) -> None:
        """Look at the files until cancelled."""
        if not self._files:
            return
        after_s, again_s = self._config.reconfigure_after_s, self._config.reconfigure_again_s
        seen = self.done
        due: tuple[float, ...] = ()
        while True:
            found = await anyio.to_thread.run_sync(digest, self._files)
            now = time.monotonic()
            if found and found != seen:
                seen, due = found, (now + after_s, now + after_s + again_s)
            if due and self._is_time(due[0], now) and await self._reconfigure():
                due = due[1:]
                if not due:
                    self.done = seen
            await anyio.sleep(min(1.0, after_s))

    def _is_time(self, due: float, now: float) -> bool:
        """Return whether what is due at *due* is to be done, or to wait for prologs still."""
        if now < due:
            return False
        jobs = self._in_prolog()
        if jobs and self._waits_since is None:
            self._waits_since = now
            log.info("reconfigure waits for prologs", extra={"jobs": sorted(jobs)[:10], "of": len(jobs)})
        if jobs and self._waits_since is not None and now < self._waits_since + self._config.prolog_limit_s:
            return False
        self._waits_since = None
        return True

    def wake(self) -> None:
        """Do nothing: what failed is tried again in a few seconds anyway."""

    async def _reconfigure(self) -> bool:
        """Return whether Slurm did."""
        started = time.monotonic()
        try:
            self._leadership.check()
            await self._slurm.reconfigure()
        except SunkError as error:
            log.warning("slurm not reconfigured", extra={"error": str(error)})
            RECONFIGURE_SECONDS.labels("failed").observe(time.monotonic() - started)
            await anyio.sleep(_FAILED_PAUSE_S)
            return False
        took_s = time.monotonic() - started
        RECONFIGURE_SECONDS.labels("done").observe(took_s)
        log.info("slurm reconfigured", extra={"took_s": round(took_s, 3)})
        return True


def digest(files: Sequence[Path]) -> str:
    """Return what tells one content of *files* from another; empty where one cannot be read now.

    A file that is not there says something too: most clusters have no topology.conf.
    """
    total = hashlib.sha256()
    for file in files:
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            total.update(b"-")
            continue
        except OSError:
            return ""
        total.update(b"+" + len(content).to_bytes(8, "big") + content)
    return total.hexdigest()
