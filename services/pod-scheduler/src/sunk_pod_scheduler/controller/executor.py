"""Actions to calls. Each is idempotent or leaves what tells that it was begun, so a repeat is harmless."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, assert_never

from sunk_events.placements import PlacementState
from sunk_kube.objects import Pod
from sunk_pod_scheduler import metrics
from sunk_pod_scheduler.controller.context import Context
from sunk_pod_scheduler.controller.submitter import Submitter
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.end_reasons import by_whom
from sunk_pod_scheduler.placement.events import facts
from sunk_pod_scheduler.placement.kubelet_rejections import refusal
from sunk_pod_scheduler.placement.limits import ASK_AGAIN_S
from sunk_pod_scheduler.placement.model import (
    Action,
    Bind,
    CancelJob,
    DeletePod,
    ExcludeNodes,
    Forget,
    GiveUp,
    JobUnknown,
    MarkStarted,
    Observed,
    Record,
    RecordReason,
    Refuse,
    ReleaseJob,
    Resume,
    Submit,
    TellLoss,
    Wait,
)
from sunk_pod_scheduler.placement.ownership import Owner, owner
from sunk_pod_scheduler.podspec.validation import ValidatedPod, validate
from sunk_pod_scheduler.podspec.warnings import warnings
from sunk_runtime.errors import ConflictError
from sunk_runtime.views import now
from sunk_slurm.errors import SlurmRejectedError

log = logging.getLogger(__name__)

T = TypeVar("T")

RELEASED: Final = frozenset({"released", "started"})
"""Where a submitted job goes; a fast one has started when we look."""


class Executor:
    """Carries actions out for one Slurm cluster, while it may."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pods = context.pods
        self._submitter = Submitter(context, self._store)

    async def apply(  # noqa: C901, PLR0912 - one case an action, none decides anything
        self, action: Action, seen: Observed, pod: Pod | None
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
            case Record():
                await self._record(action.state, seen, pod)
            case Refuse():
                await self._on(pod, lambda found: self._refuse(found, action))
            case RecordReason():
                await self._on(pod, lambda found: self._record_reason(found, action))
            case TellLoss():
                await self._on(pod, lambda found: self._report_job_lost(found, action.state, seen))
            case Submit():
                await self._on(pod, lambda found: self._submitter.submit(found, action.attempt))
            case Resume():
                await self._on(pod, lambda found: self._submitter.resume(found, action.attempt))
            case ExcludeNodes():
                return await self._submitter.exclude(action)
            case GiveUp():
                await self._give_up(action, seen, pod)
            case ReleaseJob():
                await self._release(action, seen, pod)
            case MarkStarted():
                comment = admin_comment(seen)
                await self._context.jobs.mark_started(action.job, action.extra, comment, owner(seen))
            case Bind():
                await self._on(pod, lambda found: self._bind(found, action))
            case DeletePod():
                await self._on(pod, lambda found: self._delete(found, seen))
                return ASK_AGAIN_S
            case CancelJob():
                await self._context.jobs.cancel(action.job, owner(seen))
                return ASK_AGAIN_S
            case Forget():
                await self._context.placements.forget(
                    seen.uid, revision=self._context.placements.view.revision(seen.uid)
                )
            case _:
                assert_never(action)
        return None

    async def excluded(self, pod: Pod) -> str | None:
        """Return which nodes a job of *pod* must not get as things are now; None where nobody can say."""
        return await self._submitter.excluded(pod)

    async def cancel_orphan(self, job: int, whose: Owner) -> None:
        """End a job that is nobody's any more, and was *whose*."""
        self._context.check()
        await self._context.jobs.cancel(job, whose)

    @staticmethod
    async def _on(pod: Pod | None, do: Callable[[Pod], Awaitable[T]]) -> T:
        if pod is None:
            raise ConflictError("the Pod is gone")
        return await do(pod)

    async def _confirm(self, seen: Observed) -> None:
        """Tell that what is stored holds, if that is known: nobody has looked at a job that is unknown."""
        is_to_be_adopted = seen.placement is None and seen.pod is not None and seen.pod.claim is not None
        if not is_to_be_adopted and not isinstance(seen.job, JobUnknown):
            await self._context.confirm(seen.uid, seen.placement)

    async def _store(self, state: PlacementState) -> None:
        """Publish what changed, then store it, unless somebody else wrote in between."""
        view = self._context.placements.view
        before, revision = view.get(state.uid), view.revision(state.uid)
        told = facts(before, state, revision=revision, event_source=self._context.event_source, now=now())
        await self._context.placements.record(state.uid, state, told, revision=revision)
        fields = {"pod": f"{state.namespace}/{state.pod}", "phase": state.phase, "job": state.job}
        log.info("placement changed", extra={**fields, "node": state.node, "reason": state.reason})
        if before is not None and before.job is not None and state.job is None:
            metrics.JOBS_LOST.inc()

    async def _record(self, state: PlacementState, seen: Observed, pod: Pod | None) -> None:
        before = seen.placement
        if before is not None and before.phase == "submitted" and state.phase in RELEASED:
            self._tell_released(pod, state)
        if pod is not None and state.phase == "ended" and (why := refusal(pod)):
            self._context.refusals.note(pod, state.node, why, now())
            self._pods.warn(pod, "KubeletRefused", f"the kubelet of {state.kube_node} refused: {why}")
        await self._store(self._context.placeholder.known(state))

    def _tell_released(self, pod: Pod | None, state: PlacementState) -> None:
        """Say what happened; not before: Slurm plans the job meanwhile."""
        if pod is None or pod.spec.node_name:
            return
        self._pods.say(pod, "PlaceholderSubmitted", f"Slurm job {state.job} is submitted for {pod.key}")
        wanted = validate(pod, self._context.rules)
        for warned in warnings(pod, wanted) if isinstance(wanted, ValidatedPod) else ():
            self._pods.warn(pod, warned.reason, warned.message)

    async def _refuse(self, pod: Pod, action: Refuse) -> None:
        await self._pods.refuse(pod, "ValidationFailed", action.state.reason)
        await self._store(action.state)

    async def _record_reason(self, pod: Pod, action: RecordReason) -> None:
        reason = action.state.reason
        if action.event == "CutOff":  # The Pod runs: it is scheduled.
            log.warning("a script is cut off, as are many", extra={"pod": pod.key, "job": action.state.job})
            self._pods.warn(pod, action.event, reason)
        else:
            say = self._pods.refuse if action.is_warning else self._pods.put_off
            await say(pod, action.event, reason)
        await self._store(action.state)

    async def _give_up(self, action: GiveUp, seen: Observed, pod: Pod | None) -> None:
        """First the job, for what is stored without it cannot tell of it any more."""
        await self._context.jobs.cancel(action.job, owner(seen))
        if action.event and pod is not None:
            await self._pods.put_off(pod, action.event, action.state.reason)
        await self._store(action.state)

    async def _report_job_lost(self, pod: Pod, state: PlacementState, seen: Observed) -> None:
        is_lost = state.lost is not None
        text = state.reason if is_lost else f"Slurm job {state.job} holds the place of {pod.key} again"
        await self._pods.report_job_lost(pod, "JobLost" if is_lost else "JobFound", text, is_lost=is_lost)
        await self._store(state)
        if seen.placement is None or (seen.placement.lost is not None) != is_lost:
            metrics.JOBS_UNKNOWN.labels("lost" if is_lost else "found").inc()

    async def _bind(self, pod: Pod, action: Bind) -> None:
        await self._pods.bind(pod, action.state.kube_node)
        await self._store(action.state)
        if action.state.created is not None:
            metrics.BOUND_SECONDS.observe(max(0.0, (now() - action.state.created).total_seconds()))
        text = f"Slurm job {action.state.job} placed {pod.key} on {action.state.kube_node}"
        self._pods.say(pod, "Bound", text)

    async def _delete(self, pod: Pod, seen: Observed) -> None:
        """Delete the Pod, once it is said why: afterwards nobody would look for that on it."""
        reason = "" if seen.placement is None else seen.placement.reason
        who = await self._context.jobs.who_cancelled(seen.job, owner(seen))
        await self._pods.report_end((pod,), "PodEnds", f"Pod {pod.key} ends: {reason}{by_whom(who)}")
        self._context.check()
        await self._pods.delete(pod)

    async def _release(self, action: ReleaseJob, seen: Observed, pod: Pod | None) -> None:
        try:
            await self._context.jobs.release(action.job, action.priority, admin_comment(seen))
        except SlurmRejectedError as error:
            if pod is not None:
                await self._pods.refuse(pod, "ReleaseRefused", f"Slurm refuses for job {action.job}: {error}")
            raise


def admin_comment(seen: Observed) -> str:
    """Return what the job is to say of whose it is."""
    whose = owner(seen)
    return marks.admin_comment(f"Pod {whose.name}", whose.uid, whose.attempt)
