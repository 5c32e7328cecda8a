"""Actions of gangs to calls. Each is idempotent or leaves what tells that it was begun."""

import logging
from collections.abc import Sequence
from typing import Final, assert_never

from sunk_events.placements import PlacementState
from sunk_kube.objects import Pod
from sunk_kube.wellknown import (
    ANNOTATION_GANG_ASKED_SIZE,
    ANNOTATION_GANG_LEADER,
    ANNOTATION_GANG_NODES,
    ANNOTATION_GANG_RANK,
    ANNOTATION_GANG_SIZE,
    ANNOTATION_JOB,
)
from sunk_pod_scheduler import metrics
from sunk_pod_scheduler.controller.context import Context
from sunk_pod_scheduler.controller.executor import RELEASED
from sunk_pod_scheduler.gang_controller.notifier import Notifier, Pods, name, seated, uids
from sunk_pod_scheduler.gang_controller.submitter import GangSubmitter
from sunk_pod_scheduler.gangs.job_description import whose_job
from sunk_pod_scheduler.gangs.model import (
    BindMembers,
    DeleteMembers,
    GangAction,
    GangSeen,
    Message,
    SubmitGang,
    SyncMemberStates,
    Tell,
)
from sunk_pod_scheduler.gangs.ownership import owner
from sunk_pod_scheduler.gangs.ranks import distinct
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.end_reasons import by_whom
from sunk_pod_scheduler.placement.events import facts
from sunk_pod_scheduler.placement.kubelet_rejections import refusal
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S
from sunk_pod_scheduler.placement.model import (
    CancelJob,
    ExcludeNodes,
    Forget,
    GiveUp,
    JobUnknown,
    MarkStarted,
    Record,
    RecordReason,
    Refuse,
    ReleaseJob,
    Resume,
    Wait,
)
from sunk_runtime.errors import ConflictError
from sunk_runtime.together import each
from sunk_runtime.views import now
from sunk_slurm.errors import SlurmRejectedError

log = logging.getLogger(__name__)

GANG_ENDS: Final = "GangEnds"


