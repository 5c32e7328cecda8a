"""What to do next about one gang: one action, from what is the case now.

What must stay true, wherever the process is killed: a gang is one job, and nobody in it is bound before that
job runs on all its nodes, all of them are locked for it, and its script has announced itself; a member is
bound to its own seat's Node only; a gang whose job does not run is deleted as far as it is bound, else
submitted again; the job ends when no kubelet has anything of it left.

Until somebody is bound, a gang goes the way of a single Pod (`sunk_pod_scheduler.placement.decide`).
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from sunk_events.placements import Gang, PlacementPhase, PlacementState
from sunk_pod_scheduler.gangs.assembly import form, full
from sunk_pod_scheduler.gangs.member_states import member_states_behind
from sunk_pod_scheduler.gangs.model import DeleteMembers, GangAction, GangSeen, Notify, SubmitGang
from sunk_pod_scheduler.gangs.ranks import distinct, fitted, ordered, seated, unseated
from sunk_pod_scheduler.gangs.running import bind, bound, ends, lost
from sunk_pod_scheduler.gangs.seats import (
    are_enough,
    exit_code,
    is_on_node,
    is_well,
    left,
    occupied,
    seats_from_pods,
)
from sunk_pod_scheduler.placement import node_locks
from sunk_pod_scheduler.placement.actions import (
    Action,
    Bind,
    DeletePod,
    Forget,
    GiveUp,
    MarkStarted,
    Record,
    ReportLoss,
    Submit,
    Wait,
)
from sunk_pod_scheduler.placement.decide import decide
from sunk_pod_scheduler.placement.end_reasons import NOT_SERVED
from sunk_pod_scheduler.placement.job_claims import is_claimed
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S, Limits
from sunk_pod_scheduler.placement.model import JobGone, JobSeen, Observed, PodSeen
from sunk_pod_scheduler.placement.transitions import given_up, joined, without
from sunk_pod_scheduler.podspec.job_size import too_small_for
from sunk_pod_scheduler.reasons import PodReason


def decide_gang(seen: GangSeen, now: datetime, limits: Limits) -> GangAction:
    """Return the next step towards the gang and its job living and ending together."""
    record = seen.placement
    if record is not None and record.roster is not None and record.phase not in {"ending", "ended"}:
        gang = seats_from_pods(seen, record, record.roster)
        if gang != record.roster:
            return Record(state=replace(record, roster=gang))
    if (behind := member_states_behind(seen, now)) is not None:
        return behind
    if record is None or record.roster is None:
        action = form(seen, now, limits)
        is_idle = isinstance(action, Notify) or action == Wait()
        return Forget() if seen.is_overtaken and is_idle else action
    action = _BY_PHASE[record.phase](seen, record, record.roster, now, limits)
    if isinstance(action, Wait) and record.phase not in {"ending", "ended"}:
        others = full(seen, record.roster)
        return Notify(notes=others, after_s=action.after_s) if others else action
    return action


def _refused(
    seen: GangSeen, record: PlacementState, gang: Gang, _now: datetime, _limits: Limits
) -> GangAction:
    """A Pod became invalid before its gang had a job: once that is mended, the gang forms anew."""
    pod = _together(seen, record, gang)
    return Wait() if pod.problems and record.reason == joined(pod.problems) else Forget()


def _placing(  # noqa: PLR0911 - a table of cases
    seen: GangSeen, record: PlacementState, gang: Gang, now: datetime, limits: Limits
) -> GangAction:
    """Phases ``submitted``, ``released`` and ``started``: it waits for its nodes, or to be bound."""
    if _is_anothers(seen, record, gang):
        over = replace(record, phase="ended", changed=now, is_pod_present=False, is_overdue=False)
        return Record(state=replace(over, exit_code=0, reason=NOT_SERVED))
    is_lost = record.lost is not None  # Then its members run already, and perhaps fewer than all.
    may_lack = is_lost or all(member.vacant or is_well(seen, member) for member in gang.members)
    if (gone := left(seen, gang)) and not (may_lack and are_enough(seen, gang)):
        reason = f"{gone} left the gang" + ("" if is_lost else " before all of it was bound")
        return ends(record, reason, now, exit_code=exit_code(seen, gang))
    if gone and record.job is None and (still := occupied(seen, gang, now)) != gang:
        return Record(state=replace(record, roster=still))
    job = seen.job
    if (
        record.phase == "started"
        and isinstance(job, JobSeen)
        and job.is_running
        and not job.is_requeued
        and not seen.is_release_requested
    ):
        return _binding(seen, record, gang, job, now)
    pod = _together(seen, record, gang)
    if isinstance(job, JobGone) and not job.has_ended and pod.kube_node and record.job and not is_lost:
        if any(not member.node and is_on_node(seen, member) for member in gang.members):
            return Wait(ASK_AGAIN_S)  # Nothing tells where it runs.
        return lost(seen, job, replace(record, phase="bound"), gang, now, limits)
    return _of_gang(_as_one(seen, record, pod, now, limits), seen, gang, pod, now)


def _is_anothers(seen: GangSeen, record: PlacementState, gang: Gang) -> bool:
    """Whether another scheduler may place the gang, or has done so, and we have bound no member of it."""
    there = [(one, found.pod) for one in gang.members if (found := seen.members.get(one.uid)) is not None]
    if record.lost is not None or all(pod.is_served for _, pod in there):
        return False
    if any(pod.kube_node and is_claimed(pod.claim, record) for _, pod in there):
        return False
    return record.phase != "started" or not any(
        pod.kube_node and seen.kube_nodes.get(one.node, pod.kube_node) == pod.kube_node for one, pod in there
    )


def _of_gang(  # noqa: PLR0911 - a table of cases
    action: Action, seen: GangSeen, gang: Gang, pod: PodSeen, now: datetime
) -> GangAction:
    """Return a single Pod's step as the gang's."""
    match action:
        case Submit():
            return SubmitGang(attempt=action.attempt, gang=gang)
        case Record() if action.state.phase == "started" and isinstance(seen.job, JobSeen):
            nodes = ordered(seen.job.nodes, seen.switches)
            found = seated(fitted(gang, nodes), nodes)
            if found is None:
                too_few = f"job {seen.job.job} does not have the gang's nodes"
                return given_up(_again(pod, action.state, gang, too_few, now), seen.job)
            return Record(state=replace(action.state, node="", roster=found))
        case GiveUp():
            return replace(action, state=_unplaced(seen, action.state, gang, now))
        case Record() if action.state.job is None and action.state.phase == "submitted":
            return Record(state=_unplaced(seen, action.state, gang, now))
        case ReportLoss() if action.state.lost is not None:
            return action
        case Bind() | DeletePod() | ReportLoss():
            return Wait(ASK_AGAIN_S)  # Steps of a Pod that is started or bound, which a gang takes elsewhere.
        case _:
            return action


def _unplaced(seen: GangSeen, state: PlacementState, gang: Gang, now: datetime) -> PlacementState:
    """Return *state* with seats anywhere; where Slurm has lost the job of Pods that run, where they are."""
    return replace(state, roster=unseated(gang) if state.lost is None else occupied(seen, gang, now))


def _again(pod: PodSeen, record: PlacementState, gang: Gang, reason: str, now: datetime) -> Record:
    """The job is of no use: bound members go, or the whole gang gets another job."""
    action = without(pod, record, reason, now)
    roster = gang if action.state.phase == "ending" else unseated(gang)
    return Record(state=replace(action.state, node="", roster=roster))


def _binding(  # noqa: C901, PLR0911 - a table of cases
    seen: GangSeen, record: PlacementState, gang: Gang, job: JobSeen, now: datetime
) -> GangAction:
    """The job runs on all its nodes: nobody is bound before every one of them is locked for it.

    Members of a gang that had lost its job run already: who is left to be bound waits beside them.
    """
    pod = _together(seen, record, gang)
    if not frozenset(distinct(gang)) <= frozenset(job.nodes):
        elsewhere = f"job {job.job} does not run on all of the gang's nodes"
        return given_up(_again(pod, record, gang, elsewhere, now), job)
    if small := too_small_for(job.job, job.held, gang):
        return given_up(_again(pod, record, gang, small, now), job, PodReason.JOB_TOO_SMALL)
    if any(node not in seen.kube_nodes for node in distinct(gang)):
        return Wait(ASK_AGAIN_S)
    for member in gang.members:
        found = seen.members.get(member.uid)
        if found is None or not member.node:
            continue  # It has succeeded, or died, and is gone.
        if found.pod.kube_node and found.pod.kube_node != seen.kube_nodes[member.node]:
            return ends(record, f"Pod {member.pod} is bound to a Node that is not the Node of its seat", now)
        if not found.pod.kube_node and found.node_problem:
            return given_up(_again(pod, record, gang, found.node_problem, now), job, PodReason.NODE_UNSUITED)
    if not job.is_marked:
        wiped = _again(
            pod, record, gang, f"job {job.job} no longer has the pod-scheduler's mark in its Extra", now
        )
        return given_up(wiped, job) if job.is_ours else wiped
    binding = bind(seen, gang) if seen.ungranted == () or record.lost is None else None
    if binding is not None and (locking := node_locks.waiting(seen, record, job, now)) is not None:
        return locking
    if not job.is_started_by_us:
        return MarkStarted(job.job, job.extra)
    if binding is not None:
        return binding
    state = replace(record, phase="bound", changed=now, bound=now, reason="", lost=None)
    return Record(state=state) if record.lost is None else ReportLoss(state=state)


def _ending(seen: GangSeen, record: PlacementState, gang: Gang, now: datetime, limits: Limits) -> GangAction:
    """What is bound goes, the job stays until it has gone. An unbound member may be elsewhere."""
    there = [
        found for one in gang.members if (found := seen.members.get(one.uid)) is not None and found.is_on_node
    ]
    if not there:
        over = replace(record, phase="ended", changed=now, is_pod_present=False, is_overdue=False)
        return Record(state=replace(over, exit_code=record.exit_code or 0))
    job = seen.job
    is_over = isinstance(job, JobGone) or (isinstance(job, JobSeen) and not job.is_alive)
    if untold := tuple(
        found.uid
        for found in there
        if not found.pod.is_terminating or (found.pod.outstays and (is_over or seen.is_release_requested))
    ):
        return DeleteMembers(untold)
    pod = replace(_together(seen, record, gang), is_terminating=True)
    return _of_gang(_as_one(seen, record, pod, now, limits), seen, gang, pod, now)


def _ended(seen: GangSeen, record: PlacementState, gang: Gang, now: datetime, limits: Limits) -> GangAction:
    placement = replace(record, node=next(iter(distinct(gang)), ""))
    return _of_gang(
        _as_one(seen, placement, None, now, limits), seen, gang, _together(seen, record, gang), now
    )


def _as_one(
    seen: GangSeen, record: PlacementState, pod: PodSeen | None, now: datetime, limits: Limits
) -> Action:
    """Return what would be done if the gang were one Pod."""
    one = Observed(
        uid=seen.uid,
        pod=pod,
        placement=record,
        job=seen.job,
        announced_on=seen.announced_on,
        ungranted=seen.ungranted,
        has_old_number=seen.has_old_number,
        given_away=seen.given_away,
        is_release_requested=seen.is_release_requested,
        excluded=seen.excluded,
    )
    return decide(one, now, limits)


def _together(seen: GangSeen, record: PlacementState, gang: Gang) -> PodSeen:
    """Return the gang as if it were one Pod: bound as soon as one is, wrong where one is."""
    found = [seen.members[member.uid] for member in gang.members if member.uid in seen.members]
    problems = {f"Pod {one.pod.name}: {problem}": None for one in found for problem in one.pod.problems}
    return PodSeen(
        namespace=record.namespace,
        name=record.pod,
        created=record.created,
        kube_node=next((one.pod.kube_node for one in found if one.pod.kube_node), ""),
        problems=tuple(problems),
        priority=next((one.pod.priority for one in found), None),
    )


_Decider = Callable[[GangSeen, PlacementState, Gang, datetime, Limits], GangAction]
_BY_PHASE: Final[Mapping[PlacementPhase, _Decider]] = {
    "refused": _refused,
    "submitted": _placing,
    "released": _placing,
    "started": _placing,
    "bound": bound,
    "ending": _ending,
    "ended": _ended,
}
