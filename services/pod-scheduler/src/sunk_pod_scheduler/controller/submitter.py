"""From an intent to a job whose id is stored, for one Pod or for all members of a gang.

What must stay true: the intent is stored first, as from then on a job may exist that only its mark tells;
the job's id is on the Pods before it is stored.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.placements import Gang, PlacementState
from sunk_kube.pods import Pod
from sunk_pod_scheduler.controller.context import Context
from sunk_pod_scheduler.controller.node_chooser import NodeChooser
from sunk_pod_scheduler.controller.notifier import Notifier
from sunk_pod_scheduler.gangs.job_description import describe_gang, nodes_at_least
from sunk_pod_scheduler.gangs.model import GangSeen, Message
from sunk_pod_scheduler.gangs.ownership import AnySeen, Pods, name, owner, seated, uids
from sunk_pod_scheduler.gangs.ranks import distinct
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.actions import ExcludeNodes
from sunk_pod_scheduler.placement.job_description import describe
from sunk_pod_scheduler.placement.limits import LOOK_AGAIN_S, tries
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_pod_scheduler.podspec.validation import ValidatedPod, validate
from sunk_pod_scheduler.reasons import PodReason
from sunk_runtime.clock import now
from sunk_runtime.errors import ConflictError
from sunk_runtime.together import each
from sunk_slurm.errors import INVALID_QOS, SlurmRejectedError, SlurmUnavailableError
from sunk_slurm.submission import JobDescription

log = logging.getLogger(__name__)

UNAVAILABLE: Final = Message(
    reason=PodReason.SLURM_UNAVAILABLE,
    text="Slurm does not answer; the pod-scheduler submits the Pod's job when Slurm answers",
)
NO_NODE_ATTEMPTS: Final = 5
"""From then on it is no longer until the next: a NodeSet's Pods may be on their way to Slurm."""


