"""Answers to "why is it so?" from what the leader knows. Incomplete views answer "later"."""

import time
from collections.abc import Callable, Container, Iterable
from typing import Final

from sunk_events.base import Reply
from sunk_events.jobs import SlurmJobState
from sunk_events.locks import LockState
from sunk_events.nodes import SlurmNodeState
from sunk_events.requests import ExplainJob, ExplainJobToOwner, ExplainSlurmNode, Explanation, Later, Refused
from sunk_runtime.clock import now
from sunk_runtime.errors import TransientError
from sunk_slurm.hostlist import expand
from sunk_slurm.queue import released_jobs
from sunk_syncer.adapters.views import Views
from sunk_syncer.policy.explain import explain_job, explain_job_to_owner, explain_node

AT_ONCE_S: Final = 0.02
"""Of processor time, of answers one after the other: a place among some ten thousand jobs that wait. All else
that the leader does waits."""
REST: Final = 4.0
"""So many times as long as answers took they rest: they take a fifth of the time at most."""
REST_OF_USERS: Final = 9.0
"""The same for users of Slurm, who are many, and for owners of Pods: a tenth each."""


class _Share:
    """How much of the leader's time answers of one kind take."""

    def __init__(self, rest: float) -> None:
        self._rest = rest
        self._rested = float("-inf")

    def wait_s(self, now: float) -> float:
        """Return how long the next answer waits for what those before it took."""
        owed_s = self._rested - now
        return owed_s if owed_s > AT_ONCE_S * self._rest else 0.0

    def took(self, worked_s: float, now: float) -> None:
        """Count an answer."""
        self._rested = max(self._rested, now) + worked_s * self._rest


class ExplainHandlers:
    """The questions about causes that the syncer answers."""

    def __init__(
        self,
        views: Views,
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        """Answer from *views*; *clock* and *worked* count seconds, of time and of the processor's."""
        self._views = views
        self._clock = clock
        self._worked = worked
        self._of_operators = _Share(REST)
        self._of_users = _Share(REST_OF_USERS)
        self._of_owners = _Share(REST_OF_USERS)

    async def node(self, question: ExplainSlurmNode) -> Reply:
        """Say why a node is as it is, and whether it is left so because too little is known."""
        self._views.require_complete()
        published = self._views.nodes.get(question.node)
        if published is None:
            return Refused(code="unknown_node", reason=f"Slurm has no node {question.node}")
        try:
            self._views.require_known(question.node)
        except TransientError as error:
            held_back = str(error)
        else:
            held_back = ""
        return explain_node(published, self._views.kube_inputs(question.node, now()), held_back)

    async def job(self, question: ExplainJob) -> Reply:
        """Say why a job is as it is."""
        self._views.require_known("")
        job = self._views.jobs.get(str(question.job))
        if job is None:
            return Refused(code="unknown_job", reason=f"Slurm has no job {question.job}, or has forgotten it")
        return self._bounded(
            self._of_operators if question.is_ahead_named else self._of_owners,
            lambda jobs, released: explain_job(
                job,
                *self._around(job),
                jobs=jobs,
                released=released,
                is_ahead_named=question.is_ahead_named,
            ),
        )

    async def job_to_owner(self, question: ExplainJobToOwner) -> Reply:
        """Say why a job is as it is to the user whose it is; a job of another user is an unknown one."""
        self._views.require_known("")
        job = self._views.jobs.get(str(question.job))
        if job is None or not job.user or job.user != question.user:
            reason = f"no job {question.job} of {question.user} is known, or its user is not known yet"
            return Refused(code="unknown_job", reason=reason)
        return self._bounded(
            self._of_users,
            lambda jobs, released: explain_job_to_owner(
                job, *self._around(job), now(), jobs=jobs, released=released
            ),
        )

    def _bounded(
        self, share: _Share, explain: Callable[[Iterable[SlurmJobState], Container[int]], Explanation]
    ) -> Reply:
        """Return the explanation, or "later" while those before it have to be made up for."""
        if wait_s := share.wait_s(self._clock()):
            reason = "the syncer has just answered other questions about the queue"
            return Later(reason=reason, retry_after_s=wait_s)
        before = self._worked()
        found = explain(self._views.jobs.values(), released_jobs(self._views.placements.values()))
        share.took(self._worked() - before, self._clock())
        return found

    def _around(self, job: SlurmJobState) -> tuple[list[SlurmNodeState | None], list[LockState]]:
        """Return the nodes that *job* is on, and their locks."""
        try:
            names = expand(job.nodes)
        except ValueError:
            names = ()
        nodes = [self._views.nodes.get(name) for name in names]
        return nodes, [lock for lock in map(self._views.locks.get, names) if lock is not None]
