"""Which word sinfo and squeue have for a state, and under which of the documents' names it is counted.

What must stay true: each node has one word, so the ``slurm_nodes_*`` add up.

Source: SchedMD/slurm 24.11, src/common/slurm_protocol_defs.c, node_state_string.
"""

from collections.abc import Mapping
from typing import Final

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState

COUNTED_AS: Final[Mapping[str, str]] = {
    "allocated": "alloc",
    "completing": "comp",
    "down": "down",
    "draining": "drain",
    "drained": "drain",
    "error": "err",
    "failing": "fail",
    "fail": "fail",
    "idle": "idle",
    "maint": "maint",
    "mixed": "mix",
    "reserved": "resv",
}
"""sinfo's words for nodes and the documents'."""

QUEUE: Final[Mapping[str, str]] = {
    "cancelled": "canceled",
    "completed": "completed",
    "completing": "completing",
    "configuring": "configuring",
    "failed": "failed",
    "node_fail": "node_fail",
    "pending": "pending",
    "preempted": "preempted",
    "running": "running",
    "suspended": "suspended",
    "timeout": "timeout",
}
"""squeue's words and the documents'."""

_IDLE_WORDS: Final = (("COMPLETING", "completing"), ("MAINTENANCE", "maint"), ("RESERVED", "reserved"))
"""What sinfo calls an idle node with a flag."""


def node_word(node: SlurmNodeState) -> str:
    """Return sinfo's word for the node's state, in lower case."""
    is_mixed = _is_held_by_the_suspended(node)
    is_busy = node.is_busy or is_mixed
    if node.is_drain:
        return "draining" if is_busy else "drained"
    if "FAIL" in node.flags:
        return "failing" if is_busy else "fail"
    if is_mixed:
        return "mixed"
    if node.state == "IDLE":
        for flag, word in _IDLE_WORDS:
            if flag in node.flags:
                return word
    return node.state.lower()


def _is_held_by_the_suspended(node: SlurmNodeState) -> bool:
    """Whether Slurm itself calls the node idle, and yet a suspended job keeps memory there."""
    return node.state == "IDLE" and "COMPLETING" not in node.flags and node.memory_allocated_mib > 0


def job_word(job: SlurmJobState) -> str:
    """Return squeue's word for the job's state, in lower case."""
    for flag in ("COMPLETING", "CONFIGURING"):
        if flag in job.flags:
            return flag.lower()
    return job.state.lower()
