"""Why a Pod that Slurm places is as it is, from what the bus says of it. Pure.

The pod-scheduler has its own words for this (`sunk-bus explain pod`), from a fresh look at the Pod's job in
Slurm. A question about a Pod must cost Slurm no call, so here is what the bus holds; the syncer adds what it
knows of the job.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from sunk_events.base import REASON_MAX
from sunk_events.placements import PlacementPhase, PlacementState
from sunk_events.requests import Finding


def findings(placement: PlacementState, gang: PlacementState | None = None) -> tuple[Finding, ...]:
    """Return what there is to say of a Pod, or of a gang; *gang*: the one that the Pod belongs to."""
    found = [_BY_PHASE[placement.phase](placement)]
    if placement.lost is not None:
        found.append(
            Finding(
                what=f"Slurm has lost its job {placement.lost_job or placement.job}",
                since=placement.lost,
                would_change="the Pod gets another job; until then it stays where it is",
            )
        )
    if placement.is_overdue:
        found.append(
            Finding(
                what=f"overdue: {placement.node} takes no more work",
                because="the job has ended, or is about to, and the Pod still exists",
                would_change="the Pod's containers end, or the Pod is deleted",
            )
        )
    if gang is not None:
        rank = "its rank is not known yet" if placement.rank is None else f"its rank is {placement.rank}"
        found.append(
            Finding(
                what=f"a member of the gang {gang.pod}",
                because=f"one job places all members; {rank}",
                would_change=f"explain gang {gang.pod}",
            )
        )
    if placement.roster is not None:
        found += _seats(placement)
    return tuple(found)


def unknown(pod: str, *, is_gang: bool = False, silent: str = "") -> Finding:
    """Return what there is to say of a Pod of which the bus knows nothing.

    Args:
        pod: Its name, or that of the gang's workload.
        is_gang: It is a gang.
        silent: Which pod-schedulers have had no leader for long; empty: none is known to.
    """
    if silent:
        return Finding(
            what=f"whether Slurm places {pod} is not known",
            because=f"{silent}: it looks at no new Pod"[:REASON_MAX],
            would_change="a replica of it leads again",
        )
    if is_gang:
        return Finding(
            what=f"no gang {pod} is known",
            because="Slurm places no Pods of a workload of that name together",
            would_change="use the name of the Job, JobSet, LeaderWorkerSet or PodGroup",
        )
    return Finding(
        what=f"Slurm does not place {pod}",
        because="no placement of a Pod of that name is known",
        would_change="spec.schedulerName names a pod-scheduler that runs; the Pod has no scheduling gates",
    )


def _seats(gang: PlacementState) -> Iterable[Finding]:
    members = gang.roster.members if gang.roster else ()
    needed = (gang.roster.min_available if gang.roster else 0) or len(members)
    there = [member for member in members if member.vacant is None]
    yield Finding(
        what=f"{len(there)} of {len(members)} members have a Pod, {needed} are needed",
        because=", ".join(
            f"rank {rank}: {member.pod}" for rank, member in enumerate(members[:8]) if member.pod
        ),
        would_change="" if len(there) >= needed else "the workload's controller creates the missing Pods",
    )


def _refused(one: PlacementState) -> Finding:
    return Finding(
        what="refused",
        since=one.changed,
        because=one.reason,
        would_change="change the Pod's annotations, or replace the Pod; the scheduler then looks again",
    )


def _submitted(one: PlacementState) -> Finding:
    if one.job is None:
        return Finding(
            what="has no job in Slurm yet",
            since=one.changed,
            because=one.reason or "its submission is under way",
            would_change="Slurm accepts the job; the pod-scheduler tries again",
        )
    return Finding(
        what=f"job {one.job} is submitted and held",
        since=one.changed,
        because=one.reason or "the pod-scheduler has not released it yet",
        would_change="the pod-scheduler releases it in a moment",
    )


def _released(one: PlacementState) -> Finding:
    expected = f"; Slurm expects to start it at {one.start_told:%Y-%m-%d %H:%M %Z}" if one.start_told else ""
    return Finding(
        what=f"job {one.job} waits for its turn in Slurm",
        since=one.changed,
        because=f"{one.reason or 'Slurm has not started it yet'}{expected}"[:1024],
        would_change="see the syncer's part for what the job waits for",
    )


def _started(one: PlacementState) -> Finding:
    return Finding(
        what=f"job {one.job} runs on {one.node}, the Pod is not bound yet",
        since=one.changed,
        because=one.reason or "the binding is under way",
        would_change="the Pod is bound to the Node in a moment",
    )


def _bound(one: PlacementState) -> Finding:
    return Finding(
        what=f"bound to {one.kube_node} for job {one.job} on {one.node}",
        since=one.bound or one.changed,
        because=one.reason,
        would_change="the Pod or the job ends; the end of one ends the other",
    )


def _ending(one: PlacementState) -> Finding:
    return Finding(
        what="the Pod is being deleted",
        since=one.changed,
        because=one.reason,
        would_change="the kubelet ends its containers",
    )


def _ended(one: PlacementState) -> Finding:
    return Finding(
        what=f"job {one.job} ends",
        since=one.changed,
        because=one.reason or "its Pod has ended",
        would_change="its script and its node's epilog end",
    )


_BY_PHASE: Final[Mapping[PlacementPhase, Callable[[PlacementState], Finding]]] = {
    "refused": _refused,
    "submitted": _submitted,
    "released": _released,
    "started": _started,
    "bound": _bound,
    "ending": _ending,
    "ended": _ended,
}
