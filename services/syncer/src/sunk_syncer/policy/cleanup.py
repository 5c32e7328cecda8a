"""Which records of Slurm nodes may be deleted: those that we made, whose Node is no longer in any NodeSlice.

What must stay true: a record is never deleted if the node is static or another client made it, if it
runs or completes a job, or if its Pod may still be there. The Extra of a record says that it is ours,
so this is known after any restart. If a user removes that from Extra, the record stays.
"""

from typing import Final

from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_runtime.losses import is_mass_loss
from sunk_slurm.states import NodeState
from sunk_syncer.policy.extra import parsed
from sunk_syncer.policy.polling import FEW, FEW_PERCENT
from sunk_syncer.states.nodes import EXTRA_MAX

DYNAMIC: Final = "DYNAMIC_NORM"
"""The node has registered itself: slurm.conf does not name it."""


def may_be_ours(told: SlurmNodeState) -> bool:
    """Whether the record needs a look. An Extra that is cut off tells nothing."""
    if DYNAMIC not in told.flags:
        return False
    return len(told.extra) >= EXTRA_MAX or parsed(told.extra).ours is not None


def why_kept(
    node: str, state: NodeState, extra: str, *, is_in_slice: bool, pod: KubePodState | None
) -> str | None:
    """Return why the record of *node* is kept; None: it may be deleted."""
    if DYNAMIC not in state.flags:
        return "slurm.conf names it"
    if is_in_slice:
        return "a NodeSlice has it"
    if pod is not None and pod.phase != "gone":
        return "its Pod is there"
    if state.is_busy or state.base not in {"IDLE", "DOWN"}:
        return "a job runs or completes on it, or Slurm does not know"
    ours = parsed(extra).ours
    if ours is None or ours.pod != node:
        return "it was not made by us"
    return None


def are_many(missing: int, known: int) -> bool:
    """Whether so many went at once that the NodeSlices themselves may have been lost."""
    is_too_much = is_mass_loss(missing, known, percent=FEW_PERCENT, few=FEW)
    return is_too_much or (missing > 1 and known == missing)
