"""The reason of a node that is DOWN, kept where a drain of ours takes its place; pure.

A node has one reason. The service that set it down wrote why there, and needs those words for as long as it
is down; Slurm forgets them when the drain is lifted.

Source of slurmctld's own words: SchedMD/slurm 24.11 and 26.05, set_node_down_ptr and set_node_reason.
"""

from typing import Final

PREFIX: Final = "k8s:"
"""How the reason of a drain of ours begins."""
REQUEUE: Final = "k8s: requeue"
"""Of a node that is well and was set down for that alone, where Slurm has no other way to requeue a job."""
UNDRAINED: Final = "undrained"
"""What an undrain of ours leaves in place of the reason, where that cannot be empty (24.11)."""
_BY_SLURM: Final = frozenset(
    {"Not responding", "Node unexpectedly rebooted", "ResumeTimeout reached", "reboot timed out"}
)
"""Why slurmctld itself sets a node down. It appends that to a reason: ``bad dimm : Not responding``."""
_WAS_DOWN: Final = "; was down: "


def with_down_reason(drain: str, before: str, *, limit: int) -> str:
    """Return the reason *drain* with that which the node, which is DOWN, has *before*; cut at *limit*."""
    why, drain = down_reason(before), drain.partition(_WAS_DOWN)[0]  # It may be what stands there.
    return f"{drain}{_WAS_DOWN}{why}"[:limit] if why else drain


def down_reason(reason: str) -> str:
    """Return why a node that is DOWN with *reason* was set down, as far as that is said there."""
    if not reason.startswith(PREFIX) or reason.startswith(REQUEUE):
        return reason
    return reason.partition(_WAS_DOWN)[2]


def keeps_down_reason(reason: str, *, is_down: bool) -> bool:
    """Whether a drain of ours with *reason* stays until the node is back, as why it is down stands behind it.

    One that was set down for a requeue alone is resumed, and its drain goes with that.
    """
    why = down_reason(reason)
    return is_down and reason.startswith(PREFIX) and bool(why) and not why.startswith(REQUEUE)


def is_down_by_others(reason: str) -> bool:
    """Whether the *reason* of a node that is DOWN is neither ours nor slurmctld's own."""
    why = down_reason(reason)
    if not why or why == UNDRAINED or why.startswith(PREFIX):
        return False
    return _BY_SLURM.isdisjoint(why.split(" : "))
