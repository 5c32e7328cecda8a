"""What an Event says of a Pod that a lock evicts or deletes. Pure.

What must stay true: a text has numbers and names that the API server has checked, and nothing else that a
tenant writes; it is the same at each attempt, so that Kubernetes has it once.
"""

from collections.abc import Iterable
from typing import Final

from sunk_kube.bodies import EventText
from sunk_nodeset_controller.locks.eviction import PodEviction
from sunk_nodeset_controller.locks.model import Clearing, Holder
from sunk_nodeset_controller.reasons import EvictionReason

NAMED: Final = 5
"""So many jobs are named."""


def eviction_event(
    eviction: PodEviction, kube_node: str, holders: Iterable[Holder], clearing: Clearing
) -> EventText:
    """Return why *eviction* is about to happen on the Node *kube_node*.

    Args:
        eviction: What is done to a Pod.
        kube_node: Its Node.
        holders: Who the Node is locked for.
        clearing: The settings.
    """
    locked = f"Node {kube_node} is locked for {_jobs(holders)}: Pod {eviction.pod.key}"
    if eviction.how == "delete":
        reason, action = EvictionReason.DELETING_FOR_SLURM, "Deleting"
        refused_s = f"{clearing.delete_after_s or 0:g} s"
        note = f"{locked} is deleted, because Kubernetes refused its eviction for {refused_s}"
    else:
        reason, action = EvictionReason.EVICTING_FOR_SLURM, "Evicting"
        note = f"{locked} is evicted, because no toleration lets it stay there"
    return EventText(reason=reason, action=action, note=note, type="Warning")


def _jobs(holders: Iterable[Holder]) -> str:
    jobs = sorted({holder.job for holder in holders})
    if not jobs:
        return "Slurm"
    more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
    return f"Slurm job{'s' if len(jobs) > 1 else ''} {', '.join(map(str, jobs[:NAMED]))}{more}"
