"""Puts jobs back into the queue: where an update rule asks for it, and where a prolog was lost.

What must stay true: the job is looked at again right before; where Slurm offers no call for it, a node is set
DOWN only if that hurts no other job; the answer says what did not happen.
"""

import logging
import time
from collections.abc import AsyncGenerator
from typing import Final

from sunk_events.base import REASON_MAX, Reply, question_id
from sunk_events.jobs import SlurmJobState
from sunk_events.requests import Later, Noted, Refused, RequeueJob
from sunk_runtime.keys import KeyLoop
from sunk_runtime.leases import Leadership
from sunk_runtime.tracing import acting, cause_now, here
from sunk_slurm.down_reasons import REQUEUE
from sunk_slurm.errors import SlurmRejectedError
from sunk_slurm.hostlist import expand
from sunk_slurm.wire import Job
from sunk_syncer.actions import DownNode
from sunk_syncer.adapters.deadline import within
from sunk_syncer.adapters.ports import JobWrites
from sunk_syncer.adapters.views import Views
from sunk_syncer.config import Config
from sunk_syncer.metrics import REQUEUED
from sunk_syncer.policy.requeues import PROLOG, Lost, is_in_prolog, is_in_the_way, lost_prologs, why_not_down
from sunk_syncer.pollers.jobs import JobPoller
from sunk_syncer.writers.node_writer import NodeWriter

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 1.0
"""While a prolog runs: that its slurmd was replaced changes nothing of the job."""


class RequeueController:
    """Requeues ordinary jobs. Only the leader has one."""

    def __init__(
        self,
        slurm: JobWrites,
        watch: JobPoller,
        node_writer: NodeWriter,
        views: Views,
        *,
        leadership: Leadership,
        config: Config,
    ) -> None:
        self._slurm = slurm
        self._watch = watch
        self._node_writer = node_writer
        self._views = views
        self._leadership = leadership
        self._config = config

    async def answer(self, question: RequeueJob) -> Reply:
        """Requeue the job if it runs on the node; say so, or why not."""
        job = question.job
        with acting("RequeueJob", str(job), here(question_id(RequeueJob, job))):
            reply = await self.requeue(job, question.node, question.reason, is_node_to_stay_away=True)
        if isinstance(reply, Refused):
            log.warning("job not requeued", extra={"job": question.job, "because": reply.reason})
        return reply

    async def requeue(
        self, job_id: int, node: str, reason: str, *, is_node_to_stay_away: bool, required_reason: str = ""
    ) -> Reply:
        """Take the job off *node*; `Noted` when it is, on its way, or no longer in the way.

        Args:
            job_id: The job.
            node: Where it is in the way.
            reason: For the record.
            is_node_to_stay_away: Only while the node is drained: else the job may come back to it at once.
            required_reason: Only while that is the job's own reason; empty: whatever that is.
        """
        job = await self._look(job_id)
        if job is None or not is_in_the_way(job, node, required_reason):
            return Noted()
        if not job.requeue:
            return Refused(code="forbidden", reason=f"job {job_id} may not be requeued (--no-requeue)")
        self._watch.expect(job_id, here(cause_now().id))
        try:
            how = "requeue" if await self._by_call(job) else "down"
        except SlurmRejectedError as error:
            return Refused(code="forbidden", reason=str(error)[:REASON_MAX])
        if how == "down":
            refusal = await self._by_down(
                job_id, node, needs_drain=is_node_to_stay_away, required_reason=required_reason
            )
            if refusal is not None:
                return refusal
        REQUEUED.labels(how).inc()
        log.info("job requeued", extra={"job": job_id, "node": node, "how": how, "reason": reason})
        return Noted()

    async def _look(self, job_id: int) -> Job | None:
        with within(self._config.call_timeout_s, f"look at job {job_id}"):
            return await self._slurm.job(job_id)

    async def _by_call(self, job: Job) -> bool:
        """Have Slurm requeue it, alone of its array; return False where it has no call for that."""
        self._leadership.check()
        name = job.name_in_slurm
        try:
            with within(min(self._config.call_timeout_s, self._leadership.left_s), f"requeue job {name}"):
                return await self._slurm.requeue_job(name)
        finally:
            self._watch.look(job.job_id)

    async def _by_down(
        self, job_id: int, node: str, *, needs_drain: bool, required_reason: str
    ) -> Reply | None:
        """Set the node DOWN, whose jobs Slurm then requeues; return what keeps us from it."""
        async with self._node_writer.place(node):
            seen = await self._node_writer.look(node)
            self._views.require_known(node)
            job = await self._look(job_id)
            if seen is None or job is None or not is_in_the_way(job, node, required_reason):
                return None
            because = why_not_down(job, seen.node, self._views.jobs.values())
            if because is not None:
                text = f"this version of Slurm requeues a job only if its node is set down, and {because}"
                return Refused(code="forbidden", reason=text)
            is_drained = seen.node.state_now.is_drain
            if needs_drain and not is_drained:
                return Later(reason=f"node {node} is not drained: jobs would return to it at once")
            action = DownNode(node, None if is_drained else f"{REQUEUE} of job {job_id}", cause_now())
            if not await self._node_writer.carry_out(action, seen):
                return Refused(code="forbidden", reason="Slurm refused to set the node down")
        self._watch.look(job_id)
        return None


