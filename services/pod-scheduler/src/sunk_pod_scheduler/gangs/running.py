"""A gang whose members run: which have done their work, which have died, and which Pods replace the dead."""

from collections import deque
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from sunk_events.placements import Gang, GangMember, PlacementState
from sunk_pod_scheduler.gangs.job_shape import shape
from sunk_pod_scheduler.gangs.model import BindMembers, GangAction, GangSeen, MemberSeen, Message, Notify
from sunk_pod_scheduler.gangs.ranks import distinct
from sunk_pod_scheduler.gangs.seats import are_enough, exit_code, is_on_node, is_well, left, occupied, vacated
from sunk_pod_scheduler.placement import lost_jobs
from sunk_pod_scheduler.placement.actions import Record, ReportLoss, Wait
from sunk_pod_scheduler.placement.end_reasons import cause, forgotten, release_requested, requeued
from sunk_pod_scheduler.placement.heartbeat import check_heartbeat
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S, LOOK_AGAIN_S, Limits
from sunk_pod_scheduler.placement.model import JobGone, JobSeen, JobUnknown
from sunk_pod_scheduler.placement.transitions import ending
from sunk_pod_scheduler.reasons import PodReason


def bound(  # noqa: PLR0911 - a table of cases
    seen: GangSeen, record: PlacementState, gang: Gang, now: datetime, limits: Limits
) -> GangAction:
    """Return the next step of a gang all of which was bound."""
    members = tuple(_noted(member, seen.members.get(member.uid)) for member in gang.members)
    if members != gang.members:
        return Record(state=replace(record, roster=replace(gang, members=members)))
    if _is_done(seen, gang):
        over = replace(record, phase="ended", changed=now, is_pod_present=False, exit_code=0)
        return Record(state=over)
    if (over := _without_job(seen, record, gang, now, limits)) is not None:
        return over
    if gone := left(seen, gang):
        if gang.policy == "replace":
            return _replaced(seen, record, gang, now, limits)
        if not are_enough(seen, gang):
            return ends(record, f"{gone} left the gang", now, exit_code=exit_code(seen, gang))
        thinned = tuple(vacated(seen, member, now) for member in gang.members)
        if thinned != gang.members:
            return Record(state=replace(record, roster=replace(gang, members=thinned)))
    if isinstance(seen.job, JobUnknown):
        return Wait(ASK_AGAIN_S)
    if record.lost is not None:
        return ReportLoss(state=replace(record, lost=None, reason=""))
    replacements = _bind_replacements(seen, record, gang)
    return replacements or check_heartbeat(
        seen.heartbeat, seen.listening, record, now, limits, are_many=seen.are_many_silent
    )


def ends(record: PlacementState, reason: str, now: datetime, *, exit_code: int = 0) -> Record:
    """All of the gang is to go; its job stays until it has gone."""
    return Record(state=replace(ending(record, reason, now).state, exit_code=exit_code, node=""))


def bind(
    seen: GangSeen, gang: Gang, locking: Collection[str] = (), unfit: Collection[str] = ()
) -> BindMembers | None:
    """Return the binding of all but the *unfit* that have a seat, on a node not *locking*, and no Node."""
    unbound = {
        member.uid: seen.kube_nodes[member.node]
        for member in gang.members
        if member.node not in {"", *locking}
        and member.uid not in unfit
        and (found := seen.members.get(member.uid)) is not None
        and found.is_well
        and not found.pod.kube_node
    }
    return BindMembers(gang=gang, kube_nodes=unbound) if unbound else None


def _is_done(seen: GangSeen, gang: Gang) -> bool:
    """Whether all have succeeded; of a gang that may run with fewer, all who were left."""
    return any(member.has_succeeded for member in gang.members) and all(
        member.has_succeeded
        or (gang.min_available and member.vacant is not None and not is_on_node(seen, member))
        for member in gang.members
    )


def _noted(member: GangMember, found: MemberSeen | None) -> GangMember:
    if member.has_succeeded or found is None or not found.has_succeeded:
        return member
    return replace(member, has_succeeded=True)


def _without_job(  # noqa: PLR0911 - a table of cases
    seen: GangSeen, record: PlacementState, gang: Gang, now: datetime, limits: Limits
) -> GangAction | None:
    """Return what follows from a job that does not run, or is about to end."""
    job = seen.job
    match job:
        case JobGone(has_ended=False):  # Whoever asks for its end: a job that ends is known to Slurm.
            return lost(seen, job, record, gang, now, limits)
        case JobUnknown() if seen.is_release_requested:
            return Wait(ASK_AGAIN_S)
        case _ if seen.is_release_requested:
            return ends(record, release_requested(job), now)
        case JobGone():
            return ends(record, forgotten(record.job), now)
        case JobSeen() if not job.is_running:
            return ends(record, cause(job), now)
        case JobSeen() if not frozenset(distinct(gang)) <= frozenset(job.nodes):
            return ends(record, f"job {job.job} does not run on all of the gang's nodes", now)
        case JobSeen() if job.is_requeued:
            return ends(record, requeued(job), now)
        case _:
            return None


