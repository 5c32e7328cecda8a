"""Actions to calls. Each is idempotent or leaves what tells that it was begun, so a repeat is harmless."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_kube.objects import Node, Pod
from sunk_pod_scheduler import marks, metrics
from sunk_pod_scheduler.facts import Teller, facts
from sunk_pod_scheduler.limits import ASK_AGAIN_S
from sunk_pod_scheduler.model import (
    Action,
    Bind,
    Blame,
    CancelJob,
    DeletePod,
    Forget,
    MarkStarted,
    Observed,
    Record,
    Refuse,
    ReleaseJob,
    Resume,
    Submit,
    TellLoss,
    Wait,
)
from sunk_pod_scheduler.nodes import Choice, Choices
from sunk_pod_scheduler.ports import JobPort, PodPort
from sunk_pod_scheduler.request import Placeholder, describe
from sunk_pod_scheduler.validate import Rules, Wanted, validate
from sunk_pod_scheduler.warnings import warnings
from sunk_runtime.errors import ConflictError
from sunk_runtime.views import StateView, now
from sunk_runtime.writer import StateWriter
from sunk_slurm.errors import SlurmRejectedError

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_NODE_AGAIN_S: Final = 2.0
"""A NodeSet's Pods may be on their way to Slurm."""
RELEASED: Final = frozenset({"released", "started"})
"""Where a submitted job goes; a fast one has started when we look."""


class Views(msgspec.Struct, frozen=True, kw_only=True):
    """What we know of Slurm nodes and their Pods, from the bus."""

    kube_pods: StateView[KubePodState]
    slurm_nodes: StateView[SlurmNodeState]

    def nodes(self, pods: PodPort) -> Mapping[str, Node | None]:
        """Return the Node of every node that Slurm has; None where it is no NodeSet's."""
        states = {name: self.kube_pods.get(name) for name in self.slurm_nodes.keys()}  # noqa: SIM118 - not a dict
        return {name: None if state is None else pods.node(state.kube_node) for name, state in states.items()}


