"""Slurm's jobs to the bus: all their states in one cheap answer, single jobs where something is new.

A list of all jobs is never asked for: 10,000 take 7 seconds, and 1.3 GB that slurmrestd keeps. What must stay
true: a job is forgotten only where a look at that one job found nothing, and a list that was asked for later,
and believed, lacks it too. A job that is listed keeps coming round, whatever Slurm or NATS refuses.
"""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from datetime import datetime
from typing import Final

import anyio
import msgspec

from sunk_events.base import Cause
from sunk_events.jobs import SlurmJobState
from sunk_runtime.clock import now
from sunk_runtime.errors import PermanentError, TransientError
from sunk_runtime.keys import KeyLoop
from sunk_runtime.together import each
from sunk_runtime.writer import StateWriter
from sunk_slurm.reads import KnownJob
from sunk_slurm.states import JobState
from sunk_slurm.wire import Job
from sunk_syncer.adapters.deadline import within
from sunk_syncer.adapters.ports import SlurmJobs
from sunk_syncer.config import Config
from sunk_syncer.metrics import ANSWERED, DOUBTED, LOOKS
from sunk_syncer.policy.polling import LossGuard
from sunk_syncer.policy.requeues import PROLOG
from sunk_syncer.pollers.activity import ActivityPoller
from sunk_syncer.pollers.job_publisher import JobPublisher
from sunk_syncer.pollers.poll_loop import LOOKS_AT_ONCE, SETTLED_AT_ONCE, Poller, PollSchedule

log = logging.getLogger(__name__)

_RESTLESS: Final = frozenset({"COMPLETING", "CONFIGURING"})
CROWD: Final = 8
CROWD_S: Final = 5.0
"""Where more jobs than `CROWD` are new, those that wait are looked at so much later, or once they start: most
of a burst start at once, and one look at each is half as much work for Slurm as two."""
_LOOKS: Final = LOOKS.labels("job")
PROLOG_LOOK_S: Final = 1.0
"""A job whose prologs run is looked at this often: their end changes no state."""


