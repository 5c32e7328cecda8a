"""Releases jobs that failed locks have held, once such locks may drain nodes again. Only the leader runs it.

What must stay true: each job is looked at again right before; few go on at once; a new leader waits again.
"""

import logging
import time
from collections.abc import AsyncGenerator
from typing import Final

from sunk_runtime.keys import KeyLoop
from sunk_runtime.leases import Leadership
from sunk_runtime.tracing import acting, cause_now, here
from sunk_slurm.errors import SlurmRejectedError
from sunk_slurm.submission import JobChange
from sunk_slurm.wire import Job
from sunk_syncer.adapters.deadline import within
from sunk_syncer.adapters.ports import JobWrites
from sunk_syncer.adapters.views import Views
from sunk_syncer.config import Config
from sunk_syncer.metrics import RELEASED
from sunk_syncer.policy.releases import is_held_by_us, may_be_held_by_us, released_comment, room
from sunk_syncer.pollers.jobs import JobPoller

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 10.0
"""While there is no room: drains that go are seen that late."""
_TRIAL_S: Final = 120.0
"""So long after its release a job's lock may not have failed yet: its prolog waits 50 s for that."""


class ReleaseController:
    """Follows jobs that are held."""

    def __init__(
        self, slurm: JobWrites, watch: JobPoller, views: Views, *, leadership: Leadership, config: Config
    ) -> None:
        self._slurm = slurm
        self._watch = watch
        self._views = views
        self._leadership = leadership
        self._config = config
        self._loop = KeyLoop("release", self._settle, concurrency=1, woken_by=views.recoveries())
        self._held_since: dict[str, float] = {}
        self._waits_for_room: set[str] = set()
        self._trials: dict[str, float] = {}
        """Until when each job that was released is on trial."""

    async def run(self) -> None:
        """Look until cancelled."""
        await self._views.complete()
        await self._loop.run(self._held(), keys=self._held_now, resync_s=self._config.resync_s)

    def wake(self) -> None:
        """Do now what was put off because Slurm did not answer."""
        self._loop.wake()

    async def _held(self) -> AsyncGenerator[str]:
        """Yield the jobs that changed, if they are held or were."""
        async for key in self._views.jobs.changes():
            if key in self._held_since or self._may_be_ours(key):
                yield key

    def _held_now(self) -> list[str]:
        return [key for key in self._views.jobs.keys() if self._may_be_ours(key)]  # noqa: SIM118 - no dict

    def _may_be_ours(self, key: str) -> bool:
        job = self._views.jobs.get(key)
        return job is not None and may_be_held_by_us(job)

    async def _settle(self, key: str) -> float | None:
        if not self._may_be_ours(key):
            self._held_since.pop(key, None)
            self._waits_for_room.discard(key)
            return None
        moment = time.monotonic()
        left_s = self._held_since.setdefault(key, moment) + self._config.held_release_s - moment
        if left_s > 0:
            return left_s
        self._views.require_complete()
        self._trials = {job: until for job, until in self._trials.items() if until > moment}
        if not room(self._views.nodes.values(), len(self._trials)):
            if key not in self._waits_for_room:
                self._waits_for_room.add(key)
                log.info(
                    "job stays held",
                    extra={"job": key, "why": "failed locks have drained the maximum number of nodes"},
                )
            return _LOOK_AGAIN_S
        job = await self._look(int(key))
        if job is None or not is_held_by_us(job):
            return self._config.held_release_s  # Another user's hold; its release changes the state.
        with acting("ReleaseJob", key, self._views.jobs.event(key)):
            await self._release(job)
        self._held_since[key] = time.monotonic()
        return self._config.held_release_s

    async def _look(self, job: int) -> Job | None:
        with within(self._config.call_timeout_s, f"look at job {job}"):
            return await self._slurm.job(job)

    async def _release(self, job: Job) -> None:
        self._trials[str(job.job_id)] = time.monotonic() + _TRIAL_S
        self._leadership.check()
        change = JobChange(hold=False, admin_comment=released_comment(job.admin_comment))
        fields = {"job": job.job_id, "comment": job.admin_comment}
        self._watch.expect(job.job_id, here(cause_now().id))
        try:
            with within(
                min(self._config.call_timeout_s, self._leadership.left_s), f"release job {job.job_id}"
            ):
                await self._slurm.update_job(job.job_id, change)
        except SlurmRejectedError as error:
            log.error("job not released", extra={**fields, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
            return
        finally:
            self._watch.look(job.job_id)
        RELEASED.inc()
        log.info("job released", extra=fields)