class GangExecutor:
    """Carries actions out for one Slurm cluster, while it may."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pods = context.pods
        self._notifier = Notifier(context.pods)
        self._submitter = GangSubmitter(context, self._store)

    async def apply(  # noqa: C901, PLR0911, PLR0912 - one case an action, none decides anything
        self, action: GangAction, seen: GangSeen, pods: Pods
    ) -> float | None:
        """Carry out *action*.

        Returns:
            In how many seconds to look again, where the effect takes its time; None: look now.
        """
        metrics.ACTIONS.labels(type(action).__name__).inc()
        self._context.check()
        match action:
            case Wait():
                await self._confirm(seen)
                return action.after_s
            case Tell():
                await self._confirm(seen)
                await self._notifier.tell(pods, action.notes)
                return action.after_s
            case Record():
                await self._record(action.state, seen, pods)
            case Refuse() | RecordReason():
                await self._record_reason(action, seen, pods)
            case SubmitGang():
                await self._submitter.submit(action.attempt, action.gang, seen, pods)
            case Resume():
                await self._submitter.resume(seen, pods, action.attempt)
            case ExcludeNodes():
                return await self._submitter.exclude(action)
            case GiveUp():
                await self._give_up(action, seen, pods)
            case ReleaseJob():
                await self._release(action, seen, pods)
            case MarkStarted():
                comment = admin_comment(seen)
                await self._context.jobs.mark_started(action.job, action.extra, comment, owner(seen))
            case SyncMemberStates():
                await each(action.states, self._store)
                await each(action.gone, self._forget)
            case BindMembers():
                await self._bind(action, seen, pods)
                return ASK_AGAIN_S
            case DeleteMembers():
                await self._delete([pods[uid] for uid in action.uids if uid in pods], seen)
                return ASK_AGAIN_S
            case CancelJob():
                await self._context.jobs.cancel(action.job, owner(seen))
                return ASK_AGAIN_S
            case Forget():
                await each(seen.seats, self._forget)
                await self._forget(seen.id)
            case _:
                assert_never(action)
        return None

    async def chosen(self, seen: GangSeen, pods: Pods) -> GangSeen:
        """Return *seen* with which nodes its job must not get as things are now, where it waits."""
        return await self._submitter.chosen(seen, pods)

    async def _confirm(self, seen: GangSeen) -> None:
        """Tell that what is stored of the gang holds, if that is known."""
        if isinstance(seen.job, JobUnknown):
            return
        for uid, state in seen.seats.items():
            await self._context.confirm(uid, state)
        if seen.record is not None or not seen.members:
            await self._context.confirm(seen.id, seen.record)

    async def _store(self, state: PlacementState) -> None:
        """Publish what changed, then store it, unless somebody else wrote in between."""
        self._context.check()
        view = self._context.placements.view
        before, revision = view.get(state.uid), view.revision(state.uid)
        # A gang is no Pod: what happens to its Pods is told of each of them.
        is_pod = state.roster is None
        told = (
            facts(before, state, revision=revision, event_source=self._context.event_source, now=now())
            if is_pod
            else ()
        )
        await self._context.placements.record(state.uid, state, told, revision=revision)
        if state.roster is not None:
            fields = {"gang": f"{state.namespace}/{state.pod}", "phase": state.phase, "job": state.job}
            log.info("gang changed", extra={**fields, "reason": state.reason})
        elif state.phase == "bound" and (before is None or before.phase != "bound") and state.created:
            metrics.BOUND_SECONDS.observe(max(0.0, (now() - state.created).total_seconds()))

    async def _forget(self, uid: str) -> None:
        self._context.check()
        await self._context.placements.forget(uid, revision=self._context.placements.view.revision(uid))

    async def _record(self, state: PlacementState, seen: GangSeen, pods: Pods) -> None:
        before = seen.record
        ours = seated(seen, pods)
        if before is not None and before.phase == "submitted" and state.phase in RELEASED:
            self._tell_released(ours, state, seen)
        await self._store(self._context.placeholder.known(state))
        if state.phase == "ending" and (before is None or before.phase != "ending"):
            self._note_refusals(ours, state)
            others = [pod for pod in ours if not pod.spec.node_name or pod.is_terminating]
            self._notifier.say(others, GANG_ENDS, f"{name(seen)} ends: {state.reason}")
        is_told = before is not None and state.phase == "bound" == before.phase and before.lost is not None
        if is_told and state.lost is not None and before is not None and before.reason != state.reason:
            await self._notifier.report_job_lost(ours, state)
        if before is not None and (before.lost is None) != (state.lost is None):
            await self._notifier.report_job_lost(ours, state)
            metrics.JOBS_UNKNOWN.labels("lost" if state.lost is not None else "found").inc()
        if before is not None and before.job is not None and state.job is None:
            metrics.JOBS_LOST.inc()

    def _note_refusals(self, ours: Sequence[Pod], state: PlacementState) -> None:
        members = () if state.roster is None else state.roster.members
        node_by_uid = {member.uid: member.node for member in members}
        moment = now()
        for pod in ours:
            if why := refusal(pod):
                self._context.refusals.note(pod, node_by_uid.get(pod.metadata.uid, ""), why, moment)
                text = f"the kubelet of {pod.spec.node_name} refused: {why}"
                self._pods.warn(pod, "KubeletRefused", text)

    async def _delete(self, pods: Sequence[Pod], seen: GangSeen) -> None:
        """Delete Pods, once it is said why: afterwards nobody would look for that on them."""
        reason = "" if seen.record is None else seen.record.reason
        who = await self._context.jobs.who_cancelled(seen.job, owner(seen))
        await self._pods.report_end(pods, GANG_ENDS, f"{name(seen)} ends: {reason}{by_whom(who)}")

        async def delete(pod: Pod) -> None:
            self._context.check()
            await self._pods.delete(pod)

        await each(pods, delete)

    async def _release(self, action: ReleaseJob, seen: GangSeen, pods: Pods) -> None:
        try:
            await self._context.jobs.release(action.job, action.priority, admin_comment(seen))
        except SlurmRejectedError as error:
            text = f"Slurm refuses for job {action.job}: {error}"
            await self._notifier.refuse(seated(seen, pods), "ReleaseRefused", text)
            raise

    def _tell_released(self, ours: Sequence[Pod], state: PlacementState, seen: GangSeen) -> None:
        """Say what happened, and what users had better know."""
        unbound = [pod for pod in ours if not pod.spec.node_name]
        text = f"Slurm job {state.job} is submitted for {len(ours)} Pods"
        self._notifier.say(unbound, "PlaceholderSubmitted", text)
        self._notifier.warn(unbound, {uid: one.wanted for uid, one in seen.members.items()})

    async def _record_reason(self, action: Refuse | RecordReason, seen: GangSeen, pods: Pods) -> None:
        if isinstance(action, Refuse):
            note = Message(reason="ValidationFailed", text=action.state.reason, is_warning=True)
        else:
            note = Message(reason=action.event, text=action.state.reason, is_warning=action.is_warning)
        if note.reason == "CutOff":  # The Pods run: they are scheduled.
            self._notifier.alarm(seated(seen, pods), note)
        else:
            await self._notifier.tell(pods, dict.fromkeys(uids(seen), note))
        await self._store(action.state)

    async def _give_up(self, action: GiveUp, seen: GangSeen, pods: Pods) -> None:
        """First the job, for what is stored without it cannot tell of it any more."""
        await self._context.jobs.cancel(action.job, owner(seen))
        if action.event:
            note = Message(reason=action.event, text=action.state.reason)
            await self._notifier.tell(pods, dict.fromkeys(uids(seen), note))
        await self._record(action.state, seen, pods)

    async def _bind(self, action: BindMembers, seen: GangSeen, pods: Pods) -> None:
        """Ranks are written before the Pods are bound: a container reads them once, at its start."""
        record = seen.record
        if record is None or record.job is None:
            raise ConflictError(f"{name(seen)} has no job any more")
        claim = marks.claim(self._context.placeholder.key, seen.id, record.attempt, record.job)
        rank_by_uid = {member.uid: rank for rank, member in enumerate(action.gang.members)}
        size, nodes = len(rank_by_uid), distinct(action.gang)
        shared = {
            ANNOTATION_JOB: claim,  # Who took a dead one's seat does not have it yet.
            ANNOTATION_GANG_SIZE: str(size),
            ANNOTATION_GANG_NODES: ",".join(nodes),
            ANNOTATION_GANG_LEADER: action.gang.members[0].pod,
        }

        async def bind(uid: str) -> None:
            pod, rank = pods[uid], rank_by_uid[uid]
            asked = pod.metadata.annotations.get(ANNOTATION_GANG_SIZE, "")
            is_first = ANNOTATION_GANG_RANK not in pod.metadata.annotations
            wish = {ANNOTATION_GANG_ASKED_SIZE: asked} if is_first and asked else {}
            await self._pods.note(pod, {**shared, **wish, ANNOTATION_GANG_RANK: str(rank)})
            self._context.check()
            await self._pods.bind(pod, action.kube_nodes[uid])
            text = f"Slurm job {record.job} placed {pod.key}, rank {rank} of {size} of {name(seen)}, "
            self._pods.say(pod, "Bound", text + f"on {action.kube_nodes[uid]}")

        await each([uid for uid in action.kube_nodes if uid in pods], bind)


def admin_comment(seen: GangSeen) -> str:
    """Return what the job is to say of whose it is."""
    whose, record = owner(seen), seen.record
    size = 0 if record is None or record.roster is None else len(record.roster.members)
    return marks.admin_comment(whose_job(seen, size), whose.uid, whose.attempt)
