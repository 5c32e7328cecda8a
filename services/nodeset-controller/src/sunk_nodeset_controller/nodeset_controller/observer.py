"""From the views to one NodeSet and all that concerns it."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime

from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_events.placements import PlacementState
from sunk_kube.node_slices import NodeSlice
from sunk_kube.nodesets import NodeSet
from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_nodeset_controller.adapters.cluster_views import BusConnections
from sunk_nodeset_controller.adapters.kube_views import KubeViews, slice_owner
from sunk_nodeset_controller.nodeset_controller.feasibility_cache import FeasibilityCache
from sunk_nodeset_controller.nodesets.gpus import GpuRules, is_unread, waits_for, waits_since
from sunk_nodeset_controller.nodesets.members import condemned
from sunk_nodeset_controller.nodesets.model import Fits, Observed, UnreadGpus
from sunk_nodeset_controller.nodesets.owners import by_age, is_owned, owner_key, refusal
from sunk_nodeset_controller.nodesets.slices import failed_of, failures_of, names_of
from sunk_nodeset_controller.nodesets.template import pinned_node
from sunk_nodeset_controller.slurm_health import missing
from sunk_slurm.hostlist import expand

_Jobs = Mapping[str, tuple[SlurmJobState, ...]]
_Guests = Mapping[str, tuple[PlacementState, ...]]


class GpuWaits:
    """Since when Nodes that have GPUs by a label announce none, by NodeSet.

    Kubelets and device plugins do not say it. It is in the status of the NodeSet, so a leader that was killed
    is followed by one that goes on: else a controller that starts again every few minutes makes no Pod there.
    """

    def __init__(self, rules: GpuRules, clock: Callable[[], float] = time.monotonic) -> None:
        self._rules = rules
        self._clock = clock
        self._since: dict[str, dict[str, tuple[float, datetime]]] = {}
        """By uid of the Node, by our clock, which never jumps, and by that of all."""

    def of(self, nodeset: NodeSet, nodes: Iterable[Node], now: datetime) -> dict[str, UnreadGpus]:
        """Return those of *nodes*, which have no Pod of *nodeset*, whose Pod waits for their GPUs, or has."""
        if not self._rules.wait_s:
            return {}
        moment, known = self._clock(), self._since.get(nodeset.key, {})
        published = {one.kube_node: one.since for one in nodeset.status.gpus_awaited}
        unread = [node for node in nodes if is_unread(node, nodeset.spec, self._rules)]
        since: dict[str, tuple[float, datetime]] = {}
        found: dict[str, UnreadGpus] = {}
        for node in unread:
            name, uid = node.metadata.name, node.metadata.uid
            if (began := known.get(uid)) is None:
                at = waits_since(node, published.get(name), now)
                began = moment - (now - at).total_seconds(), at
            since[uid] = began
            wait_s = max(began[0] + self._rules.wait_s - moment, 0.0)
            found[name] = UnreadGpus(waits_for(node, self._rules), wait_s, began[1])
        self._since[nodeset.key] = since
        return found

    def forget(self, key: str) -> None:
        """Forget a NodeSet that is gone."""
        self._since.pop(key, None)


class Observer:
    """Looks at NodeSets. What it needs of Nodes and Pods is indexed: nobody walks through all of them."""

    def __init__(
        self,
        views: KubeViews,
        bus: BusConnections,
        *,
        clusters: Collection[str],
        lock_key: str,
        replace_after_s: float,
        gpu_rules: GpuRules,
    ) -> None:
        self._views = views
        self._bus = bus
        self._clusters = clusters
        self._replace_after_s = replace_after_s
        self._gpu_waits = GpuWaits(gpu_rules)
        self._feasibility_cache = FeasibilityCache(views.nodes, lock_key=lock_key)

    def observe(self, nodeset: NodeSet, name_conflicts: frozenset[str] = frozenset()) -> Observed:
        """Return all that concerns *nodeset*, as it is now; *name_conflicts*: names of others' Pods.

        Nothing of it changes any more: a Node that comes later was not held against the NodeSet.
        """
        now = datetime.now(UTC).replace(microsecond=0)
        labelled = self._views.pods_of.of(nodeset.key)
        own = [pod for pod in labelled if is_owned(pod, nodeset)]
        slices = tuple(one for one in self._views.slices_of.of(nodeset.key) if is_owned(one, nodeset))
        fits = self._feasibility_cache.of(nodeset)
        mine = {pinned_node(pod) for pod in own}
        nodes = dict(self._views.nodes.objects)
        others = (node for name, node in nodes.items() if name not in mine and name not in fits.obstacles)
        jobs, placed_pods = self._in_the_way(nodeset, own)
        slurm_health = self._bus.healths.get(nodeset.spec.cluster)
        silence = None if slurm_health is None else slurm_health.doubt(now)
        return Observed(
            nodeset=nodeset,
            nodes=nodes,
            fits=fits,
            pods=tuple(own),
            slices=slices,
            foreign=self._foreign(nodeset, fits, mine),
            let_go=frozenset(
                name
                for name in names_of(slices).keys() - mine
                if (self._owner(name, nodeset) or nodeset.key) != nodeset.key
            ),
            taken=self._taken(nodeset, own) | name_conflicts,
            name_conflicts=name_conflicts,
            slurm=self._slurm(nodeset.spec.cluster, own, slices) if silence is None else None,
            doubt=silence
            if silence is not None or slurm_health is None
            else missing(own, slurm_health.nodes),
            jobs=jobs,
            placed_pods=placed_pods,
            failures=failures_of(slices),
            failed=failed_of(slices),
            unread=self._gpu_waits.of(nodeset, others, now),
            refusal=refusal(nodeset, self._views.nodesets.values(), self._clusters),
            now=now,
            replace_after_s=self._replace_after_s,
        )

    def forget(self, key: str) -> None:
        """Forget a NodeSet that is gone."""
        self._feasibility_cache.forget(key)
        self._gpu_waits.forget(key)

    def _taken(self, nodeset: NodeSet, own: list[Pod]) -> frozenset[str]:
        """Return the names of Pods and Slurm nodes in the namespace that are not *nodeset*'s."""
        namespace = nodeset.metadata.namespace
        mine = {pod.key for pod in own}
        names = {pod.metadata.name for key, pod in self._views.pods.objects.items()
                 if key not in mine and pod.metadata.namespace == namespace}  # fmt: skip
        for one in self._views.slices.objects.values():
            if one.metadata.namespace == namespace and slice_owner(one) != nodeset.key:
                names.update(names_of((one,)).values())
        return frozenset(names)

    def _foreign(self, nodeset: NodeSet, fits: Fits, mine: set[str]) -> dict[str, str]:
        """Return the Nodes that fit *nodeset* and belong, or are left, to another NodeSet."""
        older = self._hungry_elders(nodeset)
        found: dict[str, str] = {}
        for name in self._views.nodes.objects.keys() - fits.obstacles.keys() - mine:
            owner = self._owner(name, nodeset)
            if owner is None:
                owner = next((key for key, other in older if name not in other.obstacles), None)
            if owner is not None and owner != nodeset.key:
                found[name] = owner
        return found

    def _owner(self, kube_node: str, nodeset: NodeSet) -> str | None:
        """Return the key of the NodeSet whose Pod is on a Node, else whose slices have it; None: nobody's."""
        views = self._views
        for pod in views.member_pods(kube_node):
            key = owner_key(pod)
            return key if key != nodeset.key else f"{key} (an earlier one)"
        for one in views.slices_at.of(kube_node):
            owner = views.nodesets.get(slice_owner(one))
            if owner is not None and is_owned(one, owner):
                return owner.key
        return None

    def _hungry_elders(self, nodeset: NodeSet) -> list[tuple[str, Fits]]:
        """Return the older NodeSets that want more Nodes than they have, and which Nodes would do."""
        found: list[tuple[str, Fits]] = []
        nodesets = self._views.nodesets.values()
        for other in sorted(nodesets, key=by_age):
            if by_age(other) >= by_age(nodeset):
                break
            replicas = other.spec.replicas
            is_hungry = replicas is None or self._views.pods_of.count(other.key) < replicas
            is_leaving = other.metadata.deletion_timestamp is not None
            if is_hungry and not is_leaving and not refusal(other, nodesets, self._clusters):
                fits = self._feasibility_cache.of(other)
                if not fits.invalid:
                    found.append((other.key, fits))
        return found

    def _slurm(
        self, cluster: str, own: Iterable[Pod], slices: Iterable[NodeSlice]
    ) -> dict[str, SlurmNodeState] | None:
        """Return what Slurm says of the nodes of *own*, and of those whose Pod is yet to be made again.

        None while it is not read.
        """
        views = self._bus.find(cluster)
        if views is None or not views.slurm_nodes.is_complete:
            return None
        found: dict[str, SlurmNodeState] = {}
        for name in {*(pod.metadata.name for pod in own), *names_of(slices).values()}:
            state = views.slurm_nodes.get(name)
            if name in views.slurm_nodes.undecodable:  # It says something that we cannot read: not "idle".
                state = SlurmNodeState(changed=datetime.now(UTC), node=name, state="UNKNOWN", is_busy=True)
            if state is not None:
                found[name] = state
        return found

    def _in_the_way(self, nodeset: NodeSet, own: Iterable[Pod]) -> tuple[_Jobs, _Guests]:
        """Return what runs on the nodes that an update waits for, if it may be told to leave."""
        rolling, views = nodeset.spec.rolling, self._bus.find(nodeset.spec.cluster)
        names = {pod.metadata.name for pod in own if condemned(pod) == "update"}
        if not names or views is None or not views.is_complete:
            return {}, {}
        if rolling.requeue is None and rolling.placeholders != "evict":
            return {}, {}
        jobs: dict[str, tuple[SlurmJobState, ...]] = {}
        for job in sorted(views.slurm_jobs.values(), key=lambda job: job.job):
            if job.is_running and rolling.requeue is not None:
                for name in names.intersection(expand(job.nodes)):
                    jobs[name] = (*jobs.get(name, ()), job)
        placed_pods: dict[str, tuple[PlacementState, ...]] = {}
        for one in sorted(views.placements.values(), key=lambda one: one.uid):
            if one.node in names and one.is_pod_present:
                placed_pods[one.node] = (*placed_pods.get(one.node, ()), one)
        return jobs, placed_pods
