"""Carrying out what was planned for a NodeSet: many at once, the first ones carefully.

What must stay true: a Pod is deleted for an update or a smaller size only after a fresh look at its Slurm
node has confirmed that it is drained and idle; no answer is no confirmation; who cannot be evicted holds up
his own node only, and what is refused only itself: it comes last in the next turn. While the release of a Pod
is refused nobody else is condemned: that Pod is away, and its plan counts it as one that serves.
"""

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, assert_never

import anyio
import msgspec

from sunk_events.requests import ConfirmNode, NodeConfirmed, RequeueJob
from sunk_kube.errors import KubeExistsError, KubeNotFoundError, KubeRejectedError
from sunk_kube.pods import PodSpec
from sunk_nodeset_controller.adapters.cluster_views import BusConnections
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.adapters.rate_limit import RateLimit
from sunk_nodeset_controller.locks.daemonsets import DaemonSet
from sunk_nodeset_controller.locks.pods_in_the_way import EvictionPolicy
from sunk_nodeset_controller.nodeset_controller.attempts import in_growing_batches
from sunk_nodeset_controller.nodeset_controller.placed_pod_evictor import PlacedPodEvictor
from sunk_nodeset_controller.nodesets.allocatable import left_for_slurm, with_room
from sunk_nodeset_controller.nodesets.gpus import GpuRules, gpus_of, with_gpus
from sunk_nodeset_controller.nodesets.model import (
    Action,
    CondemnPod,
    CreatePod,
    DeletePod,
    EvictPlacedPod,
    Observed,
    Plan,
    ReleasePod,
    ReplacePod,
    RequeueJobOn,
)
from sunk_nodeset_controller.nodesets.owners import is_owned, owner_key
from sunk_nodeset_controller.nodesets.slices import laid_out, slice_manifest, wanted_entries
from sunk_nodeset_controller.nodesets.template import Manifest, manifest, pod_labels, with_topology
from sunk_nodeset_controller.nodesets.topology import NO_TOPOLOGY, Topology, node_topology
from sunk_nodeset_controller.nodesets.usable import noted
from sunk_runtime.errors import ConflictError, TransientError
from sunk_runtime.requests import ask

log = logging.getLogger(__name__)

CONFIRMED_AT_ONCE: Final = 64
"""Pods looked at for deletion in one turn, so that a turn stays short."""
A_TURN: Final = 1000
"""Other actions in one turn: the rest is planned anew, on what was learned meanwhile."""
TURN_S: Final = 20.0
"""Then a slow API server's rest is planned anew: a turn that lasts too long is cut off, and tells nothing."""
CONFIRM_S: Final = 2.0


class Done(NamedTuple):
    """What was carried out of a plan."""

    actions: tuple[Action, ...] = ()
    """Those that one turn had time for, and that were not refused."""
    stuck: Mapping[str, str] = MappingProxyType({})
    """Pods that could not be evicted, and why."""
    name_conflicts: frozenset[str] = frozenset()
    """Names under which a Pod was to be made, and somebody else's is there."""
    rejected: str = ""
    """Why the API server refused one of the actions; nothing if it refused none."""
    refused: str = ""
    """What else the API server would not have."""
    resting: int = 0
    """How many actions wait because their Pod was written just now."""
    resting_s: float | None = None
    """For how long they do."""


def _in_line(actions: Iterable[Action], refused: Iterable[Action]) -> list[Action]:
    """Return *actions* in their order, but what was *refused* after the rest, and condemnations after that.

    What may be planned again and again, for as long as others hold it up, comes last and starves nothing.
    """
    turns = {one: turn for turn, one in enumerate(refused, 1)}

    def place(one: Action) -> tuple[int, int]:
        rank = 2 if isinstance(one, EvictPlacedPod | RequeueJobOn) else int(isinstance(one, CondemnPod))
        return rank, turns.get(one, 0)

    return sorted(actions, key=place)


