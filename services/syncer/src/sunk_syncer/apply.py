"""Actions to calls of Slurm: a match, no if."""

from typing import assert_never

from sunk_syncer.metrics import ACTIONS
from sunk_syncer.model import Action, DownNode, DrainNode, UndrainNode
from sunk_syncer.ports import NodeWrites


async def apply(action: Action, slurm: NodeWrites) -> None:
    """Carry out *action*. Every call may be repeated; after an error it may have been carried out."""
    match action:
        case DrainNode(node, reason):
            await slurm.drain(node, reason)
        case UndrainNode(node):
            await slurm.undrain(node)
        case DownNode(node, reason):
            await slurm.set_down(node, reason)
        case _:
            assert_never(action)
    ACTIONS.labels(type(action).__name__).inc()