class JobPoller:
    """Follows every job of one cluster. Only the leader runs it."""

    def __init__(
        self,
        slurm: SlurmJobs,
        writer: StateWriter[SlurmJobState],
        activity: ActivityPoller,
        config: Config,
        *,
        crowd_s: float = CROWD_S,
    ) -> None:
        self._slurm = slurm
        self._crowd_s = crowd_s
        self._writer = writer
        self._view = writer.view
        self._config = config
        self._loop = KeyLoop(
            "slurm_job", self._settle, concurrency=SETTLED_AT_ONCE, woken_by=[writer.view.recovery]
        )
        self._looking = anyio.Semaphore(LOOKS_AT_ONCE, fast_acquire=True)
        self._is_restless = False
        self._listed: dict[int, KnownJob] = {}
        self._doubt = LossGuard()
        self._not_found: dict[str, float] = {}
        """Known jobs of which a look found nothing, and when that was asked first."""
        self._believed = float("-inf")
        """When the last list that was believed was asked for."""
        self._believed_jobs: frozenset[int] = frozenset()
        """The jobs in it."""
        self._are_rounds_begun = False
        self.answered: datetime | None = None
        """When Slurm was last asked for all jobs, answered and was believed."""
        self._publisher = JobPublisher(writer, config.cluster)
        self._activity = activity
        self._poller = Poller("jobs", self.poll, PollSchedule.of(config, config.poll_s), mark=self._mark)

    async def run(self) -> None:
        """Poll and settle until cancelled; there is no resync: each job comes round at its own time.

        Its first turn comes with the first list that is believed, whatever is known of it from before.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._poller.run)
            await self._loop.run(self._lost())

    def wake(self) -> None:
        """Do now what was put off because Slurm did not answer."""
        self._poller.wake()
        self._loop.wake()

    def look(self, job: int) -> None:
        """Look at the one job *job* now."""
        self._loop.enqueue(str(job))

    def expect(self, job: int, cause: Cause) -> None:
        """Note that *job* is being requeued or released, so that what follows names the *cause*."""
        self._publisher.expect(job, cause)

    def suspended_unpublished(self) -> list[int]:
        """Return the jobs that the last list shows as suspended, and the bus not yet as on any node.

        Raises:
            TransientError: no list was believed since we lead, or for long: any job may be suspended.
        """
        schedule = PollSchedule.of(self._config, self._config.poll_s)
        if time.monotonic() - self._believed > 2 * (schedule.quiet_max_s + schedule.timeout_s):
            raise TransientError("no list of jobs has arrived yet, or none for a long time")
        suspended = [job for job, known in self._listed.items() if known.state.is_suspended]
        return [job for job in suspended if not ((state := self._view.get(str(job))) and state.is_running)]

    async def seen(self, job: int) -> Job | None:
        """Look at the one job *job* and return it, of which nobody is told; None: Slurm has none."""
        _LOOKS.inc()
        with within(self._config.call_timeout_s, f"look at job {job}"):
            return await self._slurm.job(job)

    async def seen_all(self, jobs: Iterable[int]) -> dict[int, Job | None]:
        """Look at each of *jobs*, some at a time; None: Slurm has none.

        Raises:
            SunkError: one look failed: nothing is known of any then.
        """
        found: dict[int, Job | None] = {}

        async def look(job: int) -> None:
            found[job] = await self.seen(job)

        await each(jobs, look)
        return found

    async def fresh(self, job: int) -> Job | None:
        """Look at the one job *job*, have the bus told of it, and return it; None: Slurm has none."""
        seen = await self.seen(job)
        self._loop.enqueue(str(job))
        return seen

    async def poll(self) -> bool:
        """Ask for the states of all jobs once, and look at those that are new or changed."""
        requested_at, moment = time.monotonic(), now()
        listed = await self._slurm.job_states()
        news = [job for job, known in listed.items() if self._is_news(job, known)]
        new = {job for job in news if self._view.get(str(job)) is None}
        if new:
            log.info("jobs are new", extra={"jobs": len(new), "known": len(self._view)})
        # What was there before we were is no crowd that comes.
        is_crowd = self._are_rounds_begun and len(listed) - len(self._view) > CROWD
        for job in news:
            is_late = is_crowd and job in new and listed[job].state.is_pending
            self._loop.enqueue(str(job), after_s=self._crowd_s if is_late else 0.0)
        self._listed = listed
        self._is_restless = any(not _RESTLESS.isdisjoint(known.state.flags) for known in listed.values())
        self._not_found = {key: since for key, since in self._not_found.items() if self._is_missing(key)}
        if self._look_for():
            self._believed, self._believed_jobs = requested_at, frozenset(listed)
            self.answered = moment
            ANSWERED.labels("jobs").set_to_current_time()
            if not self._are_rounds_begun:
                self._are_rounds_begun = True
                self._begin_rounds()
        return True

    def _begin_rounds(self) -> None:
        """Look at each job that is known and as it was, in its turn: the leader before has looked at them."""
        active = [job for job, known in self._listed.items() if not known.state.is_over]
        for turn, job in enumerate(active):
            published = self._view.get(str(job))
            is_in_prolog = published is not None and published.reason == PROLOG
            self._loop.enqueue(str(job), after_s=0.0 if is_in_prolog else self._round_s * turn / len(active))

    @property
    def _round_s(self) -> float:
        """How long it takes until each job was looked at once more."""
        return max(self._config.job_refresh_s, len(self._view) / self._config.job_refresh_rate)

    @property
    def misses_jobs(self) -> bool:
        """Whether a look found nothing of a job that was known, and no list has settled that yet."""
        return bool(self._not_found)

    def _mark(self) -> Callable[[], Awaitable[None]]:
        """Return what ends when jobs may have changed since now; one that completes may at any time."""
        stirred = self._activity.since("jobs")

        async def may_have_changed() -> None:
            if not self._is_restless and not self.misses_jobs:
                await stirred()

        return may_have_changed

    def _is_news(self, job: int, known: KnownJob) -> bool:
        published, before = self._view.get(str(job)), self._listed.get(job)
        if published is None:
            return before != known or not self._loop.awaits(str(job))
        if before is not None:
            return before != known
        return (published.state, frozenset(published.flags), published.array_tasks) != (
            known.state.base,
            known.state.flags,
            known.tasks,
        )

    async def _lost(self) -> AsyncGenerator[str]:
        """Yield the jobs that slurmctld has and the bus no longer, or not as we have told it last.

        Somebody removed their bucket, or NATS came back with an older one.
        """
        async for key in self._view.changes():
            is_gone = self._view.get(key) is None and not self._is_missing(key)
            if is_gone or (key.isdecimal() and self._view.is_doubtful(key)):
                yield key

    def _is_missing(self, key: str) -> bool:
        """Whether the last list lacks the job that is stored under *key*."""
        return not key.isdecimal() or int(key) not in self._listed

    def _look_for(self) -> bool:
        """Look at each job that is known and not listed, unless too many are missing to believe it."""
        stored = *self._view.keys(), *filter(str.isdecimal, self._view.undecodable)
        missing = set(filter(self._is_missing, (*stored, *self._not_found)))
        moment, listed = time.monotonic(), set(map(str, self._listed))
        # slurmctld forgets jobs some minutes after their end, many at once: those are missed by nobody.
        alive = {key for key in self._view.keys() if not _is_over(self._view.get(key))}  # noqa: SIM118 - no dict
        alive -= self._doubt.unconfirmed
        self._doubt = self._doubt.after(alive, listed, moment)
        if self._doubt.since is not None:
            DOUBTED.labels("jobs").inc()
            counts = {"known": len(alive), "missing": len(alive - listed)}
            log.warning("answer not plausible", extra=counts)
        if not self._doubt.is_over(moment, self._config.doubt_s):
            return False
        for key in missing:
            self._loop.enqueue(key)
        return True

    async def _settle(self, key: str) -> float | None:
        """Settle a job; return when to look again though nothing changed, or Slurm or NATS refused."""
        try:
            return await self._look_and_publish(key)
        except PermanentError as error:
            log.error("job refused", extra={"job": key, "error": str(error)})  # noqa: TRY400 - no bug, no traceback
            return self._round_s

    async def _look_and_publish(self, key: str) -> float | None:
        """Look at a job and tell the bus what it is; return when to look again though nothing changed."""
        job = int(key)
        if (published := self._only_tasks_changed(job)) is not None:
            await self._writer.record(key, published, revision=self._view.revision(key))
            return self._round_s
        async with self._looking:
            revision = self._view.revision(key)
            before = self._view.get(key)
            _LOOKS.inc()
            requested_at = time.monotonic()
            seen = await self._slurm.job(job)  # It ends in time by itself.
        if seen is None:
            is_unknown = key in self._view.undecodable or self._view.is_doubtful(key)
            is_published = before is not None or is_unknown
            if is_published and not self._is_gone(key, requested_at):
                return self._round_s  # The next list says more, and comes soon.
            await self._publisher.forget(key, before, revision)
            self._not_found.pop(key, None)
            return None
        self._not_found.pop(key, None)
        known = self._listed.get(seen.job_id)
        await self._publisher.publish(key, seen, known.tasks if known else 1, before, revision)
        return self._again_s(seen)

    def _only_tasks_changed(self, job: int) -> SlurmJobState | None:
        """Return the new state of a pending array that lost tasks: a look would list all of it."""
        published, known = self._view.get(str(job)), self._listed.get(job)
        if published is None or known is None or published.array_tasks == known.tasks:
            return None
        if JobState(published.state, frozenset(published.flags)) != known.state:
            return None
        return msgspec.structs.replace(published, array_tasks=known.tasks, changed=now())

    def _is_gone(self, key: str, requested_at: float) -> bool:
        """Whether a list that is later than the first look that found nothing, and believed, lacks it too."""
        since = self._not_found.setdefault(key, requested_at)
        return self._believed > since and int(key) not in self._believed_jobs

    def _again_s(self, seen: Job) -> float | None:
        if seen.state_now.is_running and seen.state_reason == PROLOG:
            return PROLOG_LOOK_S
        if seen.state_now.is_over and not seen.state_now.is_completing:
            return None
        return self._round_s


def _is_over(state: SlurmJobState | None) -> bool:
    return state is not None and state.is_over