class Executor:
    """Carries out actions."""

    def __init__(
        self,
        kube: FencedKube,
        bus: BusConnections,
        rest: RateLimit,
        *,
        measure: EvictionPolicy,
        gpu_rules: GpuRules,
        topology: Topology = NO_TOPOLOGY,
    ) -> None:
        self._kube = kube
        self._bus = bus
        self._rest = rest
        self._measure = measure
        self._gpu_rules = gpu_rules
        self._topology = topology
        self._placed_pods = PlacedPodEvictor(kube)
        self._stuck: dict[str, str] = {}
        self._name_conflicts: set[str] = set()
        self._begin = 0
        self._daemons: list[DaemonSet] | None = None
        self._listing = anyio.Lock()
        self._refused: dict[str, dict[Action, str]] = {}
        """By key of a NodeSet: what was refused when it was last tried, the longest ago first."""
        self._is_release_refused = False

    def forget(self, key: str) -> None:
        """Forget a NodeSet that is gone."""
        self._placed_pods.forget(key)
        self._refused.pop(key, None)

    async def carry_out(self, seen: Observed, actions: tuple[Action, ...]) -> Done:
        """Carry out *actions*, what goes before what comes, as many as one turn has time for.

        Raises:
            ConflictError: the view was stale.
        """
        key, planned = seen.nodeset.key, frozenset(actions)
        self._placed_pods.begin(key, actions)
        refused = {one: why for one, why in self._refused.get(key, {}).items() if one in planned}
        line = _in_line(actions, refused)
        deleted = [one for one in line if isinstance(one, DeletePod)]
        resting_s = {one: left_s for one in line if (left_s := self._resting_s(seen, one))}
        others = [one for one in line if not isinstance(one, DeletePod) and one not in resting_s]
        if (
            len(deleted) > CONFIRMED_AT_ONCE
        ):  # Not always the same ones: theirs may be a node that is busy again.
            begin = self._begin % len(deleted)
            deleted = deleted[begin:] + deleted[:begin]
            self._begin += CONFIRMED_AT_ONCE
        chosen = (*deleted[:CONFIRMED_AT_ONCE], *others[:A_TURN])
        self._stuck, self._name_conflicts, self._daemons = {}, set(), None
        self._is_release_refused = any(isinstance(one, ReleasePod) for one in refused)
        tried = await in_growing_batches(chosen, partial(self._apply, seen), within_s=TURN_S)
        for one in (*tried.done, *tried.refused):
            refused.pop(one, None)
        self._refused[key] = refused = {**refused, **tried.refused}
        return Done(
            tried.done,
            self._stuck,
            frozenset(self._name_conflicts),
            rejected=next((refused[one] for one in actions if one in refused), ""),
            resting=len(resting_s),
            resting_s=max(resting_s.values(), default=None),
        )

    def _resting_s(self, seen: Observed, action: Action) -> float:
        """Return for how long the Pod that *action* would write must not be written: it just was."""
        if not isinstance(action, CondemnPod | ReleasePod):
            return 0.0
        return self._rest.left_s(f"{seen.nodeset.metadata.namespace}/{action.name}")

    async def write_slices(self, seen: Observed, found: Plan) -> None:
        """Make the slices say which Nodes the set has when *found* is carried out; only what changes."""
        before = {one.metadata.name: one for one in seen.slices}
        for made in laid_out(seen, wanted_entries(seen, found)):
            was = before.get(made.metadata.name)
            if was is None:
                await self._kube.create_slice(slice_manifest(seen.nodeset, made))
            elif not made.nodes:
                await self._kube.delete_slice(was)
            elif made.nodes != was.nodes:
                await self._kube.write_slice(was, slice_manifest(seen.nodeset, made))

    async def _apply(self, seen: Observed, action: Action) -> None:
        namespace = seen.nodeset.metadata.namespace
        match action:
            case CreatePod(name, kube_node):
                await self._create(seen, name, kube_node)
            case ReplacePod(name, uid):
                await self._kube.delete_pod(namespace, name, uid)
            case CondemnPod(name, uid, why):
                await self._condemn(seen, uid, why)
            case ReleasePod(name, uid):
                await self._condemn(seen, uid, None)
            case DeletePod(name, uid):
                if await self._is_confirmed(seen, action):
                    await self._kube.delete_pod(namespace, name, uid)
                    log.info("condemned pod deleted", extra={"nodeset": seen.nodeset.key, "pod": name})
            case RequeueJobOn(job, node):
                await self._requeue(seen, job, node)
            case EvictPlacedPod():
                if because := await self._placed_pods.evict(seen.nodeset.key, action):
                    self._stuck[f"{action.namespace}/{action.name}"] = because
            case _:
                assert_never(action)

    async def _create(self, seen: Observed, name: str, kube_node: str) -> None:
        """Make a Pod. One of that name that we do not see has no label of ours: taken off, or never there."""
        body = await self._body(seen, name, kube_node)
        try:
            await self._kube.create_pod(body)
        except KubeExistsError:
            found = await self._kube.find_pod(seen.nodeset.metadata.namespace, name)
            if found is None or owner_key(found):
                raise  # The view will say so.
            if is_owned(found, seen.nodeset):
                await self._kube.label_pod(found, pod_labels(seen.nodeset))
                raise
            self._name_conflicts.add(name)
            log.warning("name is taken", extra={"nodeset": seen.nodeset.key, "pod": name})

    async def _body(self, seen: Observed, name: str, kube_node: str) -> Manifest:
        node = seen.nodes[kube_node]
        body = manifest(seen.nodeset, node, name, self._measure.taint.key)
        gpus = gpus_of(node, seen.nodeset.spec, self._gpu_rules)
        body = with_gpus(body, gpus, is_listed=self._gpu_rules.is_listed)
        body = with_topology(body, node_topology(self._topology, node.metadata.labels))
        body["metadata"]["annotations"] |= noted(seen.slurm.get(name) if seen.slurm is not None else None)
        if seen.nodeset.spec.leave_room_for is None:
            return body
        # Once a turn; without an answer no Pod is made, for it would claim too much.
        async with self._listing:
            if self._daemons is None:
                self._daemons = await self._kube.daemonsets()
        spec = msgspec.convert(body["spec"], PodSpec)
        return with_room(body, left_for_slurm(node, spec, self._daemons, self._measure))

    async def _condemn(self, seen: Observed, uid: str, why: str | None) -> None:
        if why is not None and self._is_release_refused:
            return
        pod = next(pod for pod in seen.pods if pod.metadata.uid == uid)
        self._rest.begin(pod.key)
        try:
            await self._kube.condemn_pod(pod, why)
        except KubeNotFoundError as error:
            raise ConflictError(str(error)) from error
        except KubeRejectedError:
            self._is_release_refused = self._is_release_refused or why is None
            raise

    async def _requeue(self, seen: Observed, job: int, node: str) -> None:
        """Ask for a job to be requeued: unheard, it is asked for again; refused, it is waited for."""
        views = self._bus.find(seen.nodeset.spec.cluster)
        if views is None:
            return
        question = RequeueJob(job=job, node=node, reason=f"update of NodeSet {seen.nodeset.metadata.name}")
        fields: dict[str, object] = {"job": job, "node": node}
        try:
            reply = await ask(views.bus, views.cluster, question, timeout_s=CONFIRM_S)
        except TransientError as error:
            log.warning("requeue not answered", extra={**fields, "error": str(error)})
        else:
            log.info("requeue asked", extra={**fields, "reply": type(reply).__name__})

    async def _is_confirmed(self, seen: Observed, action: DeletePod) -> bool:
        """Ask who knows whether the Slurm node is drained and idle, now. No answer is a no, for now."""
        views = self._bus.find(seen.nodeset.spec.cluster)
        if views is None:
            return False
        try:
            reply = await ask(views.bus, views.cluster, ConfirmNode(node=action.name), timeout_s=CONFIRM_S)
        except TransientError as error:
            log.warning("pod not confirmed", extra={"pod": action.name, "error": str(error)})
            return False
        if not isinstance(reply, NodeConfirmed):
            log.warning("pod not confirmed", extra={"pod": action.name, "reply": type(reply).__name__})
            return False
        return reply.is_drained_and_idle or (not reply.is_known and action.is_unknown_fine)
