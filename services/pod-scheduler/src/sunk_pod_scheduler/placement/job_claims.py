"""Which Pods say that a job is theirs, by its number: where a placement is lost, nobody else tells.

Only what we have written is found: whatever tenants write on their Pods costs no look at a job anything.
"""

from collections.abc import Callable, Iterator

from sunk_events.placements import PlacementState
from sunk_kube.pods import Pod
from sunk_kube.wellknown import ANNOTATION_JOB
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.gang_membership import membership
from sunk_pod_scheduler.placement.marks import Claim


def claims_of(key: bytes, pod: Pod) -> dict[str, Claim]:
    """Return what we have written on *pod* of its job, by whose that is: the Pod's own, or its gang's."""
    text = pod.metadata.annotations.get(ANNOTATION_JOB, "")
    if not text:
        return {}
    related = membership(pod)
    owners = (pod.metadata.uid, *(() if related is None else (related.id,)))
    found = {owner: marks.read_claim(key, owner, text) for owner in owners}
    return {owner: claim for owner, claim in found.items() if claim is not None}


def is_claimed(claim: Claim | None, record: PlacementState) -> bool:
    """Whether *claim* is signed by us and names the job of *record*: a Pod on a Node was bound by us then."""
    made = None if claim is None or not claim.is_signed else (claim.attempt, claim.job)
    return made == (record.attempt, record.job)


def of_owner(owner: str, job: int) -> str:
    """Return the key of the Pods that say that *job* is *owner*'s."""
    return f"{owner}/{job}"


def of_owner_left(owner: str, job: int) -> str:
    """Return the key of the Pods of a gang that say so, and have left their Nodes."""
    return f"{owner}/{job}/left"


def keys_of(key: bytes) -> Callable[[Pod], Iterator[str]]:
    """Return by what Pods are found that have not left their Nodes.

    That is the job's number if we signed it, and whose it is and the number in any case. Members of
    gangs that have left have a key of their own.
    """

    def keys(pod: Pod) -> Iterator[str]:
        for owner, claim in claims_of(key, pod).items():
            if not pod.has_left:
                yield of_owner(owner, claim.job)
                if claim.is_signed:
                    yield str(claim.job)
            elif owner != pod.metadata.uid:
                yield of_owner_left(owner, claim.job)

    return keys
