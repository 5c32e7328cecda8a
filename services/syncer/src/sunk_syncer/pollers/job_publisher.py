"""What Slurm says of one job, to the bus: its state, and the facts that follow from the change."""

import logging

from sunk_events.base import UNKNOWN, Cause
from sunk_events.jobs import SlurmJobState
from sunk_runtime.clock import now
from sunk_runtime.tracing import continuing
from sunk_runtime.writer import StateWriter
from sunk_slurm.wire import Job
from sunk_syncer.adapters.expected import Expected, named
from sunk_syncer.states.jobs import job_facts, job_state, job_vanished

log = logging.getLogger(__name__)


class JobPublisher:
    """Writes the jobs of one cluster. Only the leader has one."""

    def __init__(self, writer: StateWriter[SlurmJobState], cluster: str) -> None:
        self._writer = writer
        self._cluster = cluster
        self._expected = Expected[Cause]()

    def expect(self, job: int, cause: Cause) -> None:
        """Note that *job* is being requeued or released, so that what follows names the *cause*."""
        self._expected.expect(str(job), cause)

    async def publish(
        self, key: str, seen: Job, tasks: int, before: SlurmJobState | None, revision: int
    ) -> None:
        """Store what *seen* is now, with the facts that follow; *tasks* are those of its array."""
        moment = now()
        after = job_state(seen, tasks, moment, before)
        (cause,), cluster = self._expected.of(key) or (UNKNOWN,), self._cluster
        facts = job_facts(before, after, cluster=cluster, revision=revision, now=moment, cause=cause)
        cause = named(facts, (cause,))
        with continuing(cause):
            await self._writer.record(key, after, facts, revision=revision)
        if cause.id:
            self._expected.forget(key)
        if facts and before is not None:  # Those that are new, `JobPoller.poll` says in one line.
            names = [type(fact).__name__ for fact in facts]
            log.info("job published", extra={"job": key, "facts": names, "cause": cause.id})

    async def forget(self, key: str, before: SlurmJobState | None, revision: int) -> None:
        """Remove a job that Slurm has forgotten."""
        facts = job_vanished(before, cluster=self._cluster, revision=revision, now=now()) if before else ()
        await self._writer.forget(key, facts, revision=revision)
        self._expected.forget(key)
        if before is not None:  # Else its deletion may have been ours, and its acknowledgement lost.
            log.info("job forgotten", extra={"job": key, "state": before.state})
