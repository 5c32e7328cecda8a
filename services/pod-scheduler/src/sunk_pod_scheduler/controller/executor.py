"""Actions to calls, for one Pod and for a gang: both are a sequence of Pods that one job places.

Each is idempotent or leaves what tells that it was begun, so a repeat is harmless.
"""

import logging
from collections.abc import Sequence
from typing import Final, assert_never

from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.placements import PlacementState
from sunk_kube.pods import Pod
from sunk_pod_scheduler import metrics
from sunk_pod_scheduler.controller.binder import Binder, count_bound
from sunk_pod_scheduler.controller.context import Context
from sunk_pod_scheduler.controller.notifier import Notifier
from sunk_pod_scheduler.controller.submitter import Submitter
from sunk_pod_scheduler.gangs.model import (
    BindMembers,
    DeleteMembers,
    GangAction,
    GangSeen,
    Message,
    Notify,
    SubmitGang,
    SyncMemberStates,
)
from sunk_pod_scheduler.gangs.ownership import AnySeen, Pods, admin_comment, name, owner, seated, settled
from sunk_pod_scheduler.placement.actions import (
    Action,
    Bind,
    CancelJob,
    DeletePod,
    ExcludeNodes,
    Forget,
    GiveUp,
    MarkStarted,
    Record,
    RecordReason,
    Refuse,
    ReleaseJob,
    ReportLoss,
    Resume,
    Submit,
    Wait,
)
from sunk_pod_scheduler.placement.end_reasons import by_whom
from sunk_pod_scheduler.placement.events import facts
from sunk_pod_scheduler.placement.kubelet_rejections import refusal
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S
from sunk_pod_scheduler.placement.model import JobUnknown
from sunk_pod_scheduler.reasons import PodReason
from sunk_runtime.clock import now
from sunk_runtime.together import each
from sunk_slurm.errors import SlurmRejectedError

log = logging.getLogger(__name__)

_RELEASED: Final = frozenset({"released", "started"})
"""Where a submitted job goes; a fast one has started when we look."""


