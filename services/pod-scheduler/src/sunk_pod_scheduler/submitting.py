"""What a Pod's job is to be, and whether it is to be submitted at all."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_kube.objects import Node, Pod
from sunk_pod_scheduler.nodes import Choice, Choices, ports_taken
from sunk_pod_scheduler.ports import JobPort, PodPort
from sunk_pod_scheduler.refusals import Refusals
from sunk_pod_scheduler.request import Placeholder, describe
from sunk_pod_scheduler.submission import UNAVAILABLE, UNAVAILABLE_TEXT, Submission, put_off
from sunk_pod_scheduler.validate import Rules, Wanted, validate
from sunk_runtime.errors import ConflictError
from sunk_runtime.views import StateView, now

NO_NODE_TEXT: Final = "no Slurm node fits what the Pod asks of its Node"
NO_NODE_ATTEMPTS: Final = 5
"""From then on it is no longer until the next: a NodeSet's Pods may be on their way to Slurm."""


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
        self._placements = placements
        self._store = store
        self._views = views
        self._rules = rules
        self._placeholder = placeholder
        self._refusals = refusals
        self._choices = Choices()
        self._submission = Submission(pods=pods, jobs=jobs, store=store, placeholder=placeholder, check=check)

    async def submit(self, pod: Pod, attempt: int) -> None:
        """Submit a job for *pod*, unless there is no node for it."""
        wanted = self._valid(pod)
        self._views.slurm_nodes.require_complete()
        self._views.kube_pods.require_complete()
        choice = self._choice(pod, wanted)
        before = self._placements.get(pod.metadata.uid)
        intent = self._submission.intent(before, _fresh(pod), attempt)
        why = "" if intent.lost is not None else self._refusals.enough(pod, now())
        if why or not choice.is_possible:
            await self._pods.refuse(pod, "KubeletRefuses" if why else "NoNodeFits", why or NO_NODE_TEXT)
            await self._store(put_off(intent, why or NO_NODE_TEXT, last=NO_NODE_ATTEMPTS))
            return
        description = describe(pod, wanted, choice, attempt, self._placeholder)
        await self._submission.submit(intent, description, (pod,), _Single(self._pods, pod))

    async def resume(self, pod: Pod, attempt: int) -> None:
        """Take the job that an intent led to, or withdraw the intent, which was never carried out."""
        intent = self._placements.get(pod.metadata.uid)
        await self._submission.resume(intent, attempt, (pod,), _Single(self._pods, pod))

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

    def _valid(self, pod: Pod) -> Wanted:
        found = validate(pod, self._rules)
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
            await self._pods.tell_loss(self._pod, "SubmissionFailed", reason, is_lost=True)


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
