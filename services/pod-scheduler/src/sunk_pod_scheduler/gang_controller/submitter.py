"""A gang's submission: as a Pod's, with all its members."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.placements import Gang, PlacementState
from sunk_pod_scheduler.controller.context import Context
from sunk_pod_scheduler.controller.node_chooser import NodeChooser
from sunk_pod_scheduler.controller.submission import UNAVAILABLE, UNAVAILABLE_TEXT, Submission, put_off
from sunk_pod_scheduler.controller.submitter import NO_NODE_ATTEMPTS
from sunk_pod_scheduler.gang_controller.notifier import Notifier, Pods, name, seated, uids
from sunk_pod_scheduler.gangs.job_description import describe_gang, nodes_at_least
from sunk_pod_scheduler.gangs.model import GangSeen, Message
from sunk_pod_scheduler.gangs.ownership import owner
from sunk_pod_scheduler.gangs.ranks import distinct
from sunk_pod_scheduler.placement.model import ExcludeNodes, JobSeen
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_runtime.errors import ConflictError
from sunk_runtime.views import now


class GangSubmitter:
    """Submits gangs to one Slurm cluster, while it may."""

    def __init__(self, context: Context, store: Callable[[PlacementState], Awaitable[None]]) -> None:
        self._context = context
        self._pods = context.pods
        self._notifier = Notifier(context.pods)
        self._store = store
        self._node_chooser = NodeChooser(context)
        self._submission = Submission(context, store)

    async def submit(self, attempt: int, gang: Gang, seen: GangSeen, pods: Pods) -> None:
        """Submit a job for all members of *gang*, unless there are no nodes for it."""
        self._context.views.slurm_nodes.require_complete()
        self._context.views.kube_pods.require_complete()
        found = [seen.members.get(member.uid) for member in gang.members if not member.is_empty]
        wanted = next((one.wanted for one in found if one is not None and one.wanted is not None), None)
        ours = [pods[member.uid] for member in gang.members if member.uid in pods]
        is_lost = seen.record is not None and seen.record.lost is not None
        if wanted is None or (None in found and not is_lost):
            raise ConflictError(f"{name(seen)} is not valid any more")
        if is_lost:
            choice = NodeChoice(required=distinct(gang))  # The Pods run there.
        else:
            least = nodes_at_least(gang)
            choice = await self._node_chooser.choose(ours, wanted.asked, least=least, pins=False)
        intent = self._submission.intent(seen.record, _fresh(seen, gang), attempt)
        why = self._context.refusals.enough(ours[0], now()) if ours and not is_lost else ""
        if why or not choice.is_possible:
            few = (
                f"there are not {nodes_at_least(gang)} Slurm nodes that fit what the Pods of {name(seen)} ask"
            )
            await self._notifier.refuse(ours, "KubeletRefuses" if why else "NoNodeFits", why or few)
            await self._store(put_off(intent, why or few, last=NO_NODE_ATTEMPTS))
            return
        description = describe_gang(seen, gang, choice, attempt, self._context.placeholder, wanted=wanted)
        await self._submission.submit(intent, description, ours, _Members(self._notifier, pods))

    async def chosen(self, seen: GangSeen, pods: Pods) -> GangSeen:
        """Return *seen* with which nodes its job must not get as things are now, where it waits."""
        job, record = seen.job, seen.record
        if record is None or record.roster is None or record.lost is not None:
            return seen
        if not isinstance(job, JobSeen) or job.base != "PENDING" or job.excluded is None:
            return seen
        found = [one for uid in uids(seen) if (one := seen.members.get(uid)) is not None]
        wanted = next((one.wanted for one in found), None)
        if wanted is None:
            return seen
        least, ours = nodes_at_least(record.roster), seated(seen, pods)
        excluded = await self._node_chooser.excluded(ours, wanted.asked, least=least, pins=False)
        return replace(seen, excluded=excluded)

    async def exclude(self, action: ExcludeNodes) -> float | None:
        """Tell Slurm which nodes a job that waits must not get; return when to look again."""
        return await self._submission.exclude(action)

    async def resume(self, seen: GangSeen, pods: Pods, attempt: int) -> None:
        """Take the job that an intent led to, or withdraw the intent, which was never carried out."""
        members = _Members(self._notifier, pods)
        await self._submission.resume(seen.record, attempt, seated(seen, pods), members, owner(seen).user_id)


class _Members:
    """The Pods of a gang, who are told what becomes of its intent."""

    def __init__(self, notifier: Notifier, pods: Pods) -> None:
        self._notifier = notifier
        self._pods = pods

    async def unavailable(self, intent: PlacementState) -> None:
        if intent.lost is None:
            note = Message(reason=UNAVAILABLE, text=UNAVAILABLE_TEXT)
            await self._notifier.tell(self._pods, dict.fromkeys(_uids(intent), note))

    async def rejected(self, intent: PlacementState, reason: str) -> None:
        if intent.lost is not None:
            ours = [self._pods[uid] for uid in _uids(intent) if uid in self._pods]
            await self._notifier.report_job_lost(ours, replace(intent, reason=reason[:REASON_MAX]))
        else:
            note = Message(reason="SubmissionFailed", text=reason, is_warning=True)
            await self._notifier.tell(self._pods, dict.fromkeys(_uids(intent), note))


def _uids(intent: PlacementState) -> tuple[str, ...]:
    return () if intent.roster is None else tuple(member.uid for member in intent.roster.members)


def _fresh(seen: GangSeen, gang: Gang) -> PlacementState:
    found = [seen.members.get(member.uid) for member in gang.members]  # Who has done his work may be gone.
    created = [one.pod.created for one in found if one is not None]
    return PlacementState(
        changed=now(),
        uid=seen.id,
        namespace=seen.namespace,
        pod=seen.name,
        phase="submitted",
        created=max((one for one in created if one is not None), default=None),
        roster=gang,
    )
