"""A Pod's submission: the intent is stored first, as then a job may exist that only its mark tells."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from sunk_events.base import REASON_MAX
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_kube.objects import Node, Pod
from sunk_pod_scheduler import marks
from sunk_pod_scheduler.nodes import Choice, Choices, ports_taken
from sunk_pod_scheduler.ports import JobPort, PodPort
from sunk_pod_scheduler.refusals import Refusals
from sunk_pod_scheduler.request import Placeholder, describe
from sunk_pod_scheduler.validate import Rules, Wanted, validate
from sunk_runtime.errors import ConflictError
from sunk_runtime.views import StateView, now
from sunk_slurm.errors import SlurmRejectedError, SlurmUnavailableError

log = logging.getLogger(__name__)

NO_NODE_TEXT: Final = "no Slurm node fits what the Pod asks of its Node"
NO_NODE_ATTEMPTS: Final = 5
"""From then on it is no longer until the next: a NodeSet's Pods may be on their way to Slurm."""
UNAVAILABLE: Final = "SlurmUnavailable"
UNAVAILABLE_TEXT: Final = "Slurm does not answer; the Pod is submitted once it does"


class Views(msgspec.Struct, frozen=True, kw_only=True):
    """What we know of Slurm nodes and their Pods, from the bus."""

    kube_pods: StateView[KubePodState]
    slurm_nodes: StateView[SlurmNodeState]

    def nodes(self, pods: PodPort) -> Mapping[str, Node | None]:
        """Return the Node of every node that Slurm has; None where it is no NodeSet's."""
        states = {name: self.kube_pods.get(name) for name in self.slurm_nodes.keys()}  # noqa: SIM118 - not a dict
        return {name: None if state is None else pods.node(state.kube_node) for name, state in states.items()}


class Submitter:
    """Submits Pods to one Slurm cluster, while it may."""

    def __init__(
        self,
        *,
        pods: PodPort,
        jobs: JobPort,
        placements: StateView[PlacementState],
        store: Callable[[PlacementState], Awaitable[None]],
        views: Views,
        rules: Rules,
        placeholder: Placeholder,
        refusals: Refusals,
        check: Callable[[], None],
    ) -> None:
        self._pods = pods
        self._jobs = jobs
        self._placements = placements
        self._store = store
        self._views = views
        self._rules = rules
        self._placeholder = placeholder
        self._refusals = refusals
        self._choices = Choices()
        self._check = check

    async def submit(self, pod: Pod, attempt: int) -> None:
        """Store the intent, then submit a held job, unless there is no node for it."""
        wanted = self._valid(pod)
        self._views.slurm_nodes.require_complete()
        self._views.kube_pods.require_complete()
        choice = self._choice(pod, wanted)
        intent = self._intent(pod, attempt)
        why = "" if intent.lost is not None else self._refusals.enough(pod, now())
        if why or not choice.is_possible:
            await self._pods.refuse(pod, "KubeletRefuses" if why else "NoNodeFits", why or NO_NODE_TEXT)
            await self._store(put_off(intent, why or NO_NODE_TEXT, last=NO_NODE_ATTEMPTS))
            return
        description = describe(pod, wanted, choice, attempt, self._placeholder)
        await self._store(intent)
        self._check()
        try:
            job = await self._jobs.submit(description)
        except SlurmRejectedError as error:
            await self._rejected(pod, intent, str(error))
        except SlurmUnavailableError:
            await self._tell_unavailable(pod, intent)
            raise
        else:
            await self._submitted(pod, intent, job)

    async def _tell_unavailable(self, pod: Pod, intent: PlacementState) -> None:
        if intent.lost is None:
            await self._pods.put_off(pod, UNAVAILABLE, UNAVAILABLE_TEXT)

    def _choice(self, pod: Pod, wanted: Wanted) -> Choice:
        before = self._placements.get(pod.metadata.uid)
        if before is not None and before.lost is not None:
            return Choice(required=(before.node,))  # The Pod runs there.
        asked = wanted.asked
        nodes = partial(self._views.nodes, self._pods)
        known = self._views.slurm_nodes
        refused = [name for name in self._refusals.nodes(pod, now()) if known.get(name) is not None]
        excluded = (*asked.excluded_nodes, *refused)
        taken = ports_taken(pod, self._pods.placed)
        return self._choices.choose(pod, nodes, asked.required_nodes, excluded, now(), taken=taken)

    def _intent(self, pod: Pod, attempt: int) -> PlacementState:
        meta = pod.metadata
        before = self._placements.get(meta.uid)
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

    async def resume(self, pod: Pod, attempt: int) -> None:
        """Take the job that an intent led to, or withdraw the intent, which was never carried out."""
        intent = self._placements.get(pod.metadata.uid)
        if intent is None:
            raise ConflictError("the intent is gone")
        try:
            job = await self._jobs.find_marked(pod.metadata.uid, attempt)
        except SlurmUnavailableError:
            await self._tell_unavailable(pod, intent)
            raise
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

    async def _rejected(self, pod: Pod, intent: PlacementState, reason: str) -> None:
        """Slurm may take it later, when its partition, account or node is there: try again, ever rarer."""
        if intent.lost is None:
            await self._pods.refuse(pod, "SubmissionFailed", reason)
        else:
            await self._pods.tell_loss(pod, "SubmissionFailed", reason, is_lost=True)
        await self._store(put_off(intent, reason))

    def _valid(self, pod: Pod) -> Wanted:
        found = validate(pod, self._rules)
        if isinstance(found, tuple):
            raise ConflictError(f"Pod {pod.key} is not valid any more")
        return found


def put_off(intent: PlacementState, reason: str, *, last: int | None = None) -> PlacementState:
    """Return *intent* withdrawn, to be tried again ever later; from attempt *last* on no later."""
    attempt = intent.attempt + 1 if last is None or intent.attempt < last else intent.attempt
    return replace(intent, attempt=attempt, token_sha256="", changed=now(), reason=reason[:REASON_MAX])