class Doer:
    """Carries actions out for one Slurm cluster, while it may."""

    def __init__(
        self,
        *,
        teller: Teller,
        pods: PodPort,
        jobs: JobPort,
        placements: StateWriter[PlacementState],
        views: Views,
        rules: Rules,
        placeholder: Placeholder,
        check: Callable[[], None],
    ) -> None:
        self._teller = teller
        self._pods = pods
        self._jobs = jobs
        self._placements = placements
        self._views = views
        self._rules = rules
        self._placeholder = placeholder
        self._choices = Choices()
        self._check = check
        """Raises once we may no longer lead; called right before each write to the outside."""

    async def apply(  # noqa: C901, PLR0912 - one case an action, none decides anything
        self, action: Action, seen: Observed, pod: Pod | None
    ) -> float | None:
        """Carry out *action*.

        Returns:
            In how many seconds to look again, where the effect takes its time; None: look now.
        """
        metrics.ACTIONS.labels(type(action).__name__).inc()
        self._check()
        match action:
            case Wait():
                return action.after_s
            case Record():
                await self._record(action.state, seen, pod)
            case Refuse():
                await self._on(pod, lambda found: self._refuse(found, action))
            case Blame():
                await self._on(pod, lambda found: self._blame(found, action))
            case TellLoss():
                await self._on(pod, lambda found: self._tell_loss(found, action.state))
            case Submit():
                return await self._on(pod, lambda found: self._submit(found, action.attempt))
            case Resume():
                await self._on(pod, lambda found: self._resume(found, action.attempt))
            case ReleaseJob():
                await self._release(action, pod)
            case MarkStarted():
                await self._jobs.set_extra(action.job, action.extra + marks.STARTED)
            case Bind():
                await self._on(pod, lambda found: self._bind(found, action))
            case DeletePod():
                await self._on(pod, self._pods.delete)
                return ASK_AGAIN_S
            case CancelJob():
                await self._jobs.cancel(action.job)
                return ASK_AGAIN_S
            case Forget():
                await self._placements.forget(seen.uid, revision=self._placements.view.revision(seen.uid))
            case _:
                assert_never(action)
        return None

    async def cancel_stray(self, job: int) -> None:
        """End a job that is nobody's."""
        self._check()
        await self._jobs.cancel(job)

    @staticmethod
    async def _on(pod: Pod | None, do: Callable[[Pod], Awaitable[T]]) -> T:
        if pod is None:
            raise ConflictError("the Pod is gone")
        return await do(pod)

    async def _store(self, state: PlacementState) -> None:
        """Publish what changed, then store it, unless somebody else wrote in between."""
        view = self._placements.view
        before, revision = view.get(state.uid), view.revision(state.uid)
        told = facts(before, state, revision=revision, teller=self._teller, now=now())
        await self._placements.record(state.uid, state, told, revision=revision)
        fields = {"pod": f"{state.namespace}/{state.pod}", "phase": state.phase, "job": state.job}
        log.info("placement changed", extra={**fields, "node": state.node, "reason": state.reason})
        if before is not None and before.job is not None and state.job is None:
            metrics.JOBS_LOST.inc()

    async def _record(self, state: PlacementState, seen: Observed, pod: Pod | None) -> None:
        before = seen.placement
        if before is not None and before.phase == "submitted" and state.phase in RELEASED:
            await self._tell_released(pod, state)
        await self._store(self._placeholder.known(state))

    async def _tell_released(self, pod: Pod | None, state: PlacementState) -> None:
        """Say what happened; not before: Slurm plans the job meanwhile. Killed here, it is said again."""
        if pod is None or pod.spec.node_name:
            return
        await self._pods.say(pod, "PlaceholderSubmitted", f"Slurm job {state.job} is submitted for {pod.key}")
        wanted = validate(pod, self._rules)
        for warned in warnings(pod, wanted) if isinstance(wanted, Wanted) else ():
            await self._pods.warn(pod, warned.reason, warned.message)

    async def _refuse(self, pod: Pod, action: Refuse) -> None:
        await self._pods.refuse(pod, "ValidationFailed", "; ".join(action.problems))
        await self._store(action.state)

    async def _blame(self, pod: Pod, action: Blame) -> None:
        say = self._pods.refuse if action.is_warning else self._pods.put_off
        await say(pod, action.event, action.state.reason)
        await self._store(action.state)

    async def _tell_loss(self, pod: Pod, state: PlacementState) -> None:
        is_lost = state.lost is not None
        text = state.reason if is_lost else f"Slurm job {state.job} holds the place of {pod.key} again"
        await self._pods.tell_loss(pod, "JobLost" if is_lost else "JobFound", text, is_lost=is_lost)
        await self._store(state)
        metrics.JOBS_UNKNOWN.labels("lost" if is_lost else "found").inc()

    async def _bind(self, pod: Pod, action: Bind) -> None:
        await self._pods.bind(pod, action.state.kube_node)
        await self._store(action.state)
        if action.state.created is not None:
            metrics.BOUND_SECONDS.observe(max(0.0, (now() - action.state.created).total_seconds()))
        text = f"Slurm job {action.state.job} placed {pod.key} on {action.state.kube_node}"
        await self._pods.say(pod, "Bound", text)

    async def _submit(self, pod: Pod, attempt: int) -> float | None:
        """Store the intent first: from then on a job may exist that only its mark tells."""
        wanted = self._valid(pod)
        self._views.slurm_nodes.require_complete()
        self._views.kube_pods.require_complete()
        choice = self._choice(pod, wanted)
        if not choice.is_possible:
            await self._pods.refuse(pod, "NoNodeFits", "no Slurm node fits what the Pod asks of its Node")
            return NO_NODE_AGAIN_S
        intent = self._intent(pod, attempt)
        description = describe(pod, wanted, choice, attempt, self._placeholder)
        await self._store(intent)
        self._check()
        try:
            job = await self._jobs.submit(description)
        except SlurmRejectedError as error:
            await self._rejected(pod, intent, str(error))
        else:
            await self._submitted(pod, intent, job)
        return None

    def _choice(self, pod: Pod, wanted: Wanted) -> Choice:
        before = self._placements.view.get(pod.metadata.uid)
        if before is not None and before.lost is not None:
            return Choice(required=(before.node,))  # The Pod runs there.
        asked = wanted.asked
        nodes = partial(self._views.nodes, self._pods)
        return self._choices.choose(pod, nodes, asked.required_nodes, asked.excluded_nodes, now())

    def _intent(self, pod: Pod, attempt: int) -> PlacementState:
        meta = pod.metadata
        before = self._placements.view.get(meta.uid)
        digest = self._placeholder.digest(meta.uid, attempt)
        if before is not None and before.lost is not None:
            return replace(before, changed=now(), attempt=attempt, token_sha256=digest)
        return PlacementState(
            changed=now(),
            uid=meta.uid,
            namespace=meta.namespace,
            pod=meta.name,
            phase="submitted",
            attempt=attempt,
            token_sha256=digest,
            created=meta.creation_timestamp,
        )

    async def _resume(self, pod: Pod, attempt: int) -> None:
        """Take the job that an intent led to, or withdraw the intent, which was never carried out."""
        intent = self._placements.view.get(pod.metadata.uid)
        if intent is None:
            raise ConflictError("the intent is gone")
        job = await self._jobs.find_marked(pod.metadata.uid, attempt)
        if job is None:
            await self._store(replace(intent, token_sha256=""))
        else:
            await self._submitted(pod, intent, job)

    async def _submitted(self, pod: Pod, intent: PlacementState, job: int) -> None:
        self._check()
        claim = marks.claim(self._placeholder.key, intent.uid, intent.attempt, job)
        try:
            await self._pods.annotate(pod, claim)
        except ConflictError:
            log.info("pod left while its job was submitted", extra={"pod": pod.key, "job": job})
        await self._store(replace(intent, job=job, changed=now(), reason=""))

    async def _release(self, action: ReleaseJob, pod: Pod | None) -> None:
        try:
            await self._jobs.release(action.job, action.priority)
        except SlurmRejectedError as error:
            if pod is not None:
                await self._pods.refuse(pod, "ReleaseRefused", f"Slurm refuses for job {action.job}: {error}")
            raise

    async def _rejected(self, pod: Pod, intent: PlacementState, reason: str) -> None:
        """Slurm may take it later, when its partition, account or node is there: try again, ever rarer."""
        if intent.lost is None:
            await self._pods.refuse(pod, "SubmissionFailed", reason)
        else:
            await self._pods.tell_loss(pod, "SubmissionFailed", reason, is_lost=True)
        await self._store(
            replace(
                intent,
                attempt=intent.attempt + 1,
                token_sha256="",
                changed=now(),
                reason=reason[:REASON_MAX],
            )
        )

    def _valid(self, pod: Pod) -> Wanted:
        found = validate(pod, self._rules)
        if isinstance(found, tuple):
            raise ConflictError(f"Pod {pod.key} is not valid any more")
        return found
