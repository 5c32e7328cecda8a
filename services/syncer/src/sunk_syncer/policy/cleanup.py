"""Which records of Slurm nodes may be deleted: those that we made, whose Node is no longer in any NodeSlice.

What must stay true: a record is never deleted if the node is static or another client made it, if it
runs or completes a job, or if its Pod may still be there. Nor is it if others drained the node or set it
down: it would come back without that. The Extra of a record says that it is ours, so this is known after any
restart. If a user removes that from Extra, the record stays.
"""

from typing import Final

from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_runtime.losses import is_mass_loss
from sunk_slurm.down_reasons import PREFIX, is_down_by_others
from sunk_slurm.states import NodeState
from sunk_syncer.policy.extra import parsed
from sunk_syncer.policy.polling import FEW, FEW_PERCENT
from sunk_syncer.states.nodes import EXTRA_MAX

DYNAMIC: Final = "DYNAMIC_NORM"
"""The node has registered itself: slurm.conf does not name it."""


def may_be_ours(published: SlurmNodeState) -> bool:
    """Whether the record needs a look. An Extra that is cut off shows nothing."""
    if DYNAMIC not in published.flags:
        return False
    return len(published.extra) >= EXTRA_MAX or parsed(published.extra).ours is not None


def is_out_by_others(reason: str, *, is_drain: bool, is_down: bool) -> bool:
    """Whether others took the node out of service: its drain is theirs, or they set it down."""
    return (is_drain and not reason.startswith(PREFIX)) or (is_down and is_down_by_others(reason))


def why_kept(
    node: str, state: NodeState, extra: str, reason: str, *, is_in_slice: bool, pod: KubePodState | None
) -> str | None:
    """Return why the record of *node* is kept; None: it may be deleted."""
    if DYNAMIC not in state.flags:
        return "slurm.conf names it"
    if is_in_slice:
        return "a NodeSlice has it"
    if pod is not None and pod.phase != "gone":
        return "its Pod exists"
    if state.is_busy or state.base not in {"IDLE", "DOWN"}:
        return "a job runs or completes on it, or Slurm does not know"
    ours = parsed(extra).ours
    if ours is None or ours.pod != node:
        return "the services did not create it"
    is_out = is_out_by_others(reason, is_drain=state.is_drain, is_down=state.is_down)
    return f"an administrator took it out of service: {reason or 'no reason given'}" if is_out else None


def are_many(missing: int, known: int) -> bool:
    """Whether so many went at once that the NodeSlices themselves may have been lost."""
    is_too_much = is_mass_loss(missing, known, percent=FEW_PERCENT, few=FEW)
    return is_too_much or (missing > 1 and known == missing)
