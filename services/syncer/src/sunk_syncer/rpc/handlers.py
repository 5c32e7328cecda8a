"""Answers to other services' questions about Slurm nodes and jobs. Only the leader answers."""

from collections.abc import Mapping
from datetime import datetime

from sunk_events.base import REASON_MAX
from sunk_events.jobs import SlurmJobState
from sunk_events.requests import (
    ConfirmJobs,
    ConfirmNode,
    JobsConfirmed,
    NodeConfirmed,
    Noted,
    NudgeJob,
    NudgeNode,
)
from sunk_runtime.views import StateView
from sunk_slurm.states import JobState
from sunk_slurm.wire import Node
from sunk_syncer.adapters.fresh_job_states import FreshStates
from sunk_syncer.policy.requeues import is_in_the_way, is_on
from sunk_syncer.pollers.jobs import JobPoller
from sunk_syncer.pollers.nodes import NodePoller


def confirmed(name: str, node: Node | None, *, is_held: bool) -> NodeConfirmed:
    """Return what a fresh look at *name* says; a state that slurmctld itself does not know is not idle.

    Args:
        name: The node that was asked for.
        node: The look.
        is_held: A job is on it, suspended: Slurm calls the node idle, and yet the job will go on there.
    """
    if node is None:
        return NodeConfirmed(node=name, is_known=False, is_drained_and_idle=False)
    state = node.state_now
    return NodeConfirmed(
        node=name,
        is_known=True,
        is_drained_and_idle=state.is_drained and state.base in {"IDLE", "DOWN"} and not is_held,
        state="+".join((state.base, *sorted(state.flags))),
        reason=node.reason[:REASON_MAX],
    )


def runs(state: JobState) -> bool:
    """Whether a job in *state* holds its nodes and has not begun to end."""
    return (state.is_running or state.is_suspended) and not state.is_completing


class Handlers:
    """The questions that the syncer answers."""

    def __init__(
        self, nodes: NodePoller, jobs: JobPoller, states: FreshStates, known: StateView[SlurmJobState]
    ) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._states = states
        self._known = known

    async def confirm(self, question: ConfirmNode) -> NodeConfirmed:
        """Look at the one node now; where it seems to be free, also at each job that is told to be there."""
        node = await self._nodes.fresh(question.node)
        found = confirmed(question.node, node, is_held=False)
        if not found.is_drained_and_idle or not await self._is_held(question.node):
            return found
        return confirmed(question.node, node, is_held=True)

    async def _is_held(self, node: str) -> bool:
        """Whether a job is on *node* all the same; one that was suspended just now is told as running.

        A new leader knows less than that: what the list of all jobs shows counts too.
        """
        self._known.require_settled()
        untold = self._jobs.suspended_unpublished()
        running = [job.job for job in self._known.values() if job.is_running and is_on(job.nodes, node)]
        for job in (*running, *untold):
            if is_in_the_way(await self._jobs.fresh(job), node):
                return True
        return False

    async def confirm_jobs(self, question: ConfirmJobs) -> JobsConfirmed:
        """List all jobs now, and look at those that may be others of their numbers.

        The bus is told at once of those that no longer run.
        """
        listed = await self._states.listed()
        found = {job: listed[job] for job in question.jobs if job in listed}
        running = {job for job, known in found.items() if runs(known.state)}
        submitted = dict(zip(question.jobs, question.submitted, strict=False))
        running -= await self._others({job: at for job, at in submitted.items() if at and job in running})
        for job in {*question.jobs} - running:
            if (published := self._known.get(str(job))) is not None and published.is_running:
                self._jobs.look(job)
        return JobsConfirmed(running=tuple(sorted(running)))

    async def _others(self, submitted: Mapping[int, datetime]) -> frozenset[int]:
        """Return which numbers are those of other jobs, that Slurm did not take at these moments."""
        return frozenset(
            job
            for job, seen in (await self._jobs.seen_all(submitted)).items()
            if seen is None or seen.submit_time.moment != submitted[job]
        )

    async def nudge_node(self, question: NudgeNode) -> Noted:
        """Look at the node soon; the caller does not wait for it."""
        self._nodes.look(question.node)
        return Noted()

    async def nudge_job(self, question: NudgeJob) -> Noted:
        """Look at the job soon; the caller does not wait for it."""
        self._jobs.look(question.job)
        return Noted()