def lost(  # noqa: PLR0917 - what it is, then what it knows
    seen: GangSeen, job: JobGone, record: PlacementState, gang: Gang, now: datetime, limits: Limits
) -> GangAction:
    """Slurm does not know its job: a gang that is whole goes the way of a single Pod.

    So does one in which a seat waits for a replacement, but it gets no other job before that has come: the
    job has a node for each.
    """
    gone = left(seen, gang)
    if lacks := bool(gone) and not are_enough(seen, gang):
        if gang.policy != "replace":
            why = f"Slurm does not know job {record.job} any more, and {gone} left the gang"
            return ends(record, why, now)
        if (filled := _filled(seen, record, gang, now, limits)) is not None:
            return filled
    match lost_jobs.without_job(job, record, now, limits, is_orphan=seen.is_release_requested):
        case Record(state=state) if lacks and state.phase == "submitted":
            return Wait(LOOK_AGAIN_S)
        case Record(state=state):
            return Record(state=replace(state, roster=occupied(seen, gang, now)))
        case ReportLoss() | Wait() as action:
            return action
        case _:
            return Wait(ASK_AGAIN_S)  # There is nothing else that it does.


def _replaced(
    seen: GangSeen, record: PlacementState, gang: Gang, now: datetime, limits: Limits
) -> GangAction:
    """A seat whose Pod is dead waits for another of the same index; the others run on."""
    if (filled := _filled(seen, record, gang, now, limits)) is not None:
        return filled
    due = _due(seen, gang, limits)
    return _bind_replacements(seen, record, gang) or Wait((due - now).total_seconds() if now < due else None)


def _filled(
    seen: GangSeen, record: PlacementState, gang: Gang, now: datetime, limits: Limits
) -> Record | None:
    """Return the gang with replacements in the seats of dead members, or its end; None: it waits for them."""
    is_anybody_left = any(one.pod.kube_node and one.is_well for one in _seated(seen, gang))
    if not is_anybody_left and not (gang.min_available and are_enough(seen, gang)):
        return ends(record, "no Pod of the gang is left", now, exit_code=exit_code(seen, gang))
    members = list(gang.members)
    replacements = _replacements(seen, gang)
    for rank, member in enumerate(members):
        if is_well(seen, member):
            continue
        waiting = replacements.get(member.index)
        if waiting and member.node and not is_on_node(seen, member):
            replacement = waiting.popleft()
            members[rank] = replace(member, uid=replacement.uid, pod=replacement.pod.name, vacant=None)
        else:
            members[rank] = vacated(seen, member, now)
    if tuple(members) != gang.members:
        return Record(state=replace(record, roster=replace(gang, members=tuple(members))))
    if now >= _due(seen, gang, limits) and not are_enough(seen, gang):
        return ends(record, f"{left(seen, gang)} was not replaced", now, exit_code=exit_code(seen, gang))
    return None


def _due(seen: GangSeen, gang: Gang, limits: Limits) -> datetime:
    """Return until when the first seat to become vacant waits for a replacement."""
    since = min(one.vacant for one in gang.members if one.vacant is not None and not is_well(seen, one))
    return since + timedelta(seconds=limits.gang_wait_s)


def _seated(seen: GangSeen, gang: Gang) -> Iterable[MemberSeen]:
    found = (seen.members.get(member.uid) for member in gang.members)
    return [one for one in found if one is not None]


def _replacements(seen: GangSeen, gang: Gang) -> dict[str, deque[MemberSeen]]:
    """Return by index who can take a seat: what he asks for is no more than the job has for one."""
    seated = {member.uid for member in gang.members}
    shapes = {gang.shape} if gang.shape else _shapes(seen, gang)
    found: dict[str, deque[MemberSeen]] = {}
    for one in seen.members.values():
        fits = (
            one.is_free
            and one.uid not in seated
            and one.wanted is not None
            and one.wanted.cpus <= gang.cpus
            and one.wanted.memory_mib <= gang.memory_mib
            and one.wanted.gpus <= gang.gpus
            and one.terms.members_per_node == gang.members_per_node
            and shape(one.wanted) in shapes
        )
        if fits:
            found.setdefault(one.index, deque()).append(one)
    return found


def _shapes(seen: GangSeen, gang: Gang) -> set[str]:
    """Return what the members ask for that run: of a gang that was stored without its shape."""
    seats = {member.uid for member in gang.members}
    found = (one for uid, one in seen.members.items() if uid in seats and one.is_well)
    return {shape(one.wanted) for one in found if one.wanted is not None}


def _bind_replacements(seen: GangSeen, record: PlacementState, gang: Gang) -> GangAction | None:
    """Return the binding of replacements, once the nodes of their seats are locked for the job."""
    replacements = [one for one in _seated(seen, gang) if one.is_well and not one.pod.kube_node]
    if not replacements:
        return None
    if isinstance(seen.job, JobUnknown) or (isinstance(seen.job, JobSeen) and not seen.job.is_marked):
        return Wait(ASK_AGAIN_S)  # Whether the seat is still ours only Slurm can say.
    node_by_uid = {one.uid: one.node for one in gang.members}
    seatless = f"job {record.job} has no node for it"
    problems = {
        one.uid: Message(
            reason=PodReason.SEAT_DOES_NOT_FIT, text=one.node_problem or seatless, is_warning=True
        )
        for one in replacements
        if one.node_problem or not node_by_uid[one.uid]
    }
    if all(node in seen.kube_nodes for node in distinct(gang)) and seen.ungranted is not None:
        if binding := bind(seen, gang, {lock.node for lock in seen.ungranted}, problems):
            return binding
    elif not problems:
        return Wait(ASK_AGAIN_S)
    notes = {
        one.uid: Message(
            reason=PodReason.WAITING_FOR_LOCK,
            text=f"job {record.job} waits until {node_by_uid[one.uid]} is locked for it",
        )
        for one in replacements
    }
    return Notify(notes=notes | problems, after_s=LOOK_AGAIN_S)
