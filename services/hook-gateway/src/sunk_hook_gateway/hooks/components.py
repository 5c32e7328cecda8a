"""Heterogeneous jobs: which locks of other nodes a component's prolog waits for, and since when they count.

Slurm starts the batch script when the nodes of the first component are ready, whatever those of the others
do; so the prolog of the node that it starts on is answered last. It only looks at the others' locks, which
their own prologs ask for: no node may lock another.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from sunk_hook_gateway.hooks.bodies import Prehook
from sunk_slurm import granted_locks
from sunk_slurm.hostlist import expand

NODES_MAX: Final = 10_000
"""Of all components: one call is no reason for the others to wait while so many names are made."""

JobOnNode = tuple[int, str]


def waited_for(body: Prehook) -> tuple[JobOnNode, ...]:
    """Return each other component's job on each of its nodes.

    Raises:
        ValueError: their nodes are no hostlist, or more than a cluster has.
    """
    found: list[JobOnNode] = []
    for one in body.components:
        if one.job != body.job:
            found += ((one.job, name) for name in expand(one.nodes, NODES_MAX - len(found)))
    return tuple(dict.fromkeys(found))


def since(body: Prehook) -> datetime:
    """Return from when on a grant is one of this run of the job, and not of one before it was requeued."""
    return granted_locks.since(datetime.fromtimestamp(body.started, UTC))


def reason_of(left: Iterable[JobOnNode]) -> str:
    """Return what a job that is refused was waiting for, in few words."""
    names = sorted({node for _, node in left})
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""  # noqa: PLR2004 - as many as Pods
    return f"other components are not locked: {', '.join(names[:4])}{more}"