class LostPrologController:
    """Requeues jobs whose prolog went with its slurmd: they would stay RUNNING for ever. Only the leader."""

    def __init__(self, requeues: RequeueController, views: Views, config: Config) -> None:
        self._requeues = requeues
        self._views = views
        self._config = config
        self._loop = KeyLoop("prolog", self._settle, concurrency=4, woken_by=views.recoveries())
        self._lost_since: dict[str, float] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        await self._views.complete()
        await self._loop.run(self._in_prolog(), keys=self._hung, resync_s=self._config.resync_s)

    def wake(self) -> None:
        """Do now what was put off because Slurm did not answer."""
        self._loop.wake()

    async def _in_prolog(self) -> AsyncGenerator[str]:
        """Yield the jobs that changed, but not each of thousands whose prolog is nobody's concern."""
        async for key in self._views.jobs.changes():
            job = self._views.jobs.get(key)
            if key in self._lost_since or (job is not None and is_in_prolog(job)):
                yield key

    def _hung(self) -> list[str]:
        return [str(job.job) for job in self._views.jobs.values() if is_in_prolog(job)]

    async def _settle(self, key: str) -> float | None:
        job = self._views.jobs.get(key)
        if job is None or not is_in_prolog(job):
            self._lost_since.pop(key, None)
            return None
        lost = self._lost(job)
        if not lost.nodes:
            self._lost_since.pop(key, None)
            return _LOOK_AGAIN_S
        since = self._lost_since.setdefault(key, time.monotonic())
        wait_s = self._config.prolog_lost_s if lost.is_certain else self._config.prolog_limit_s
        left_s = wait_s - (time.monotonic() - since)
        if left_s > 0:
            return min(left_s, _LOOK_AGAIN_S)  # Another slurmd of the job may be replaced meanwhile.
        await self._requeue(job.job, lost.nodes[0])
        return self._config.refused_again_s

    async def _requeue(self, job: int, node: str) -> None:
        reason = "its prolog was lost with its slurmd"
        with acting("RequeueJob", str(job), self._views.jobs.event(str(job))):
            reply = await self._requeues.requeue(
                job, node, reason, is_node_to_stay_away=False, required_reason=PROLOG
            )
        if isinstance(reply, Refused | Later):
            log.warning("job hangs in its prolog", extra={"job": job, "node": node, "why": reply.reason})

    def _lost(self, job: SlurmJobState) -> Lost:
        try:
            names = expand(job.nodes)
        except ValueError:
            return Lost()
        return lost_prologs(job, map(self._views.nodes.get, names))
