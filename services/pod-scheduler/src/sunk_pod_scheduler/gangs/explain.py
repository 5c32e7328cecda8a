"""Why a member of a gang is as it is: what its gang waits for comes first."""

from datetime import datetime

from sunk_events.base import REASON_MAX
from sunk_events.requests import Finding
from sunk_pod_scheduler.gangs.decide import decide_gang
from sunk_pod_scheduler.gangs.model import GangSeen, Notify
from sunk_pod_scheduler.placement.limits import WAITING_FIRST_S, Limits


def explain_member(seen: GangSeen, uid: str, now: datetime, limits: Limits) -> tuple[Finding, ...]:
    """Return what there is to say of the member *uid* because of its gang."""
    name = f"{seen.kind} {seen.namespace}/{seen.name}"
    record = seen.placement
    if record is None or record.roster is None:
        return _forming(seen, uid, now, limits)
    place = next((place for place, one in enumerate(record.roster.members) if one.uid == uid), None)
    if place is None:
        return (_finding(f"not in {name}", "all seats of the gang are taken", "a member or the gang ends"),)
    what = f"{'rank' if record.roster.members[place].node else 'member'} {place} of {name}"
    size = len(record.roster.members)
    because = f"the gang of {size} is {record.phase}" + (f": {record.reason}" if record.reason else "")
    return (
        _finding(what, because, "" if record.phase == "bound" else "the gang's job gets what it waits for"),
    )


def _forming(seen: GangSeen, uid: str, now: datetime, limits: Limits) -> tuple[Finding, ...]:
    """Return what the Pod says, or would say in a moment."""
    action = decide_gang(seen, now, limits)
    note = action.notes.get(uid) if isinstance(action, Notify) else None
    if note is None:
        there = sum(one.is_free for one in seen.members.values())
        text = f"{there} of {seen.size} Pods exist"
        return (
            _finding(
                "new in its gang",
                text,
                f"the pod-scheduler processes it, at the latest in {WAITING_FIRST_S:g} s",
            ),
        )
    return (
        _finding(note.reason, note.text, "create or fix the other members, or correct the Pods' annotations"),
    )


def _finding(what: str, because: str, would_change: str) -> Finding:
    return Finding(
        what=what[:REASON_MAX], because=because[:REASON_MAX], would_change=would_change[:REASON_MAX]
    )
