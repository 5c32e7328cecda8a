"""Answers to what placeholders' scripts and epilogs ask, through the gateway."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from sunk_events.base import Reply, question_id
from sunk_events.jobs import SlurmJobState
from sunk_events.placements import PlacementState
from sunk_events.requests import (
    Later,
    Noted,
    PlacementAnnounced,
    PlacementReleased,
    PlacementSilent,
    Refused,
    ReleasePlacement,
)
from sunk_kube.pods import Pod
from sunk_pod_scheduler.adapters.ports import PodPort
from sunk_pod_scheduler.controller.mailbox import Announcement, Mailbox
from sunk_pod_scheduler.controller.placement_index import PlacementIndex
from sunk_pod_scheduler.placement import marks, tokens
from sunk_pod_scheduler.placement.job_claims import claims_of
from sunk_pod_scheduler.placement.marks import Mark
from sunk_pod_scheduler.placement.ownership import is_behind
from sunk_runtime.tracing import here
from sunk_runtime.views import StateView

WAIT_S: Final = 4.0
"""How long a look at the Pod may take before the asker is told to ask again: less than its own try."""
_AFTER_START: Final = frozenset({"started", "bound", "ending", "ended"})


class _Lost(msgspec.Struct, frozen=True):
    """A Pod that runs for a job of which no placement tells."""

    uid: str
    pod: str
    owner: str
    """Whose placement is missing: the Pod's, or its gang's."""
    attempt: int


class Handlers:
    """Answers from placements; what has to be done first is left in the book."""

    def __init__(  # noqa: PLR0917 - what it asks, in the order of the layers
        self,
        placements: StateView[PlacementState],
        pods: PodPort,
        mailbox: Mailbox,
        key: bytes,
        enqueue: Callable[[str], None],
        slurm_jobs: StateView[SlurmJobState] | None = None,
        kube_node: Callable[[str], str] = lambda _: "",
    ) -> None:
        """Answer from what there is; *kube_node*: the Node of a Slurm node, empty where it is not known."""
        self._placements = placements
        self._pods = pods
        self._mailbox = mailbox
        self._key = key
        self._enqueue = enqueue
        self._slurm_jobs = slurm_jobs
        self._kube_node = kube_node
        self._placement_index = PlacementIndex(placements)

    async def announced(self, request: PlacementAnnounced) -> Reply:
        """Note that the script runs, once that is stored."""
        self._placements.require_complete()
        found = self._placement_index.of(request.job)
        if not found:
            return Refused(code="unknown_job", reason=f"job {request.job} is no placeholder")
        placement = self._of_token(found, request.token)
        if placement is None:
            return _forbidden(request.job)

        def is_noted() -> bool:
            found = self._still(placement)
            return found is None or (found.phase in _AFTER_START and found.silent is None)

        self._mailbox.note_heartbeat(placement.uid, request.job, "heard")
        if not is_noted():
            cause = here(question_id(PlacementAnnounced, request.job))
            self._mailbox.announce(placement.uid, Announcement(request.job, request.node, cause))
            self._enqueue(placement.uid)
            if not await self._mailbox.until(placement.uid, is_noted, timeout_s=WAIT_S):
                return Later(reason=f"the pod-scheduler does not see job {request.job} run on {request.node}")
        return Noted()

    async def silent(self, request: PlacementSilent) -> Reply:
        """Note that a script's poll was cut; it may be heard again in a moment."""
        self._placements.require_complete()
        for placement in self._placement_index.of(request.job):
            if placement.phase == "bound":
                self._mailbox.note_heartbeat(placement.uid, request.job, "cut")
                self._enqueue(placement.uid)
        return Noted()

    async def released(self, request: ReleasePlacement) -> Reply:
        """Tell whether the job's Pod is gone; if not, it is on its way when this returns."""
        self._placements.require_complete()
        of_job = self._placement_index.of(request.job)
        if not of_job:
            return self._released_unplaced(request)
        # Without a token it is the node's own epilog, which the gateway knows by its node's token.
        if request.token:
            placement = self._of_token(of_job, request.token)
        else:
            placement = await self._of_node(of_job, request.node)
        if placement is None and request.token:
            return _forbidden(request.job)
        if placement is None:  # An earlier job of that number: its Pod may have lost its placement.
            return self._released_unplaced(request)
        if not _is_pod_gone(placement):
            self._mailbox.request_release(placement.uid, request.job, is_epilog=not request.token)
            self._enqueue(placement.uid)

            def is_begun() -> bool:
                found = self._still(placement)
                return found is None or found.phase in {"ending", "ended"}

            if not await self._mailbox.until(placement.uid, is_begun, timeout_s=WAIT_S):
                return Later(reason=f"the pod-scheduler has not looked at Pod {_name(placement)} yet")
        found = self._still(placement)
        return PlacementReleased(is_pod_gone=found is None or _is_pod_gone(found), pod=_name(placement))

    def _released_unplaced(self, request: ReleasePlacement) -> Reply:
        """Tell of a job without a placement: its Pod is gone, unless the placement was lost."""
        self._pods.require_complete()
        found = self._lost(request.job, request.node)
        if found is None:
            return PlacementReleased(is_pod_gone=True)
        if request.token and not tokens.is_token(request.token, self._key, found.owner, found.attempt):
            return _forbidden(request.job)
        self._mailbox.request_release(found.owner, request.job, is_epilog=not request.token)
        self._enqueue(found.uid)
        return Later(
            reason=f"the placement of Pod {found.pod} was lost, and the pod-scheduler creates it again"
        )

    def _lost(self, job: int, node: str | None) -> _Lost | None:
        """Return a Pod on a Node, *node*'s if given, that says that *job* is its job and has no placement."""
        left = {pod.metadata.uid: pod for pod in self._pods.claiming(job)}
        # A number that we did not sign is believed where the bus knows the job with our mark.
        mark = self._mark(job)
        if mark is not None:
            left.update((pod.metadata.uid, pod) for pod in self._pods.claiming(job, mark.uid))
        while left:
            _, pod = left.popitem()
            for owner, claim in claims_of(self._key, pod).items():
                is_his = mark is not None and (mark.uid, mark.attempt) == (owner, claim.attempt)
                ours = self._pods.claiming(job, owner)
                for one in ours:  # A gang is looked at once.
                    left.pop(one.metadata.uid, None)
                placement = self._placements.get(owner)
                is_placed = placement is not None and not is_behind(placement, claim)
                if not is_placed and (claim.is_signed or is_his):
                    for one in ours:
                        if self._may_be_at(one, node):
                            return _Lost(one.metadata.uid, one.key, owner, claim.attempt)
        return None

    def _mark(self, job: int) -> Mark | None:
        """Return whose placeholder *job* is, as the bus knows it."""
        state = None if self._slurm_jobs is None else self._slurm_jobs.get(str(job))
        return None if state is None else marks.read_extra(self._key, state.extra, state.user_id)

    def _of_token(self, found: Sequence[PlacementState], token: str) -> PlacementState | None:
        """Return the one whose script has been given *token*."""
        return next((one for one in found if tokens.is_token(token, self._key, one.uid, one.attempt)), None)

    async def _of_node(self, found: Sequence[PlacementState], node: str | None) -> PlacementState | None:
        """Return the one whose job the epilog of *node* may be of; None, of an older gateway: the first."""
        for one in found:
            if node is None or await self._may_be_on(one, node):
                return one
        return None

    async def _may_be_on(self, placement: PlacementState, node: str) -> bool:
        """Whether the placement's job has *node*, or its Pod, or one of its gang's, is on that one's Node."""
        self._pods.require_complete()
        members = () if placement.roster is None else placement.roster.members
        seats = {member.uid: member.node for member in members} or {placement.uid: placement.node}
        if node in {*seats.values(), self._mailbox.announced_on(placement.uid, placement.job)}:
            return True
        for uid, seat in seats.items():
            # One that was taken over may not say where it is: its Pod does.
            pod = None if seat else await self._pods.find(uid, "", "")
            if pod is not None and self._may_be_at(pod, node):
                return True
        return False

    def _may_be_at(self, pod: Pod, node: str | None) -> bool:
        """Whether *pod* is on a Node, that of the Slurm node *node* as far as it is given and known."""
        kube_node = self._kube_node(node) if node else ""
        return bool(pod.spec.node_name) and not pod.has_left and kube_node in {"", pod.spec.node_name}

    def _still(self, placement: PlacementState) -> PlacementState | None:
        """Return *placement* as it is now; None where its job is not its own any more."""
        found = self._placements.get(placement.uid)
        is_same = found is not None and (found.job, found.attempt) == (placement.job, placement.attempt)
        return found if is_same else None


def _is_pod_gone(placement: PlacementState) -> bool:
    return not placement.is_pod_present or placement.phase == "ended"


def _forbidden(job: int) -> Refused:
    return Refused(code="forbidden", reason=f"the token does not belong to job {job}")


def _name(placement: PlacementState) -> str:
    return f"{placement.namespace}/{placement.pod}"
