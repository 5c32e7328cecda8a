"""What the bus says that locks are decided from, gathered for one node.

What must stay true: a Pod whose job slurmctld has lost is no job's until another one is submitted for it: who
has the number of the lost one by now must not start beside it.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from datetime import datetime

from sunk_events import subjects
from sunk_events.nodes import SlurmStatisticsState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import PlacementState
from sunk_kube.objects import Node
from sunk_kube.pods import Pod
from sunk_kube.wellknown import LABEL_CLUSTER
from sunk_nodeset_controller.adapters.cluster_views import ClusterViews
from sunk_nodeset_controller.lock_controller.job_index import JobsOnNodes
from sunk_nodeset_controller.lock_controller.node_index import MembersOnNodes
from sunk_nodeset_controller.locks.model import NodeLock, Seen
from sunk_runtime.bucket_copy import Entry
from sunk_runtime.views import StateView
from sunk_slurm.failed_locks import drained_for

_BOUND = frozenset({"started", "bound", "ending"})
"""The phases of a placement in which its Pod may be on its Node."""
_OLD_JOB = frozenset({"bound", "ending"})
"""Those in which a lost job of a placement is the one that it names, and not one before that."""


class LockSnapshotter:
    """Looks at one node through the views of its cluster, with what needs an index."""

    def __init__(self, views: ClusterViews, others: Iterable[StateView[KubePodState]] = ()) -> None:
        """Look through *views*, and through *others*, the Pods of the other Slurm clusters."""
        self.views = views
        self._others = tuple(others)
        self._jobs = JobsOnNodes(views.slurm_jobs)
        self._uids: dict[int, set[str]] = {}
        self._job: dict[str, int] = {}
        self._placements = views.placements.changes()
        self._members = MembersOnNodes(views.kube_pods, *self._others)
        for placement in views.placements.values():
            self._take(placement.uid)

    def require_complete(self) -> None:
        """Raise `TransientError` while one of the views is not complete, or in doubt but for our own.

        The Pods of NodeSets are told by another loop of this service: who has a Node may be another than an
        older bucket says, whose lock is none of the former's.
        """
        views = self.views
        for view in (views.slurm_nodes, views.slurm_jobs, views.placements, views.kube_pods, *self._others):
            view.require_settled()
        views.locks.require_complete()

    def kube_node(self, node: str) -> str:
        """Return the Node of a Slurm node, also of one that its NodeSet gave up and that is still locked."""
        known = self.views.kube_pods.get(node) or self.views.locks.get(node)
        return known.kube_node if known else ""

    def owner(self, kube_node: str) -> str:
        """Return the Slurm node of this cluster that has *kube_node*; nothing where none has."""
        owner = self._members.owner(kube_node)
        return owner.node if owner is not None and owner.cluster == self.views.cluster else ""

    def has_owner(self, kube_node: str) -> bool:
        """Whether a Slurm node of any cluster has *kube_node*."""
        return self._members.owner(kube_node) is not None

    def former(self, kube_node: str) -> list[str]:
        """Return the Slurm nodes of this cluster whose lock is on *kube_node* as the bus has it."""
        return [node for node in sorted(self.views.locks.keys()) if self.kube_node(node) == kube_node]

    def is_responsible(self, kube_node: Node) -> bool:
        """Whether a Node that no Slurm node has is this cluster's to look after: it is exactly one's."""
        clusters = {self.views.cluster, *(view.cluster for view in self._others)}
        named = kube_node.metadata.labels.get(LABEL_CLUSTER, "")
        return self.views.cluster == (named if named in clusters else min(clusters))

    def successor(self, node: str, kube_node: str) -> str:
        """Return who has *kube_node* by now, as ``cluster/node``; nothing where that is *node*, or none."""
        owner = self._members.owner(kube_node)
        if owner is None or owner == (self.views.cluster, node):
            return ""
        return f"{owner.cluster}/{owner.node}"

    def nodes(self) -> set[str]:
        """Return every Slurm node that has, or may yet have, a lock."""
        return {*self.views.kube_pods.keys(), *self.views.locks.keys()}

    def is_known(self, node: str) -> bool:
        """Whether *node* is one of `nodes`; asked with each question."""
        return self.views.kube_pods.get(node) is not None or self.views.locks.get(node) is not None

    def seen(self, node: str, lock: NodeLock, known: Seen) -> Seen:
        """Return *known*, which holds what is not on the bus, with all that is."""
        holders = {holder.job for holder in lock.holders}
        jobs = self._jobs.on(node) | holders | {ask.job for ask in known.requests} | known.released.keys()
        slurm = self.views.slurm_nodes.get(node)
        lists = _answered(self.views.statistics.entry(subjects.STATISTICS_KEY))
        signs = (self._jobs.newest, self.views.slurm_nodes.stored(node), lists)
        return Seen(
            lock=lock,
            now=known.now,
            event=self.views.locks.event(node),
            requests=known.requests,
            released=known.released,
            jobs={job: found for job in jobs if (found := self._jobs.seen(job, node)) is not None},
            placeholders={job: self._has_pod(job, node) for job in jobs if job in self._uids},
            # A node that its NodeSet has and Slurm does not show is unknown, and not idle.
            is_node_busy=slurm.is_busy if slurm is not None else self.views.kube_pods.get(node) is not None,
            drained_for=self._drained_for(node),
            observed=max((sign for sign in signs if sign is not None), default=None),
            idle_since=known.idle_since,
            way=known.way,
            clear_since=known.clear_since,
        )

    def job_by_uid(self, pods: Iterable[Pod]) -> dict[str, int | None]:
        """Return the placeholder job of each of *pods* that Slurm places; None: it has none now."""
        found = ((pod.metadata.uid, self.views.placements.get(pod.metadata.uid)) for pod in pods)
        return {uid: self._job_of(placement) for uid, placement in found if placement is not None}

    def submitted(
        self, placed: Mapping[str, int | None], jobs: Collection[int]
    ) -> dict[int, datetime | None]:
        """Return when Slurm took each of *jobs*, where that is known.

        Args:
            placed: What `job_by_uid` returned.
            jobs: Some of those.
        """
        found: dict[int, datetime | None] = dict.fromkeys(jobs)
        for uid, job in placed.items():
            placement = self.views.placements.get(uid)
            whole = None if placement is None else self._whole(placement)
            if job in found and whole is not None:
                found[job] = whole.submitted
        return found

    def returning(self, pods: Iterable[Pod]) -> set[str]:
        """Return the uids of those of *pods* whose job slurmctld has lost, and whose next one waits."""
        found = set[str]()
        for pod in pods:
            own = self.views.placements.get(pod.metadata.uid)
            placement = None if own is None else self._whole(own)
            if placement is not None and placement.lost is not None and placement.phase == "released":
                found.add(pod.metadata.uid)
        return found

    def job_changes(self) -> AsyncIterator[str]:
        """Return the nodes that changes of jobs concern."""
        return self._jobs.follow()

    async def drain_changes(self) -> AsyncIterator[str]:
        """Yield the nodes that failed locks have drained for other Pods than before."""
        known: dict[str, tuple[str, ...]] = {}
        async for node in self.views.slurm_nodes.changes():
            before, after = known.pop(node, ()), self._drained_for(node)
            if after:
                known[node] = after
            if after != before:
                yield node

    async def placement_changes(self) -> AsyncIterator[str]:
        """Yield the nodes that changes of placements concern."""
        node_by_uid: dict[str, str] = {}
        async for uid in self._placements:
            self._take(uid)
            placement = self.views.placements.get(uid)
            after = placement.node if placement else ""
            for node in {node_by_uid.pop(uid, ""), after} - {""}:
                yield node
            if after:
                node_by_uid[uid] = after

    def _drained_for(self, node: str) -> tuple[str, ...]:
        return drained_for(self.views.slurm_nodes.get(node), self.views.locks.get(node))

    def _take(self, uid: str) -> None:
        """Take the placement of *uid* over into the index by job, as it is now."""
        before = self._job.pop(uid, None)
        if before is not None:
            self._uids[before].discard(uid)
            if not self._uids[before]:
                del self._uids[before]
        placement = self.views.placements.get(uid)
        if placement is not None and placement.job is not None:
            self._job[uid] = placement.job
            self._uids.setdefault(placement.job, set()).add(uid)

    def _whole(self, placement: PlacementState) -> PlacementState | None:
        """Return what tells of the job of *placement*: of a gang's member that is the gang's."""
        return self.views.placements.get(placement.gang) if placement.gang else placement

    def _job_of(self, placement: PlacementState) -> int | None:
        """Return the job of *placement*; None where slurmctld has lost it: its number may be another's.

        What a gang's job is stands with the gang first, and with its members a moment later.
        """
        whole, number = self._whole(placement), placement.job
        if whole is None or number is None:
            return number
        if whole.job != number:
            return None
        job = self.views.slurm_jobs.get(str(number))
        moments = {whole.submitted, None if job is None else job.submitted} - {None}
        is_lost = whole.lost is not None and whole.phase in _OLD_JOB
        return None if is_lost or len(moments) > 1 else number

    def _has_pod(self, job: int, node: str) -> bool:
        """Whether a Pod of *job* may be on *node*, also one that has lost it: the lock stays for that one."""
        found = (self.views.placements.get(uid) for uid in self._uids.get(job, ()))
        return any(
            placement.is_pod_present and placement.node == node and placement.phase in _BOUND
            for placement in found
            if placement is not None
        )


def _answered(statistics: Entry[SlurmStatisticsState] | None) -> datetime | None:
    """Return when Slurm answered for all its nodes and all its jobs, on our clock; None: not known.

    The moments that its syncer tells are of its own clock: how far they are apart is what can be relied upon.
    """
    if statistics is None:
        return None
    state = statistics.value
    if state.nodes_answered is None or state.jobs_answered is None:
        return None
    lists = state.nodes_answered, state.jobs_answered
    return statistics.stored - (max(state.changed, *lists) - min(lists))
