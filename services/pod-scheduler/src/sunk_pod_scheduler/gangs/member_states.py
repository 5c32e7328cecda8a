"""The placements of a gang's members: what follows for each from the gang's own, and nothing else.

Others know Pods and nodes by them: locks, drains, metrics. So they are stored before a Pod is bound, and go
after it has gone.
"""

from datetime import datetime

from msgspec.structs import replace

from sunk_events.placements import GangMember, PlacementPhase, PlacementState
from sunk_pod_scheduler.gangs.model import GangSeen, MemberSeen, SyncMemberStates


def member_states_behind(seen: GangSeen, now: datetime) -> SyncMemberStates | None:
    """Return what has to be stored and deleted; None where all is as it should be."""
    wanted = _wanted(seen, now)
    states = tuple(
        state
        for uid, state in wanted.items()
        if (before := seen.seats.get(uid)) is None or replace(before, changed=state.changed) != state
    )
    gone = tuple(uid for uid in seen.seats if uid not in wanted)
    return SyncMemberStates(states=states, gone=gone) if states or gone else None


def _wanted(seen: GangSeen, now: datetime) -> dict[str, PlacementState]:
    record = seen.placement
    if record is None or record.roster is None or (record.job is None and record.lost is None):
        return {}
    return {
        member.uid: _seat(seen, record, rank, member, now)
        for rank, member in enumerate(record.roster.members)
        if member.uid
    }


def _seat(
    seen: GangSeen, record: PlacementState, rank: int, member: GangMember, now: datetime
) -> PlacementState:
    found, before = seen.members.get(member.uid), seen.seats.get(member.uid)
    is_present = found is not None and not found.pod.is_finished
    runs = found is not None and found.is_on_node  # One that is to come waits, whatever the others do.
    return PlacementState(
        changed=now,
        uid=member.uid,
        namespace=record.namespace,
        pod=member.pod,
        phase=_phase(record, member, found),
        attempt=record.attempt,
        job=record.job,
        node=member.node,
        kube_node=found.pod.kube_node if found is not None else before.kube_node if before else "",
        token_sha256=record.token_sha256,
        is_pod_present=is_present,
        is_overdue=record.is_overdue and found is not None and found.is_on_node,
        exit_code=None if is_present else record.exit_code or 0,
        reason=record.reason,
        created=found.pod.created if found is not None else before.created if before else None,
        lost=record.lost if runs else None,
        lost_job=record.lost_job if runs else None,
        gang=record.uid,
        rank=rank if member.node else None,
    )


def _phase(record: PlacementState, member: GangMember, found: MemberSeen | None) -> PlacementPhase:
    if (member.node or member.is_empty) and (found is None or found.pod.is_finished):
        return "ended"
    match record.phase:
        case "started" | "bound":
            return "bound" if found is not None and found.pod.kube_node else "started"
        case "ending" | "ended":
            return record.phase
        case _:
            return "submitted"
