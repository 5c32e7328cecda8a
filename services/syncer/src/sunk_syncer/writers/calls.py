"""Deeds to calls of Slurm: a match, no if."""

from typing import assert_never

from sunk_syncer.actions import (
    DeleteNode,
    DescribeNode,
    DownNode,
    DrainNode,
    NodeAction,
    ResumeNode,
    UndrainNode,
)
from sunk_syncer.adapters.ports import NodeWrites
from sunk_syncer.metrics import ACTIONS


async def call_slurm(action: NodeAction, slurm: NodeWrites) -> None:
    """Carry out *action*. Every call may be repeated; after an error it may have been carried out."""
    match action:
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
            assert_never(action)
    ACTIONS.labels(type(action).__name__).inc()
