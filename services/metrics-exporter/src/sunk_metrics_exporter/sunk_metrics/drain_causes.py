"""Who drained a node and why, in a few words that never grow in number.

Source: the Syncer's documents, "Slurm drains from Kubernetes"; SchedMD/slurm 24.11: reasons that slurmctld
and slurmd set themselves.
"""

from typing import Final

import msgspec

from sunk_events.nodes import SlurmNodeState

OURS: Final = "k8s:"
KUBERNETES: Final = (
    "cordon",
    "pod not ready",
    "pod terminated",
    "pod pending deletion",
    "pod deletion timeout",
    "prolog pre-hook failed",
)
SLURM: Final = (
    "prolog error",
    "epilog error",
    "kill task failed",
    "not responding",
    "node unexpectedly rebooted",
    "batch job complete failure",
    "low realmemory",
    "low tmpdisk",
    "low cpucount",
    "gres/gpu count",
    "nhc",
)
OTHER: Final = "other"


class Cause(msgspec.Struct, frozen=True):
    """Why a node is drained; both words come from short lists."""

    owner: str
    """``kubernetes``: this project; ``slurm``: Slurm itself or a health check; ``person``: anybody else."""
    cause: str


def cause_of(node: SlurmNodeState) -> Cause:
    """Return why *node* is drained, by its reason."""
    reason = node.reason.strip().lower()
    if reason.startswith(OURS):
        return Cause("kubernetes", _first(reason.removeprefix(OURS).strip(), KUBERNETES))
    known = _first(reason, SLURM)
    return Cause("person", OTHER) if known == OTHER else Cause("slurm", known)


def _first(text: str, causes: tuple[str, ...]) -> str:
    return next((cause for cause in causes if text.startswith(cause)), OTHER)
