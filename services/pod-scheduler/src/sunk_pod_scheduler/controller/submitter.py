"""What a Pod's job is to be, and whether it is to be submitted at all."""

from collections.abc import Awaitable, Callable
from typing import Final

from sunk_events.placements import PlacementState
from sunk_kube.objects import Pod
from sunk_pod_scheduler.adapters.ports import PodPort
from sunk_pod_scheduler.controller.context import Context
from sunk_pod_scheduler.controller.node_chooser import NodeChooser
from sunk_pod_scheduler.controller.submission import UNAVAILABLE, UNAVAILABLE_TEXT, Submission, put_off
from sunk_pod_scheduler.placement.job_description import describe
from sunk_pod_scheduler.placement.model import ExcludeNodes
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_pod_scheduler.podspec.validation import ValidatedPod, validate
from sunk_runtime.errors import ConflictError
from sunk_runtime.views import now

NO_NODE_TEXT: Final = "no Slurm node fits what the Pod asks of its Node"
NO_NODE_ATTEMPTS: Final = 5
"""From then on it is no longer until the next: a NodeSet's Pods may be on their way to Slurm."""


class Submitter:
    """Submits Pods to one Slurm cluster, while it may."""

    def __init__(self, context: Context, store: Callable[[PlacementState], Awaitable[None]]) -> None:
        self._context = context
        self._pods = context.pods
        self._store = store
        self._node_chooser = NodeChooser(context)
        self._submission = Submission(context, store)

    async def submit(self, pod: Pod, attempt: int) -> None:
        """Submit a job for *pod*, unless there is no node for it."""
        wanted = self._valid(pod)
        self._context.views.slurm_nodes.require_complete()
        self._context.views.kube_pods.require_complete()
        choice = await self._choice(pod, wanted)
        before = self._context.placements.view.get(pod.metadata.uid)
        intent = self._submission.intent(before, _fresh(pod), attempt)
        why = "" if intent.lost is not None else self._context.refusals.enough(pod, now())
        if why or not choice.is_possible:
            await self._pods.refuse(pod, "KubeletRefuses" if why else "NoNodeFits", why or NO_NODE_TEXT)
            await self._store(put_off(intent, why or NO_NODE_TEXT, last=NO_NODE_ATTEMPTS))
            return
        description = describe(pod, wanted, choice, attempt, self._context.placeholder)
        await self._submission.submit(intent, description, (pod,), _Single(self._pods, pod))

    async def resume(self, pod: Pod, attempt: int) -> None:
        """Take the job that an intent led to, or withdraw the intent, which was never carried out."""
        intent = self._context.placements.view.get(pod.metadata.uid)
        wanted = validate(pod, self._context.rules)
        user_id = wanted.identity.user_id if isinstance(wanted, ValidatedPod) else None
        await self._submission.resume(intent, attempt, (pod,), _Single(self._pods, pod), user_id)

    async def excluded(self, pod: Pod) -> str | None:
        """Return which nodes a job of *pod* must not get as things are now; None where nobody can say."""
        wanted = validate(pod, self._context.rules)
        return (
            await self._node_chooser.excluded((pod,), wanted.asked)
            if isinstance(wanted, ValidatedPod)
            else None
        )

    async def exclude(self, action: ExcludeNodes) -> float | None:
        """Tell Slurm which nodes a job that waits must not get; return when to look again."""
        return await self._submission.exclude(action)

    async def _choice(self, pod: Pod, wanted: ValidatedPod) -> NodeChoice:
        before = self._context.placements.view.get(pod.metadata.uid)
        if before is not None and before.lost is not None:
            return NodeChoice(required=(before.node,))  # The Pod runs there.
        return await self._node_chooser.choose((pod,), wanted.asked)

    def _valid(self, pod: Pod) -> ValidatedPod:
        found = validate(pod, self._context.rules)
        if isinstance(found, tuple):
            raise ConflictError(f"Pod {pod.key} is not valid any more")
        return found


class _Single:
    """A Pod that is told what becomes of its intent."""

    def __init__(self, pods: PodPort, pod: Pod) -> None:
        self._pods = pods
        self._pod = pod

    async def unavailable(self, intent: PlacementState) -> None:
        if intent.lost is None:
            await self._pods.put_off(self._pod, UNAVAILABLE, UNAVAILABLE_TEXT)

    async def rejected(self, intent: PlacementState, reason: str) -> None:
        if intent.lost is None:
            await self._pods.refuse(self._pod, "SubmissionFailed", reason)
        else:
            await self._pods.report_job_lost(self._pod, "SubmissionFailed", reason, is_lost=True)


def _fresh(pod: Pod) -> PlacementState:
    meta = pod.metadata
    return PlacementState(
        changed=now(),
        uid=meta.uid,
        namespace=meta.namespace,
        pod=meta.name,
        phase="submitted",
        created=meta.creation_timestamp,
    )
