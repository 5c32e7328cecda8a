"""A gang's submission: as a Pod's, with all its members."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.placements import Gang, PlacementState
from sunk_kube.objects import Pod
from sunk_pod_scheduler import marks
from sunk_pod_scheduler.annotations import Asked
from sunk_pod_scheduler.gangs.model import GangSeen, Note
from sunk_pod_scheduler.gangs.ranks import distinct
from sunk_pod_scheduler.gangs.request import choose_for_all, describe_gang, nodes_at_least
from sunk_pod_scheduler.gangs.telling import Pods, Voice, each, name, seated
from sunk_pod_scheduler.nodes import Choice
from sunk_pod_scheduler.ports import JobPort, PodPort
from sunk_pod_scheduler.refusals import Refusals
from sunk_pod_scheduler.request import Placeholder
from sunk_pod_scheduler.submitting import NO_NODE_ATTEMPTS, Views, put_off
from sunk_runtime.errors import ConflictError
from sunk_runtime.views import now
from sunk_slurm.errors import SlurmRejectedError, SlurmUnavailableError

log = logging.getLogger(__name__)


class GangSubmitter:
    """Submits gangs to one Slurm cluster, while it may."""

    def __init__(
        self,
        *,
        pods: PodPort,
        jobs: JobPort,
        store: Callable[[PlacementState], Awaitable[None]],
        views: Views,
        placeholder: Placeholder,
        refusals: Refusals,
        check: Callable[[], None],
    ) -> None:
        self._pods = pods
        self._voice = Voice(pods)
        self._jobs = jobs
        self._store = store
        self._views = views
        self._placeholder = placeholder
        self._refusals = refusals
        self._check = check

    async def submit(self, attempt: int, gang: Gang, seen: GangSeen, pods: Pods) -> None:
        """Store the intent first: from then on a job may exist that only its mark tells."""
        self._views.slurm_nodes.require_complete()
        self._views.kube_pods.require_complete()
        found = [seen.members.get(member.uid) for member in gang.members if not member.is_empty]
        wanted = next((one.wanted for one in found if one is not None), None)
        ours = [pods[member.uid] for member in gang.members if member.uid in pods]
        if wanted is None or None in found:
            raise ConflictError(f"{name(seen)} is not valid any more")
        is_lost = seen.record is not None and seen.record.lost is not None
        asked = self._without_refusing(wanted.asked, ours)
        choice = choose_for_all(
            ours, asked, self._views.nodes(self._pods), nodes_at_least(gang), self._pods.placed
        )
        if is_lost:
            choice = Choice(required=distinct(gang))  # The Pods run there.
        intent = self._intent(attempt, gang, seen)
        why = self._refusals.enough(ours[0], now()) if ours and not is_lost else ""
        if why or not choice.is_possible:
            few = (
                f"there are not {nodes_at_least(gang)} Slurm nodes that fit what the Pods of {name(seen)} ask"
            )
            await self._voice.refuse(ours, "KubeletRefuses" if why else "NoNodeFits", why or few)
            await self._store(put_off(intent, why or few, last=NO_NODE_ATTEMPTS))
            return
        description = describe_gang(seen, gang, choice, attempt, self._placeholder, wanted=wanted)
        await self._store(intent)
        self._check()
        try:
            job = await self._jobs.submit(description)
        except SlurmRejectedError as error:
            await self._rejected(intent, pods, str(error))
        except SlurmUnavailableError:
            await self._voice.unavailable(intent, pods)
            raise
        else:
            await self._submitted(intent, ours, job)

    def _without_refusing(self, asked: Asked, ours: Sequence[Pod]) -> Asked:
        """Return *asked* without the nodes whose kubelets refused Pods of the same owner."""
        known = self._views.slurm_nodes
        refused = {node for pod in ours for node in self._refusals.nodes(pod, now()) if known.get(node)}
        return replace(asked, excluded_nodes=(*asked.excluded_nodes, *sorted(refused)))

    def _intent(self, attempt: int, gang: Gang, seen: GangSeen) -> PlacementState:
        before, digest = seen.record, self._placeholder.digest(seen.id, attempt)
        if before is not None and before.lost is not None:
            return replace(before, changed=now(), attempt=attempt, token_sha256=digest)
        created = [seen.members[member.uid].pod.created for member in gang.members]
        return PlacementState(
            changed=now(),
            uid=seen.id,
            namespace=seen.namespace,
            pod=seen.name,
            phase="submitted",
            attempt=attempt,
            token_sha256=digest,
            created=max((one for one in created if one is not None), default=None),
            roster=gang,
        )

    async def resume(self, seen: GangSeen, pods: Pods, attempt: int) -> None:
        """Take the job that an intent led to, or withdraw the intent, which was never carried out."""
        intent = seen.record
        if intent is None:
            raise ConflictError("the intent is gone")
        try:
            job = await self._jobs.find_marked(seen.id, attempt)
        except SlurmUnavailableError:
            await self._voice.unavailable(intent, pods)
            raise
        if job is None:
            await self._store(replace(intent, token_sha256=""))
        else:
            await self._submitted(intent, seated(seen, pods), job)

    async def _submitted(self, intent: PlacementState, pods: Iterable[Pod], job: int) -> None:
        claim = marks.claim(self._placeholder.key, intent.uid, intent.attempt, job)

        async def annotate(pod: Pod) -> None:
            self._check()
            try:
                await self._pods.annotate(pod, claim)
            except ConflictError:
                log.info("pod left while its gang was submitted", extra={"pod": pod.key, "job": job})

        await each(pods, annotate)
        await self._store(replace(intent, job=job, changed=now(), reason=""))

    async def _rejected(self, intent: PlacementState, pods: Pods, reason: str) -> None:
        """Slurm may take it later, when its partition, account or nodes are there: ever rarer."""
        uids = () if intent.roster is None else tuple(member.uid for member in intent.roster.members)
        if intent.lost is not None:
            ours = [pods[uid] for uid in uids if uid in pods]
            await self._voice.tell_loss(ours, replace(intent, reason=reason[:REASON_MAX]))
        else:
            note = Note(reason="SubmissionFailed", text=reason, is_warning=True)
            await self._voice.tell(pods, dict.fromkeys(uids, note))
        await self._store(put_off(intent, reason))
