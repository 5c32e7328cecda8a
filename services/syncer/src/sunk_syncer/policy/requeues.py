"""Whether and how a job may be put back into the queue because its node is wanted for something else.

Source: slurmrestd of 26.05 has a call for it (v0.0.45), that of 24.11 has none. A node that is set DOWN has
its jobs requeued too, all of them: so only for a job that has the node for itself. ``slurmd -D`` that is told
to reconfigure waits for its prologs and reports them first: 24.11 and 26.05, measured.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_slurm.hostlist import has
from sunk_slurm.wire import Job, Node

PROLOG: Final = "Prolog"
"""The reason of a job that runs, and whose prologs do."""


def is_in_the_way(job: Job | None, node: str, required_reason: str = "") -> bool:
    """Whether the job runs, or is suspended, on *node*, with *required_reason* as its reason if given."""
    if job is None or (required_reason and job.state_reason != required_reason):
        return False
    state = job.state_now
    return (state.is_running or state.is_suspended) and not state.is_completing and is_on(job.nodes, node)


def is_on(nodes: str, node: str) -> bool:
    """Whether the hostlist expression *nodes* names *node*."""
    try:
        return has(nodes, node)
    except ValueError:
        return False


def is_in_prolog(job: SlurmJobState) -> bool:
    """Whether *job* waits for its prologs; one that is cancelled in them keeps the reason, also once over."""
    return job.is_running and not job.is_completing and job.reason == PROLOG


def why_not_down(job: Job, node: Node, others: Iterable[SlurmJobState]) -> str | None:
    """Return why *node* may not be set DOWN for *job*; None: no other job is hurt.

    Args:
        job: A fresh look at the job.
        node: A fresh look at the node.
        others: Every job that is known.
    """
    for other in others:
        is_there = (other.is_running or other.is_completing) and is_on(other.nodes, node.name)
        if is_there and other.job != job.job_id:
            return f"job {other.job} is on the node too"
    held = job.job_resources.nodes.allocation if job.job_resources else ()
    cpus = next((part.cpus.count for part in held if part.name == node.name), 0)
    if "none" not in job.shared and cpus < (node.effective_cpus or node.cpus):
        return "it does not have the whole node"
    return None


class Lost(msgspec.Struct, frozen=True):
    """Prologs that may have died with the slurmd that ran them, so that their end is never reported."""

    nodes: tuple[str, ...] = ()
    """Those whose slurmd is younger than the job."""
    is_certain: bool = False
    """They are all the nodes of the job. Else each of these may have reported its prolog before it was
    replaced, and the job waits for that of another node, which may take as long as Slurm lets it."""


def lost_prologs(job: SlurmJobState, nodes: Iterable[SlurmNodeState | None]) -> Lost:
    """Return where *job*, if it is in its prolog, may have lost it.

    A reconfigure replaces each slurmd, but not before the prologs that it runs have ended.

    Args:
        job: The job.
        nodes: Every node that it is on; None where nothing is known of one.
    """
    if not is_in_prolog(job) or job.started is None:
        return Lost()
    known = tuple(nodes)
    younger = [node.node for node in known if node and _is_younger(node.slurmd_started, job.started)]
    return Lost(tuple(younger), is_certain=bool(younger) and len(younger) == len(known))


def _is_younger(slurmd_started: datetime | None, job_started: datetime) -> bool:
    return slurmd_started is not None and slurmd_started > job_started
