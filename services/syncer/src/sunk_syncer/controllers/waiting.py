"""Says in the AdminComment of a job that waits for the locks of its nodes what it waits for.

What must stay true: the job is looked at right before each write. Slurm is asked nothing where no job waits,
and where many begin to wait at once so many in each round, one after the other.
"""

import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from sunk_runtime.clock import now
from sunk_runtime.keys import KeyLoop
from sunk_runtime.leases import Leadership
from sunk_runtime.tracing import acting
from sunk_slurm.errors import SlurmRejectedError
from sunk_slurm.submission import JobChange
from sunk_slurm.waiting_jobs import Rounds, WaitingJobs, next_change_s, text
from sunk_slurm.wire import Job
from sunk_syncer.adapters.deadline import within
from sunk_syncer.adapters.ports import JobWrites
from sunk_syncer.adapters.views import Views
from sunk_syncer.config import Config
from sunk_syncer.policy.waiting import is_in_prolog, is_ours, wanted_comment
from sunk_syncer.pollers.jobs import JobPoller

log = logging.getLogger(__name__)

FIRST_S: Final = 2.0
"""A lock that is granted sooner is not worth a write."""
AGAIN_S: Final = 10.0
"""A job is looked at no more often than this."""
ROUND_S: Final = 1.0
AT_ONCE: Final = 20
"""Jobs a round: each is looked at, perhaps written, and looked at again."""


@dataclass
class _Followed:
    """What is known of a job that waits, or whose comment is to be taken back."""

    does_wait: bool
    since: float
    told: str = ""
    """What it was told that it waits for, whether or not that could be written."""
    looked: float = float("-inf")


class WaitingController:
    """Follows the jobs that wait for locks. Only the leader has one."""

    def __init__(
        self, slurm: JobWrites, watch: JobPoller, views: Views, *, leadership: Leadership, config: Config
    ) -> None:
        self._slurm = slurm
        self._watch = watch
        self._views = views
        self._leadership = leadership
        self._config = config
        self._loop = KeyLoop("waiting", self._settle, concurrency=1, woken_by=views.recoveries())
        self._waiting = WaitingJobs()
        self._rounds = Rounds(AT_ONCE, ROUND_S)
        self._followed: dict[str, _Followed] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        await self._views.complete()
        await self._loop.run(
            self._by_lock(), self._by_job(), keys=self._known, resync_s=self._config.resync_s
        )

    def wake(self) -> None:
        """Do now what was put off because Slurm did not answer."""
        self._loop.wake()

    async def _by_lock(self) -> AsyncGenerator[str]:
        async for node in self._views.locks.changes():
            for job in self._waiting.take(node, self._views.locks.get(node)):
                yield str(job)

    async def _by_job(self) -> AsyncGenerator[str]:
        """Yield the jobs that changed, if they are followed or have a comment of ours."""
        async for key in self._views.jobs.changes():
            if key in self._followed or self._is_marked(key):
                yield key

    def _known(self) -> list[str]:
        marked = [key for key in self._views.jobs.keys() if self._is_marked(key)]  # noqa: SIM118 - no dict
        return [*map(str, self._waiting.jobs()), *marked]

    def _is_marked(self, key: str) -> bool:
        job = self._views.jobs.get(key)
        return job is not None and not job.is_over and is_ours(job.admin_comment)

    async def _settle(self, key: str) -> float | None:
        found = [lock for node in self._waiting.nodes(int(key)) if (lock := self._views.locks.get(node))]
        wants, moment = text(found, now()), time.monotonic()
        job = self._followed.get(key) or _Followed(not wants, moment)
        if not (wants or job.told or self._is_marked(key)):
            self._followed.pop(key, None)  # Nothing was written for it.
            return None
        self._followed[key] = job
        if job.does_wait is not bool(wants):
            job.does_wait, job.since = bool(wants), moment
        if wants and wants == job.told:
            return next_change_s(found, now())
        left_s = max(job.since + FIRST_S, job.looked + AGAIN_S if wants else job.since) - moment
        if left_s > 0:
            return left_s
        self._views.require_complete()
        if wait_s := self._rounds.wait_s(moment):
            return wait_s
        if wants:
            await self._say(key, wants)
            job.told, job.looked = wants, time.monotonic()
            return next_change_s(found, now())
        return await self._take_back(key, moment - job.since)

    async def _say(self, key: str, wants: str) -> None:
        job = await self._look(int(key))
        if job is not None and (wanted := wanted_comment(job, wants, 0.0)) is not None:
            await self._write(job, wanted)

    async def _take_back(self, key: str, rested_s: float) -> float | None:
        job = await self._look(int(key))
        wanted = None if job is None else wanted_comment(job, "", rested_s)
        if job is not None and wanted is not None:
            await self._write(job, wanted)
        elif job is not None and is_in_prolog(job) and is_ours(job.admin_comment):
            return AGAIN_S  # Its prologs may still be refused.
        self._followed.pop(key, None)  # Of a held job the release is a change.
        return None

    async def _look(self, job: int) -> Job | None:
        with within(self._config.call_timeout_s, f"look at job {job}"):
            return await self._slurm.job(job)

    async def _write(self, job: Job, comment: str) -> None:
        key = str(job.job_id)
        self._leadership.check()
        limit_s = min(self._config.call_timeout_s, self._leadership.left_s)
        try:
            with (
                acting("CommentJob", key, self._views.jobs.event(key)),
                within(limit_s, f"comment job {key}"),
            ):
                await self._slurm.update_job(job.job_id, JobChange(admin_comment=comment))
        except SlurmRejectedError as error:
            log.error("job not commented", extra={"job": job.job_id, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
        finally:
            self._watch.look(job.job_id)
