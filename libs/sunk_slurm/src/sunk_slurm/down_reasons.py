"""The reason of a node that is DOWN, kept where a drain of ours takes its place; pure.

A node has one reason. The service that set it down wrote why there, and needs those words for as long as it
is down; Slurm forgets them when the drain is lifted.
"""

from typing import Final

PREFIX: Final = "k8s:"
"""How the reason of a drain of ours begins."""
REQUEUE: Final = "k8s: requeue"
"""Of a node that is well and was set down for that alone, where Slurm has no other way to requeue a job."""
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


def keeps_down_reason(reason: str) -> bool:
    """Whether *reason* is that of a drain of ours, and why the node is down stands behind it."""
    return reason.startswith(PREFIX) and bool(down_reason(reason)) and not reason.startswith(REQUEUE)
