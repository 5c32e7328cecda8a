"""A look at one gang: its Pods, its job, and the Nodes that it has.

What must stay true: a member is only gone when the API server itself has said so.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Final

import msgspec
from anyio.lowlevel import checkpoint
from msgspec.structs import replace

from sunk_events.placements import PlacementState
from sunk_kube.pods import Pod
from sunk_kube.wellknown import ANNOTATION_JOB
from sunk_pod_scheduler.adapters.ports import JobPort, PodPort, WorkloadPort
from sunk_pod_scheduler.controller.context import Views
from sunk_pod_scheduler.controller.mailbox import Mailbox
from sunk_pod_scheduler.controller.node_takers import NodeTakers
from sunk_pod_scheduler.controller.placement_index import PlacementIndex
from sunk_pod_scheduler.gang_controller.gang_index import GangIndex
from sunk_pod_scheduler.gangs.job_shape import needs_by_node
from sunk_pod_scheduler.gangs.model import GangSeen, MemberSeen, Size, on_its_node
from sunk_pod_scheduler.gangs.node_lists import NodeLists
from sunk_pod_scheduler.gangs.ownership import newest, owner
from sunk_pod_scheduler.gangs.seats import count_done
from sunk_pod_scheduler.placement import lost_jobs, marks
from sunk_pod_scheduler.placement.gang_membership import (
    GangMembership,
    gang_options,
    membership,
    order,
    published_rank,
    published_size,
)
from sunk_pod_scheduler.placement.heartbeat import are_many
from sunk_pod_scheduler.placement.marks import Claim
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen, pod_seen
from sunk_pod_scheduler.placement.node_filter import Holders, host_ports, problem, wish, without_jobs
from sunk_pod_scheduler.placement.ownership import believed
from sunk_pod_scheduler.podspec.annotations import JobOptions
from sunk_pod_scheduler.podspec.reading_cost import SLICE, in_reading_order, reading_cost
from sunk_pod_scheduler.podspec.validation import Rules, ValidatedPod, validate
from sunk_runtime.clock import now
from sunk_runtime.views import StateView

_NO_SWITCH: Final = "none"
"""Stands for a label that a Node does not have, as in topology.conf."""


class _Aids(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at a gang asks for again and again, made once."""

    seats: Mapping[str, str]
    """The Slurm node of each member's seat, by uid."""
    holders: Holders
    nodes: Callable[[], Mapping[str, str]]
    """The Slurm node of each Node."""
    without_jobs: Collection[str]
    """Slurm nodes that have Pods whose jobs slurmctld has lost."""


