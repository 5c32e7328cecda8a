"""Answers to other services' questions about Slurm nodes and jobs. Only the leader answers."""

from sunk_events.base import REASON_MAX
from sunk_events.requests import ConfirmNode, NodeConfirmed, Noted, NudgeJob, NudgeNode
from sunk_slurm.wire import Node
from sunk_syncer.watch_jobs import JobWatch
from sunk_syncer.watch_nodes import NodeWatch


def confirmed(name: str, node: Node | None) -> NodeConfirmed:
    """Return what a fresh look at *name* says; a state that slurmctld itself does not know is not idle."""
    if node is None:
        return NodeConfirmed(node=name, is_known=False, is_drained_and_idle=False)
    state = node.state_now
    return NodeConfirmed(
        node=name,
        is_known=True,
        is_drained_and_idle=state.is_drained and state.base in {"IDLE", "DOWN"},
        state="+".join((state.base, *sorted(state.flags))),
        reason=node.reason[:REASON_MAX],
    )


class Answers:
    """The questions that the syncer answers."""

    def __init__(self, nodes: NodeWatch, jobs: JobWatch) -> None:
        self._nodes = nodes
        self._jobs = jobs

    async def confirm(self, question: ConfirmNode) -> NodeConfirmed:
        """Look at the one node now."""
        return confirmed(question.node, await self._nodes.fresh(question.node))

    async def nudge_node(self, question: NudgeNode) -> Noted:
        """Look at the node soon; whoever asks does not wait for it."""
        self._nodes.look(question.node)
        return Noted()

    async def nudge_job(self, question: NudgeJob) -> Noted:
        """Look at the job soon; whoever asks does not wait for it."""
        self._jobs.look(question.job)
        return Noted()