class Executor:
    """Carries actions out for one Slurm cluster, while it may."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pods = context.pods
        self._jobs = context.jobs
        self._notifier = Notifier(context.pods)
        self._submitter = Submitter(context, self._notifier, self._store)
        self._binder = Binder(context, self._store)

    async def apply(  # noqa: C901, PLR0911, PLR0912 - one case an action, none decides anything
        self, action: Action | GangAction, seen: AnySeen, pods: Pods
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
            case Notify():
                await self._confirm(seen)
                await self._notifier.notify(pods, action.notes)
                return action.after_s
            case Record():
                await self._record(action.state, seen, pods)
            case Refuse() | RecordReason():
                await self._record_reason(action, seated(seen, pods))
            case ReportLoss():
                await self._report_job_lost(action.state, seen, pods)
            case Submit():
                await self._submitter.submit(action.attempt, None, seen, pods)
            case SubmitGang():
                await self._submitter.submit(action.attempt, action.gang, seen, pods)
            case Resume():
                await self._submitter.resume(action.attempt, seen, pods)
            case ExcludeNodes():
                return await self._submitter.exclude(action, seen)
            case GiveUp():
                await self._give_up(action, seen, pods)
            case ReleaseJob():
                await self._release(action, seen, pods)
            case MarkStarted():
                await self._jobs.mark_started(action.job, action.extra, admin_comment(seen), owner(seen))
            case SyncMemberStates():
                await each(action.states, self._store)
                await each(action.gone, self._forget)
            case Bind():
                await self._binder.bind(action, pods[seen.uid])
            case BindMembers():
                await self._binder.bind_members(action, seen, pods)
                return ASK_AGAIN_S
            case DeletePod():
                await self._delete(seated(seen, pods), seen)
                return ASK_AGAIN_S
            case DeleteMembers():
                await self._delete([pods[uid] for uid in action.uids if uid in pods], seen)
                return ASK_AGAIN_S
            case CancelJob():
                await self._jobs.cancel(action.job, owner(seen))
                return ASK_AGAIN_S
            case Forget():
                await each(seen.seats if isinstance(seen, GangSeen) else (), self._forget)
                await self._forget(seen.uid)
            case _:
                assert_never(action)
        return None

    async def excluded(self, seen: AnySeen, pods: Pods) -> str | None:
        """Return which nodes a job that waits must not get as things are now; None where nobody can say."""
        return await self._submitter.excluded(seen, pods)

    async def _confirm(self, seen: AnySeen) -> None:
        """Tell that what is stored holds, if that is known: nobody has looked at a job that is unknown."""
        if isinstance(seen.job, JobUnknown):
            return
        for uid, state in settled(seen).items():
            await self._context.confirm(uid, state)

    async def _store(self, state: PlacementState) -> None:
        """Publish what changed, then store it, unless somebody else wrote in between."""
        self._context.check()
        view = self._context.placements.view
        before, revision = view.get(state.uid), view.revision(state.uid)
        # A gang is no Pod: each of its Pods has events of its own.
        events = (
            facts(before, state, revision=revision, event_source=self._context.event_source, now=now())
            if state.roster is None
            else ()
        )
        await self._context.placements.record(state.uid, state, events, revision=revision)
        if state.gang:
            if state.phase == "bound" and (before is None or before.phase != "bound"):
                count_bound(state)
            return
        fields = {"phase": state.phase, "job": state.job, "node": state.node, "reason": state.reason}
        kind = "pod" if state.roster is None else "gang"
        log.info("placement changed", extra={kind: f"{state.namespace}/{state.pod}", **fields})
        if before is not None and before.job is not None and state.job is None:
            metrics.JOBS_LOST.inc()

    async def _forget(self, uid: str) -> None:
        self._context.check()
        await self._context.placements.forget(uid, revision=self._context.placements.view.revision(uid))

    async def _record(self, state: PlacementState, seen: AnySeen, pods: Pods) -> None:
        before, ours = seen.placement, seated(seen, pods)
        if before is not None and before.phase == "submitted" and state.phase in _RELEASED:
            # Not before: Slurm plans the job meanwhile.
            await self._notifier.released(ours, state.job, self._submitter.wanted(seen, pods))
        over = "ending" if isinstance(seen, GangSeen) else "ended"
        is_over = state.phase == over and (before is None or before.phase != over)
        if state.phase == "ending" and (before is None or before.phase != "ending"):
            # Stored before it is said: accounting may know more when the next leader says it.
            who = await self._jobs.who_cancelled(seen.job, owner(seen))
            state = replace(state, reason=f"{state.reason}{by_whom(who)}"[:REASON_MAX])
        if is_over:
            self._note_refusals(ours, state)
        await self._store(self._context.placeholder.known(state))
        if is_over and isinstance(seen, GangSeen):
            for pod in ours:
                if not pod.spec.node_name or pod.is_terminating:
                    self._pods.record_event(pod, PodReason.GANG_ENDS, f"{name(seen)} ends: {state.reason}")

    def _note_refusals(self, ours: Sequence[Pod], state: PlacementState) -> None:
        members = () if state.roster is None else state.roster.members
        node_by_uid = {state.uid: state.node, **{member.uid: member.node for member in members}}
        moment = now()
        for pod in ours:
            if why := refusal(pod):
                self._context.refusals.note(pod, node_by_uid.get(pod.metadata.uid, ""), why, moment)
                text = f"the kubelet of {pod.spec.node_name} refused: {why}"
                self._pods.warn(pod, PodReason.KUBELET_REFUSED, text)

    async def _record_reason(self, action: Refuse | RecordReason, ours: Sequence[Pod]) -> None:
        state = action.state
        if isinstance(action, Refuse):
            note = Message(reason=PodReason.VALIDATION_FAILED, text=state.reason, is_warning=True)
        else:
            text = state.reason + action.more
            note = Message(
                reason=action.event, text=text, is_warning=action.is_warning, is_quiet=action.is_quiet
            )
        if note.reason is PodReason.CUT_OFF:  # The Pods run: they are scheduled.
            for pod in ours:
                log.warning(
                    "many scripts are cut off, this one too", extra={"pod": pod.key, "job": state.job}
                )
                self._pods.warn(pod, note.reason, note.text)
        else:
            await self._notifier.notify_all(ours, note)
        await self._store(state)

    async def _report_job_lost(self, state: PlacementState, seen: AnySeen, pods: Pods) -> None:
        await self._notifier.report_job_lost(seated(seen, pods), state)
        await self._store(state)
        is_lost = state.lost is not None
        if seen.placement is None or (seen.placement.lost is not None) != is_lost:
            metrics.JOBS_UNKNOWN.labels("lost" if is_lost else "found").inc()

    async def _give_up(self, action: GiveUp, seen: AnySeen, pods: Pods) -> None:
        """First the job, for what is stored without it cannot tell of it any more.

        Not for a Pod that runs: if we are killed in between, the job that we have ended would end it. The job
        is left to the sweeper then.
        """
        if action.state.lost is not None:
            await self._store(action.state)
            await self._jobs.cancel(action.job, owner(seen))
            return
        await self._jobs.cancel(action.job, owner(seen))
        if action.event:
            note = Message(reason=action.event, text=action.state.reason)
            await self._notifier.notify_all(seated(seen, pods), note)
        await self._store(action.state)

    async def _release(self, action: ReleaseJob, seen: AnySeen, pods: Pods) -> None:
        has_lost = seen.placement is not None and seen.placement.lost is not None
        try:
            await self._jobs.release(
                action.job, action.priority, admin_comment(seen), owner(seen), has_lost=has_lost
            )
        except SlurmRejectedError as error:
            text = f"Slurm refuses to release job {action.job}: {error}"
            note = Message(reason=PodReason.RELEASE_REFUSED, text=text, is_warning=True)
            await self._notifier.notify_all(seated(seen, pods), note)
            raise

    async def _delete(self, pods: Sequence[Pod], seen: AnySeen) -> None:
        """Delete Pods, once it is said why: afterwards nobody would look for that on them."""
        reason = "" if seen.placement is None else seen.placement.reason
        event = PodReason.GANG_ENDS if isinstance(seen, GangSeen) else PodReason.POD_ENDS
        await self._pods.report_end(pods, event, f"{name(seen)} ends: {reason}")

        async def delete(pod: Pod) -> None:
            self._context.check()
            await self._pods.delete(pod)

        await each(pods, delete)
