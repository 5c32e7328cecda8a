"""The loop over NodeSet Pods: what their Nodes and Slurm say is put on them."""

from datetime import UTC, datetime

from sunk_kube import wellknown as wk
from sunk_kube.errors import KubeNotFoundError
from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_nodeset_controller.adapters.cluster_views import BusConnections
from sunk_nodeset_controller.adapters.kube_views import KubeViews
from sunk_nodeset_controller.adapters.kube_writer import FencedKube
from sunk_nodeset_controller.adapters.rate_limit import RateLimit
from sunk_nodeset_controller.lock_controller.job_index import JobsOnNodes
from sunk_nodeset_controller.metadata import MetadataPatch, joined, patch
from sunk_nodeset_controller.nodesets.owners import owner_key
from sunk_nodeset_controller.nodesets.protection import is_late, may_be_evicted
from sunk_nodeset_controller.nodesets.template import pinned_node
from sunk_nodeset_controller.pods.conditions import forgotten, marks, unknown
from sunk_nodeset_controller.pods.projection import copies
from sunk_nodeset_controller.slurm_health import MissingTracker, SlurmHealth, missing, was_known
from sunk_runtime.errors import ConflictError


class PodController:
    """The Pod Controller towards Pods: what their Node and Slurm say, in one write. Keys are Pods'."""

    def __init__(
        self, views: KubeViews, kube: FencedKube, bus: BusConnections, *, unknown_s: float, rest: RateLimit
    ) -> None:
        self._views = views
        self._kube = kube
        self._bus = bus
        self._healths = bus.healths
        self._absent = MissingTracker(unknown_s)
        self._rest = rest
        self._jobs: dict[str, JobsOnNodes] = {}

    def jobs_of(self, cluster: str) -> JobsOnNodes | None:
        """Return the jobs under which nobody in *cluster* is evicted, for who keeps them current.

        None: the bus was not reached yet, and any job may be on any node.
        """
        if cluster not in self._jobs and (views := self._bus.find(cluster)) is not None:
            self._jobs[cluster] = JobsOnNodes(views.slurm_jobs)
        return self._jobs.get(cluster)

    async def settle(self, key: str) -> float | None:
        """Make the NodeSet Pod *key* bear what it shall; return when to look again if it was just written.

        Raises:
            ConflictError: another Pod has its name by now: the view will say so.
        """
        self._views.require_complete()
        pod = self._views.pods.get(key)
        if pod is None or not self._views.is_member_pod(pod):
            self._absent.forget(key)
            return None
        now = datetime.now(UTC)
        waits = (await self._put(pod, self._wanted(pod, now), now), self._absent.again_s(key))
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    async def mark_unknown(self, pod: Pod, now: datetime) -> bool:
        """Make *pod* say that nothing is known of Slurm; return whether it had to be written."""
        if patch(pod.metadata, pod.status.conditions, unknown(), now) is None:
            return False
        await self._put(pod, unknown(), now)
        return True

    def _wanted(self, pod: Pod, now: datetime) -> MetadataPatch:
        node = self._views.nodes.get(pinned_node(pod))
        copied = (
            copies(node, pod, self._views.nodesets.get(owner_key(pod)))
            if node is not None
            else MetadataPatch()
        )
        slurm_health = self._healths.get(pod.metadata.labels.get(wk.LABEL_CLUSTER, ""))
        protected = None if self._may_be_evicted(pod, node, slurm_health, now) else "true"
        copied = joined(copied, MetadataPatch(labels={wk.LABEL_PROTECTED: protected}))
        nodes = slurm_health.nodes if slurm_health is not None else None
        if slurm_health is None or nodes is None or slurm_health.is_unknown(now):
            return copied
        slurm = nodes.get(pod.metadata.name)
        if slurm is not None or pod.metadata.name in nodes.undecodable or not was_known(pod):
            self._absent.forget(pod.key)
            return joined(copied, marks(slurm)) if slurm is not None else copied
        if not self._absent.is_long(pod.key) or missing(self._views.pods_of.of(owner_key(pod)), nodes):
            return copied  # What it said last stays: Slurm may have lost its nodes for a moment.
        return joined(copied, forgotten())

    def _may_be_evicted(
        self, pod: Pod, node: Node | None, slurm_health: SlurmHealth | None, now: datetime
    ) -> bool:
        name, nodes = (
            pod.metadata.name,
            slurm_health.nodes if slurm_health is not None and slurm_health.doubt(now) is None else None,
        )
        jobs = self.jobs_of(pod.metadata.labels.get(wk.LABEL_CLUSTER, ""))
        if nodes is None or name in nodes.undecodable or jobs is None or not jobs.is_complete:
            return False
        slurm = nodes.get(name)
        is_unregistered = slurm is None and is_late(pod, now)
        return may_be_evicted(node, slurm, is_unregistered=is_unregistered, is_held=bool(jobs.on(name)))

    async def _put(self, pod: Pod, wanted: MetadataPatch, now: datetime) -> float | None:
        body = patch(pod.metadata, pod.status.conditions, wanted, now)
        if body is None:
            return None
        if left_s := self._rest.left_s(pod.key):
            return left_s
        self._rest.begin(pod.key)
        try:
            await self._kube.mark_pod(pod, body)
        except KubeNotFoundError as error:
            raise ConflictError(str(error)) from error
        return None