class Submitter:
    """Submits jobs for Pods to one Slurm cluster, while it may."""

    def __init__(
        self, context: Context, notifier: Notifier, store: Callable[[PlacementState], Awaitable[None]]
    ) -> None:
        self._context = context
        self._notifier = notifier
        self._store = store
        self._node_chooser = NodeChooser(context)

    async def submit(self, attempt: int, gang: Gang | None, seen: AnySeen, pods: Pods) -> None:
        """Submit a job for the Pod, or for all members of *gang*, unless there are no nodes for it."""
        self._context.views.slurm_nodes.require_complete()
        self._context.views.kube_pods.require_complete()
        members = [seen.uid] if gang is None else [one.uid for one in gang.members if not one.is_empty]
        ours = [pods[uid] for uid in members if uid in pods]
        wanted_by_uid = self.wanted(seen, pods)
        found = [wanted_by_uid.get(uid) for uid in members]
        wanted = next((one for one in found if one is not None), None)
        before = seen.placement
        is_lost = before is not None and before.lost is not None
        if wanted is None or (None in found and not is_lost):
            raise ConflictError(f"{name(seen)} is not valid any more")
        if before is not None and is_lost:  # The Pods run there.
            choice = NodeChoice(required=(before.node,) if gang is None else distinct(gang))
        else:
            choice = await self._node_chooser.choose(
                ours, wanted.requested, least=_least(gang), pins=gang is None
            )
        digest = self._context.placeholder.digest(seen.uid, attempt)
        base = before if before is not None and is_lost else _fresh(seen, gang, ours)
        intent = replace(base, changed=now(), attempt=attempt, token_sha256=digest)
        why = self._context.refusals.enough(ours[0], now()) if ours and not is_lost else ""
        if why or not choice.is_possible:
            note = Message(
                reason=PodReason.KUBELET_REFUSES if why else PodReason.NO_NODE_FITS,
                text=why or _no_node(seen, gang),
                is_warning=True,
            )
            await self._notifier.notify_all(ours, note)
            if tries(attempt) >= NO_NODE_ATTEMPTS:
                # What is put off with the same number is the same state, which is not written: it would be
                # due again at once.
                await self._store(intent)
            await self._store(_put_off(intent, note.text, last=NO_NODE_ATTEMPTS))
            return
        made = self._context.placeholder
        if isinstance(seen, GangSeen) and gang is not None:
            description = describe_gang(seen, gang, choice, attempt, made, wanted=wanted)
        else:
            description = describe(ours[0], wanted, choice, attempt, made)
        await self._submit(intent, description, ours, wanted.priority_class)

    async def _submit(
        self, intent: PlacementState, description: JobDescription, pods: Sequence[Pod], priority_class: str
    ) -> None:
        """Store the intent, then submit a held job, write its id on *pods*, store it.

        What Slurm does not take it may take later, when its partition, account or node is there: ever rarer.
        *priority_class*: by which the job has its QoS; empty: by other means.
        """
        await self._store(intent)
        try:
            job = await self._context.jobs.submit(description)
        except SlurmRejectedError as error:
            text = _refused(error, description.qos, priority_class)
            if intent.lost is None:
                note = Message(reason=PodReason.SUBMISSION_FAILED, text=text, is_warning=True)
                await self._notifier.notify_all(pods, note)
            else:
                await self._notifier.report_job_lost(pods, intent, refused=text)
            await self._store(_put_off(intent, text))
        except SlurmUnavailableError:
            await self._report_unavailable(intent, pods)
            raise
        else:
            is_stored = False
            try:
                await self._submitted(intent, pods, job)
                is_stored = True
            finally:
                if not is_stored:
                    self._context.jobs.not_stored(intent.uid, attempt=intent.attempt)

    async def resume(self, attempt: int, seen: AnySeen, pods: Pods) -> None:
        """Take the job that an intent led to, or withdraw the intent, which was never carried out."""
        intent, ours = seen.placement, seated(seen, pods)
        if intent is None:
            raise ConflictError("the intent is gone")
        try:
            job = await self._context.jobs.find_marked(replace(owner(seen), attempt=attempt, submitted=None))
        except SlurmUnavailableError:
            await self._report_unavailable(intent, ours)
            raise
        if job is None:
            # Should it come to Slurm all the same, its mark is of an attempt that is over: it is a stray.
            await self._store(replace(intent, attempt=attempt + 1, token_sha256=""))
        else:
            await self._submitted(intent, ours, job)

    async def excluded(self, seen: AnySeen, pods: Pods) -> str | None:
        """Return which nodes a job that waits must not get as things are now; None where nobody can say."""
        ours, wanted_by_uid = seated(seen, pods), self.wanted(seen, pods)
        wanted = next((one for uid in uids(seen) if (one := wanted_by_uid.get(uid)) is not None), None)
        if wanted is None:
            return None
        gang = None if seen.placement is None else seen.placement.roster
        return await self._node_chooser.excluded(
            ours, wanted.requested, least=_least(gang), pins=gang is None
        )

    async def exclude(self, action: ExcludeNodes, seen: AnySeen) -> float | None:
        """Tell Slurm which nodes a job that waits must not get; return when to look again.

        It has started, or one of them is gone, where Slurm refuses: the next look tells.
        """
        try:
            await self._context.jobs.exclude(action.job, action.excluded, owner(seen))
        except SlurmRejectedError as error:
            log.info("nodes are not excluded", extra={"job": action.job, "error": str(error)})
            return LOOK_AGAIN_S
        return None

    def wanted(self, seen: AnySeen, pods: Pods) -> Mapping[str, ValidatedPod | None]:
        """Return by uid what Pods ask of Slurm; None where something is wrong with one."""
        if isinstance(seen, GangSeen):
            return {uid: one.wanted for uid, one in seen.members.items()}
        found = {uid: validate(pod, self._context.rules) for uid, pod in pods.items()}
        return {uid: one if isinstance(one, ValidatedPod) else None for uid, one in found.items()}

    async def _submitted(self, intent: PlacementState, pods: Sequence[Pod], job: int) -> None:
        claim = marks.claim(self._context.placeholder.key, intent.uid, intent.attempt, job)

        async def annotate(pod: Pod) -> None:
            self._context.check()
            try:
                await self._context.pods.annotate(pod, claim)
            except ConflictError:
                log.info("pod left while its job was submitted", extra={"pod": pod.key, "job": job})

        await each(pods, annotate)
        await self._store(replace(intent, job=job, changed=now(), reason=""))

    async def _report_unavailable(self, intent: PlacementState, pods: Sequence[Pod]) -> None:
        if intent.lost is None:
            await self._notifier.notify_all(pods, UNAVAILABLE)


def _refused(error: SlurmRejectedError, qos: str, priority_class: str) -> str:
    """Return Slurm's words, and where its QoS comes from if that is what Slurm does not take."""
    if not priority_class or error.number != INVALID_QOS:
        return str(error)
    return f"{error}; scheduler.priorityClasses gives PriorityClass {priority_class} the QoS {qos}"


def _least(gang: Gang | None) -> int:
    return 1 if gang is None else nodes_at_least(gang)


def _no_node(seen: AnySeen, gang: Gang | None) -> str:
    if gang is None:
        return "no Slurm node fits what the Pod requires of its Node"
    few = nodes_at_least(gang)
    return f"fewer than {few} Slurm nodes fit what the Pods of {name(seen)} require"


def _put_off(intent: PlacementState, reason: str, *, last: int | None = None) -> PlacementState:
    """Return *intent* withdrawn, to be tried again ever later; from attempt *last* on no later."""
    attempt = intent.attempt + 1 if last is None or tries(intent.attempt) < last else intent.attempt
    return replace(intent, attempt=attempt, token_sha256="", changed=now(), reason=reason[:REASON_MAX])


def _fresh(seen: AnySeen, gang: Gang | None, pods: Sequence[Pod]) -> PlacementState:
    """Return what is stored first; a member that has done its work may be gone."""
    created = [pod.metadata.creation_timestamp for pod in pods]
    namespace, _, name = owner(seen).name.partition("/")
    if isinstance(seen, GangSeen):
        namespace, name = seen.namespace, seen.name
    return PlacementState(
        changed=now(),
        uid=seen.uid,
        namespace=namespace,
        pod=name,
        phase="submitted",
        created=max((one for one in created if one is not None), default=None),
        roster=gang,
    )
