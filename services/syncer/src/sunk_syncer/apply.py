"""Deeds to calls of Slurm: a match, no if."""

from typing import assert_never

from sunk_syncer.metrics import ACTIONS
from sunk_syncer.model import Deed, DeleteNode, DescribeNode, DownNode, DrainNode, ResumeNode, UndrainNode
from sunk_syncer.ports import NodeWrites


async def apply(deed: Deed, slurm: NodeWrites) -> None:
    """Carry out *deed*. Every call may be repeated; after an error it may have been carried out."""
    match deed:
        case DrainNode(node, reason):
            await slurm.drain(node, reason)
        case UndrainNode(node):
            await slurm.undrain(node)
        case DownNode(node, reason):
            await slurm.set_down(node, reason)
        case ResumeNode(node):
            await slurm.resume(node)
        case DescribeNode(node, extra, features):
            await slurm.describe_node(node, extra=extra, features=features)
        case DeleteNode(node):
            await slurm.delete_node(node)
        case _:
            assert_never(deed)
    ACTIONS.labels(type(deed).__name__).inc()