class GangSnapshotter:
    """Looks at gangs through the views of one cluster."""

    def __init__(
        self,
        *,
        pods: PodPort,
        jobs: JobPort,
        placements: StateView[PlacementState],
        takers: NodeTakers,
        views: Views,
        mailbox: Mailbox,
        workloads: WorkloadPort,
        rules: Rules,
        key: bytes,
        topology_labels: Sequence[str] = (),
    ) -> None:
        self._pods = pods
        self._jobs = jobs
        self._placements = placements
        self._placement_index = PlacementIndex(placements)
        self._takers = takers
        self._views = views
        self._mailbox = mailbox
        self._workloads = workloads
        self._rules = rules
        self._key = key
        self._labels = topology_labels
        self.index: Final = GangIndex(placements, key)

    async def look(self, gang: str, *, is_again: bool = False) -> tuple[GangSeen, Mapping[str, Pod]]:
        """Return all that is known of *gang* now, from a fresh look at its job, and its Pods by uid."""
        self._pods.require_complete()
        self._placements.require_complete()
        record = self._placements.get(gang)
        pods = await self._found(gang, record)
        aids = self._aids(record)
        members, lists = dict[str, MemberSeen](), NodeLists()
        done = 0
        for uid, pod in in_reading_order(pods):  # The first have the room for lists of nodes.
            done += 1 if self.index.as_before(pod) else reading_cost(pod)
            members[uid] = lists.shared(self._member(gang, pod, aids))
            if done >= SLICE:
                await checkpoint()
                done = 0
        await checkpoint()
        members = dict(sorted(members.items(), key=lambda one: one[1].place))
        stored, claim = record, newest(GangSeen(uid=gang, members=members))
        is_bound = any(one.is_on_node and one.pod.claim == claim for one in members.values())
        record = believed(stored, claim, is_bound=is_bound)
        is_overtaken = record is not stored
        if not is_again and self._learn_claimants(gang, record, claim, pods):
            return await self.look(gang, is_again=True)
        if is_overtaken:  # The Pods remember what the bus has lost: where they are, their Nodes tell.
            members = {uid: on_its_node(one, aids.nodes()) for uid, one in members.items()}
        given_away = await self._takers.find(record, needs_by_node(record, members))  # Before the look.
        job = await self._job(GangSeen(uid=gang, members=members, placement=record))
        nodes = job.nodes if isinstance(job, JobSeen) else ()
        is_unbound = any(one.is_well and not one.pod.kube_node for one in members.values())
        announced_on = self._mailbox.announced_on(gang, record.job) if record else ""
        has_begun = bool(announced_on) or (record is not None and record.phase in {"started", "bound"})
        seen = GangSeen(
            uid=gang,
            members=members,
            placement=record,
            is_overtaken=is_overtaken,
            # A running member has a placement at all times, be it an older one.
            seats={} if is_overtaken else self._seats(gang, record),
            job=job,
            announced_on=announced_on,
            ungranted=self._views.locks.ungranted(gang, job, has_begun=has_begun) if is_unbound else (),
            has_old_number=lost_jobs.has_old_number(job, record, self._placement_index.of_number, now()),
            given_away=given_away,
            is_release_requested=record is not None
            and self._mailbox.is_release_requested(
                gang, record.job, is_alive=isinstance(job, JobSeen) and job.is_alive
            ),
            heartbeat=self._mailbox.heartbeat(gang, record.job) if record else "",
            listening=self._mailbox.since,
            are_many_silent=bool(record and record.silent) and are_many(self._placements.values()),
            kube_nodes={node: found for node in nodes if (found := self._kube_node(node))},
            switches=self._switches(nodes),
        )
        return await self._named(seen, pods), pods

    def _learn_claimants(
        self, gang: str, record: PlacementState | None, claim: Claim | None, pods: Mapping[str, Pod]
    ) -> bool:
        """Whether unknown Pods claim the gang's job: a leader that begins knows few."""
        seats = () if record is None or record.roster is None else record.roster.members
        number = record.job if record is not None else None if claim is None else claim.job
        if number is None or (record is not None and all(seat.uid in pods for seat in seats)):
            return False
        known = self.index.uids(gang)
        claimants = [*self._pods.claiming(number, gang), *(() if record else self._pods.left(number, gang))]
        untold = [one for one in claimants if one.metadata.uid not in known and self.index.belongs(gang, one)]
        for one in untold:
            self.index.know(gang, one.metadata.uid)
        return any(one.metadata.uid not in pods for one in untold)

    async def _found(self, gang: str, record: PlacementState | None) -> dict[str, Pod]:
        """Return the Pods of the gang: those with a seat are asked for, others are as watched."""
        seated = () if record is None or record.roster is None else record.roster.members
        names = {member.uid: member.pod for member in seated}
        namespace = record.namespace if record else ""
        found: dict[str, Pod] = {}
        known = [*names, *self.index.uids(gang).difference(names)]
        for number, uid in enumerate(known):
            if number % SLICE == SLICE - 1:
                await checkpoint()
            name = names.get(uid, "")
            pod = await self._pods.find(uid, namespace if name else "", name)
            if pod is None:
                self.index.leave(uid)
            elif uid in names or self.index.belongs(gang, pod):
                self.index.know(gang, uid)
                found[uid] = pod
            else:
                self.index.leave(uid)
        if not found and record is None:
            self.index.forget(gang)
        return found

    def _seats(self, gang: str, record: PlacementState | None) -> dict[str, PlacementState]:
        members = () if record is None or record.roster is None else record.roster.members
        uids = {member.uid for member in members} | self.index.uids(gang)
        if record is None or record.phase in {"refused", "submitted"}:  # Few do: others may be left over.
            uids |= {state.uid for state in self._placements.values() if state.gang == gang}
        seats = {uid: self._placements.get(uid) for uid in uids}
        return {uid: state for uid, state in seats.items() if state is not None and state.gang == gang}

    def _aids(self, record: PlacementState | None) -> _Aids:
        roster = None if record is None else record.roster
        return _Aids(
            seats={} if roster is None else {member.uid: member.node for member in roster.members},
            holders=cache(self._pods.holders),
            # A replacement in a gang that has lost its job comes to Pods of that gang.
            without_jobs=()
            if record is not None and record.lost is not None
            else self._placement_index.nodes_without_jobs(),
            nodes=cache(lambda: {state.kube_node: state.pod for state in self._views.kube_pods.values()}),
        )

    def _member(self, gang: str, pod: Pod, aids: _Aids) -> MemberSeen:
        found = self.index.as_before(pod) or self._member_now(gang, pod)
        self.index.remember(pod, found)
        if pod.spec.node_name and not aids.seats.get(pod.metadata.uid):
            return on_its_node(found, aids.nodes())
        why = self._problem(pod, found.pod.requested, aids)
        return replace(found, node_problem=why) if why else found

    def _member_now(self, gang: str, pod: Pod) -> MemberSeen:
        meta = pod.metadata
        found, problems = gang_options(meta.annotations)
        wanted = validate(pod, self._rules)
        shown = pod_seen(pod, self._key, self._rules, wanted)
        claim = marks.read_claim(self._key, gang, meta.annotations.get(ANNOTATION_JOB, ""))
        related = membership(pod)
        return MemberSeen(
            uid=meta.uid,
            pod=replace(shown, claim=claim, problems=(*shown.problems, *problems)),
            index="" if related is None else related.index,
            terms=found,
            wanted=wanted if isinstance(wanted, ValidatedPod) and not problems else None,
            wish=wish(pod),
            host_ports=host_ports(pod),
            owner=next((one.uid for one in meta.owner_references if one.controller), ""),
            published_size=published_size(meta.annotations),
            rank=published_rank(meta.annotations),
            place=order("" if related is None else related.index, meta.name),
        )

    def _problem(self, pod: Pod, requested: JobOptions | None, aids: _Aids) -> str:
        """Return why *pod* may not be bound to the Node of its seat, where it has one."""
        seat = aids.seats.get(pod.metadata.uid, "")
        node = self._pods.node(self._kube_node(seat)) if seat and not pod.spec.node_name else None
        if node is None:
            return ""
        return problem(pod, node, aids.holders, seat, requested) or without_jobs(seat, aids.without_jobs)

    def _kube_node(self, slurm_node: str) -> str:
        state = self._views.kube_pods.get(slurm_node)
        return "" if state is None or self._pods.node(state.kube_node) is None else state.kube_node

    def _switches(self, nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for name in nodes if self._labels else ():
            node = self._pods.node(self._kube_node(name))
            if node is not None:
                labels = node.metadata.labels
                found[name] = tuple(labels.get(label) or _NO_SWITCH for label in self._labels)
        return found

    async def _job(self, seen: GangSeen) -> AnyJob:
        record, claim = seen.placement, newest(seen)
        number = record.job if record is not None else claim.job if claim is not None else None
        if number is None:
            return JobGone()
        whose = owner(seen)
        job = await self._jobs.look(number, whose)
        if record is None or not isinstance(job, JobGone):
            return job
        runs = (one.pod for one in seen.members.values() if one.is_on_node)
        is_in_doubt = any(lost_jobs.is_in_doubt(pod, record, job) for pod in runs)
        return await self._jobs.outcome_of(job, number, whose, lost_jobs.ran(record)) if is_in_doubt else job

    async def _named(self, seen: GangSeen, pods: Mapping[str, Pod]) -> GangSeen:
        """Return *seen* with what its Pods and their workload say of it."""
        record = seen.placement
        if record is not None and record.roster is not None:
            return replace(seen, kind=record.roster.kind, namespace=record.namespace, name=record.pod)
        related = next((found for pod in pods.values() if (found := membership(pod)) is not None), None)
        if related is None:
            return seen
        size = await self._size(related, seen)
        return replace(
            seen,
            kind=related.kind,
            namespace=related.namespace,
            name=related.name,
            size=size.count,
            declared=size.declared,
            size_problem=size.problem,
        )

    async def _size(self, related: GangMembership, seen: GangSeen) -> Size:
        if not any(one.is_well for one in seen.members.values()):
            return Size()  # Nobody is left to be placed.
        free = [one for one in seen.members.values() if one.is_free]
        requested = next((one.terms.size for one in free if one.terms.size is not None), None)
        declared = requested or related.size
        size = Size(count=declared) if declared else await self._workloads.size(related)
        if size.count is None or size.declared is not None:
            return size
        done = count_done(seen.members.values(), {one.owner for one in free})
        return Size(count=max(1, size.count - done), declared=size.count)
