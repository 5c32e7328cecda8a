"""Gangs whose Pods change their minds, die early, or come back as others: through the look, as it is."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from sunk_events.jobs import SlurmJobState
from sunk_events.nodesets import KubePodState
from sunk_events.placements import Gang, GangMember, PlacementPhase, PlacementState
from sunk_kube.objects import KubeObject, ObjectMeta, OwnerReference
from sunk_kube.pods import ContainerPort, Pod, PodStatus
from sunk_kube.testing import node
from sunk_kube.wellknown import (
    ANNOTATION_GANG,
    ANNOTATION_GANG_MIN_AVAILABLE,
    ANNOTATION_GANG_RANK,
    ANNOTATION_GANG_SIZE,
    ANNOTATION_JOB,
)
from sunk_pod_scheduler.adapters.workload_client import (
    JobSet,
    JobSetSpec,
    JobSpec,
    KubeJob,
    PodGroup,
    PodGroupSpec,
    ReplicatedJob,
    WorkloadClient,
)
from sunk_pod_scheduler.controller.binder import Binder
from sunk_pod_scheduler.controller.bus_jobs import BusJobs
from sunk_pod_scheduler.controller.context import Context, Views
from sunk_pod_scheduler.controller.mailbox import Mailbox
from sunk_pod_scheduler.controller.node_locks import NodeLocks
from sunk_pod_scheduler.controller.node_takers import NodeTakers
from sunk_pod_scheduler.controller.sweeper import Sweeper
from sunk_pod_scheduler.gang_controller.dispatcher import GangDispatcher
from sunk_pod_scheduler.gang_controller.snapshotter import GangSnapshotter
from sunk_pod_scheduler.gangs.decide import decide_gang
from sunk_pod_scheduler.gangs.job_description import describe_gang
from sunk_pod_scheduler.gangs.job_shape import shape
from sunk_pod_scheduler.gangs.member_states import member_states_behind
from sunk_pod_scheduler.gangs.model import (
    BindMembers,
    GangAction,
    GangSeen,
    MemberSeen,
    Notify,
    Size,
    SubmitGang,
    SyncMemberStates,
)
from sunk_pod_scheduler.gangs.ranks import distinct, fitted, seated
from sunk_pod_scheduler.placement import marks
from sunk_pod_scheduler.placement.actions import GiveUp, Record, ReportLoss, Wait
from sunk_pod_scheduler.placement.gang_membership import (
    ANNOTATION_COMPLETION_INDEX,
    LABEL_POD_GROUP,
    GangMembership,
    GangOptions,
    Kind,
    gang_options,
    membership,
)
from sunk_pod_scheduler.placement.job_description import Placeholder
from sunk_pod_scheduler.placement.limits import Limits
from sunk_pod_scheduler.placement.marks import Claim
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen
from sunk_pod_scheduler.placement.node_filter import NodeChoice
from sunk_pod_scheduler.placement.ownership import Owner
from sunk_pod_scheduler.podspec.annotations import JobOptions
from sunk_pod_scheduler.podspec.namespace_policy import Identity
from sunk_pod_scheduler.podspec.reading_cost import ANEW
from sunk_pod_scheduler.podspec.validation import Rules, ValidatedPod, validate
from sunk_pod_scheduler.testing.builders import JOB, KEY, T0, job, manifest, placement, pod
from sunk_pod_scheduler.testing.memory_pods import MemoryPods
from sunk_runtime.changes import Changes
from sunk_runtime.errors import LostLeadershipError

pytestmark = pytest.mark.anyio

WANTED = ValidatedPod(cpus=1, memory_mib=100, identity=Identity(1, 1))
LATER = T0 + timedelta(hours=1)


class Held:
    """What a view shows, without a bus."""

    is_complete = True
    undecodable: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def get(self, key: str) -> Any:  # noqa: ANN401 - as the view of any state
        return self.found.get(key)

    def values(self) -> list[Any]:
        return [*self.found.values()]

    def changes(self) -> Changes:
        return Changes(self.found)

    def require_complete(self) -> None:
        """Return: all is known."""


class NoJobs:
    async def look(self, number: int, _owner: Owner) -> AnyJob:
        assert number
        return JobGone()


class Runs(NoJobs):
    """Every job runs, and is whose he says."""

    async def look(self, number: int, _owner: Owner) -> AnyJob:
        return replace(job(nodes=("n0", "n1")), job=number)


class Sized:
    """Every workload is to have so many Pods."""

    def __init__(self, count: int) -> None:
        self.count = count

    async def is_gang(self, membership: GangMembership) -> bool:
        return bool(membership.name)

    async def size(self, membership: GangMembership) -> Size:
        assert membership.name
        return Size(count=self.count)


def grouped(
    number: int, group: str = "ring", *, owner: str = "", annotations: Mapping[str, str] | None = None
) -> Pod:
    found = manifest(uid=f"u{number}", name=f"p{number}", annotations=annotations)
    owners = (OwnerReference(api_version="batch/v1", kind="Job", name=owner, uid=owner, controller=True),)
    meta = replace(found.metadata, labels={LABEL_POD_GROUP: group}, owner_references=owners if owner else ())
    return replace(found, metadata=meta)


def snapshotter(
    pods: MemoryPods,
    placements: Held,
    size: int,
    *,
    slurm: NoJobs | None = None,
    kube_pods: Held | None = None,
) -> GangSnapshotter:
    unlocked: Any = Held()
    locks = NodeLocks(unlocked)
    views: Any = Views(kube_pods=kube_pods or Held(), slurm_nodes=Held(), locks=locks)  # type: ignore[arg-type]
    jobs: Any = slurm or NoJobs()
    stored: Any = placements
    unused: Any = Held()
    return GangSnapshotter(
        pods=pods,
        jobs=jobs,
        placements=stored,
        takers=NodeTakers(BusJobs(unused, unused), unused, unused),
        views=views,
        mailbox=Mailbox(),
        workloads=Sized(size),
        rules=Rules(),
        key=KEY,
    )


def gang_of(found: Pod) -> str:
    related = membership(found)
    assert related is not None
    return related.id


async def test_a_pod_that_was_taken_out_of_its_gang_or_put_into_another_is_not_in_the_first() -> None:
    pods = MemoryPods(*(grouped(number) for number in range(3)))
    placements = Held()
    eyes, ring = snapshotter(pods, placements, 3), gang_of(pods.pods["u0"])
    for uid in pods.uids():
        eyes.index.know(ring, uid)
    first, second = pods.pods["u0"], pods.pods["u1"]
    pods.put(replace(first, metadata=replace(first.metadata, annotations={ANNOTATION_GANG: "none"})))
    pods.put(replace(second, metadata=replace(second.metadata, labels={LABEL_POD_GROUP: "other"})))

    seen, _ = await eyes.look(ring)

    assert set(seen.members) == {"u2"}


def claiming(number: int, attempt: int, job: int) -> Pod:
    """Return a member of a gang that runs."""
    found = grouped(number)
    claim = {ANNOTATION_JOB: marks.claim(KEY, gang_of(found), attempt, job)}
    found = replace(found, metadata=replace(found.metadata, annotations=claim))
    return replace(found, spec=replace(found.spec, node_name=f"k{number}"), status=PodStatus(phase="Running"))


def of_nodeset(number: int) -> KubePodState:
    """Return the Pod whose slurmd is a Slurm node."""
    return KubePodState(
        changed=T0,
        pod=f"n{number}",
        nodeset="set",
        namespace="default",
        kube_node=f"k{number}",
        phase="running",
    )


def seats(node: str) -> Gang:
    """Return two members, in another order than they come now; *node*: on such nodes."""
    found = (GangMember(uid=f"u{rank}", pod=f"p{rank}", node=node and f"{node}{rank}") for rank in (1, 0))
    return Gang(kind="PodGroup", members=tuple(found))


OLDER = [
    pytest.param(replace(placement("bound", job=101), roster=seats("n")), id="of its job before"),
    pytest.param(
        replace(placement("submitted", job=None, attempt=1, digest=""), roster=seats("")),
        id="of before its intent",
    ),
    pytest.param(
        replace(placement("submitted", job=None, attempt=1), roster=seats("")), id="of before its number"
    ),
]


@pytest.mark.parametrize("record", OLDER)
async def test_a_gang_remembers_its_later_job_where_the_bus_went_back(record: PlacementState) -> None:
    pods, placements, kube_pods = MemoryPods(claiming(0, 1, 102), claiming(1, 1, 102)), Held(), Held()
    ring = gang_of(pods.pods["u0"])
    placements.found[ring] = replace(record, uid=ring)
    placements.found["u0"] = replace(record, uid="u0", gang=ring, roster=None)
    kube_pods.found.update({f"n{number}": of_nodeset(number) for number in range(2)})
    eyes = snapshotter(pods, placements, 2, slurm=Runs(), kube_pods=kube_pods)
    for uid in pods.uids():
        eyes.index.know(ring, uid)

    seen, _ = await eyes.look(ring)
    action = decide_gang(seen, T0, Limits())

    assert isinstance(action, Record)
    assert (action.state.phase, action.state.attempt, action.state.job) == ("submitted", 1, 102)
    assert action.state.roster is not None
    assert [(one.uid, one.node) for one in action.state.roster.members] == [("u0", "n0"), ("u1", "n1")]


async def test_a_leader_that_begins_knows_all_who_claim_a_gangs_job_before_it_takes_the_gang_over() -> None:
    pods, placements = MemoryPods(claiming(0, 1, 102), claiming(1, 1, 102), claiming(2, 0, 101)), Held()
    ring = gang_of(pods.pods["u0"])
    eyes = snapshotter(pods, placements, 2, slurm=Runs())
    eyes.index.know(ring, "u0")

    seen, _ = await eyes.look(ring)
    assert {*seen.members} == {"u0", "u1"}

    done = replace(claiming(1, 1, 102), status=PodStatus(phase="Succeeded"))
    pods.put(done)  # What it has done counts, where only Pods tell of the gang.
    eyes = snapshotter(pods, placements, 2, slurm=Runs())
    eyes.index.know(ring, "u0")
    seen, _ = await eyes.look(ring)
    assert {uid: one.has_succeeded for uid, one in seen.members.items()} == {"u0": False, "u1": True}
    pods.put(claiming(1, 1, 102))

    roster = Gang(kind="PodGroup", members=(GangMember(uid="dead", pod="p9", node="n0"),))
    placements.found[ring] = replace(placement("bound", job=102, attempt=1), uid=ring, roster=roster)
    eyes = snapshotter(pods, placements, 2, slurm=Runs())
    eyes.index.learn()
    seen, _ = await eyes.look(ring)
    assert {*seen.members} == {"u0", "u1"}


@pytest.mark.parametrize("record", OLDER)
async def test_the_job_of_a_gang_that_runs_is_no_stray_where_the_bus_went_back(
    record: PlacementState,
) -> None:
    pods, placements, jobs = MemoryPods(claiming(0, 1, 102)), Held(), Held()
    ring = gang_of(pods.pods["u0"])
    placements.found[ring] = replace(record, uid=ring)
    extra = marks.extra_text(KEY, ring, "default/ring", 1, 0)
    jobs.found["102"] = SlurmJobState(changed=T0, job=102, state="RUNNING", extra=extra)
    nothing: Any = Held()  # It would be asked to cancel the job.
    stored: Any = placements
    slurm_jobs: Any = jobs
    sweeper = Sweeper(
        pods=pods, jobs=nothing, placements=stored, slurm_jobs=slurm_jobs, key=KEY, check=lambda: None
    )

    assert await sweeper.sweep("102") is None


async def test_a_pod_that_is_placed_alone_is_in_no_gang_even_where_only_its_claim_tells() -> None:
    stored, claimed, free = grouped(0), grouped(1), grouped(2)
    claim = {"sunk.coreweave.com/job": marks.claim(KEY, "u1", 0, 9)}
    claimed = replace(claimed, metadata=replace(claimed.metadata, annotations=claim))
    placements = Held()
    placements.found["u0"] = replace(placement("submitted"), uid="u0")
    eyes, ring = snapshotter(MemoryPods(stored, claimed, free), placements, 3), gang_of(free)
    for uid in ("u0", "u1", "u2"):
        eyes.index.know(ring, uid)

    seen, _ = await eyes.look(ring)

    assert set(seen.members) == {"u2"}


async def test_who_has_a_seat_keeps_it_though_the_pod_says_otherwise_and_no_other_gang_can_hold_it() -> None:
    pods, placements = MemoryPods(grouped(0)), Held()
    eyes, ring = snapshotter(pods, placements, 1), gang_of(pods.pods["u0"])
    eyes.index.know(ring, "u0")

    assert eyes.index.hold(ring, ["u0"])
    assert eyes.index.seat_of("u0") == ring
    assert not eyes.index.hold("gang-other", ["u0"])
    eyes.index.let_go(ring)
    assert eyes.index.seat_of("u0") == ""
    roster = Gang(kind="PodGroup", members=(GangMember(uid="u0", pod="p0"),))
    placements.found[ring] = replace(placement("submitted", job=None), uid=ring, roster=roster)
    assert eyes.index.seat_of("u0") == ring

    after_a_restart = snapshotter(pods, placements, 1)
    after_a_restart.index.learn()
    assert after_a_restart.index.seat_of("u0") == ring


async def test_what_was_published_as_size_is_no_wish_of_those_who_come_after() -> None:
    done = grouped(0, owner="j", annotations={ANNOTATION_GANG_SIZE: "4", ANNOTATION_GANG_RANK: "0"})
    done = replace(done, status=PodStatus(phase="Succeeded"), spec=replace(done.spec, node_name="n"))
    pods = MemoryPods(done, *(grouped(number, owner="j") for number in (1, 2, 3)))
    eyes, ring = snapshotter(pods, Held(), 4), gang_of(done)
    for uid in pods.uids():
        eyes.index.know(ring, uid)

    seen, _ = await eyes.look(ring)
    action = decide_gang(seen, T0, Limits())

    assert (seen.size, seen.declared) == (3, 4)
    assert isinstance(action, SubmitGang)
    assert [member.uid for member in action.gang.members] == ["u1", "u2", "u3"]


def test_a_wish_survives_that_another_size_was_written_over_it() -> None:
    both = {ANNOTATION_GANG_SIZE: "6", ANNOTATION_GANG_RANK: "2"}

    assert gang_options({ANNOTATION_GANG_SIZE: "8"})[0].size == 8
    assert gang_options({**both, "sunk.coreweave.com/gang-asked-size": "8"})[0].size == 8
    assert gang_options(both)[0].size is None


SIX = tuple(f"n{number}" for number in range(6))
ELASTIC = {ANNOTATION_GANG_SIZE: "8", ANNOTATION_GANG_MIN_AVAILABLE: "4"}


class RunsOnSix(NoJobs):
    """One job runs, on six nodes; all before it have ended."""

    def __init__(self, number: int) -> None:
        self._number = number

    async def look(self, number: int, _owner: Owner) -> AnyJob:
        if number != self._number:
            return JobGone(has_ended=True)
        return replace(job(nodes=SIX, is_marked_started=True), job=number)


class OneLeader:
    """Leads while one job is submitted for the gang of some Pods: what was stored before is lost."""

    def __init__(self, pods: MemoryPods, job: int) -> None:
        self._pods, self._job, self._placements, kube_pods = pods, job, Held(), Held()
        kube_pods.found.update({state.pod: state for state in map(of_nodeset, range(6))})
        # By the PodGroup, four are enough.
        self._eyes = snapshotter(pods, self._placements, 4, slurm=RunsOnSix(job), kube_pods=kube_pods)
        self._gang = gang_of(pods.pods["u0"])

    async def look(self) -> tuple[GangSeen, Mapping[str, Pod]]:
        for uid in self._pods.uids():
            self._eyes.index.know(self._gang, uid)
        return await self._eyes.look(self._gang)

    async def lose_its_lease_before_it_binds(self, submitted: SubmitGang) -> None:
        """Have the job run, write what members are to know, and bind none."""
        roster = seated(fitted(submitted.gang, SIX), SIX)
        record = replace(placement("started", job=self._job, attempt=submitted.attempt), roster=roster)
        self._placements.found[self._gang] = replace(record, uid=self._gang)
        seen, pods = await self.look()
        synced = decide_gang(seen, T0, Limits())
        assert isinstance(synced, SyncMemberStates)
        self._placements.found.update({state.uid: state for state in synced.states})
        seen, pods = await self.look()
        action = decide_gang(seen, T0, Limits())
        assert isinstance(action, BindMembers)
        with pytest.raises(LostLeadershipError):
            await Binder(self._context(), _no_store).bind_members(action, seen, pods)

    def _context(self) -> Context:
        unused: Any = None
        return Context(
            event_source=unused,
            pods=self._pods,
            jobs=unused,
            placements=unused,
            views=unused,
            rules=unused,
            placeholder=Placeholder(script="", hooks_url="", key=KEY),
            refusals=unused,
            check=_leads_no_more,
        )


def _leads_no_more() -> None:
    raise LostLeadershipError("the lease may have ended")


async def _no_store(state: PlacementState) -> None:
    raise AssertionError(f"{state.uid} is stored")


async def test_an_elastic_gang_of_eight_that_was_given_six_nodes_asks_for_eight_again() -> None:
    pods = MemoryPods(
        *(grouped(number, annotations=ELASTIC) for number in range(8)),
        nodes=tuple(node(f"k{number}") for number in range(6)),
    )
    others = [pods.pods["u6"], pods.pods["u7"]]
    for number, now in ((101, T0), (102, LATER)):  # Both times Slurm has six nodes, and no Pod gets on one.
        leader = OneLeader(pods, number)
        seen, _ = await leader.look()
        submitted = decide_gang(seen, now, Limits())
        assert isinstance(submitted, SubmitGang)
        await leader.lose_its_lease_before_it_binds(submitted)
        for other in others:
            pods.vanish(other.metadata.uid)
    written = [one.metadata.annotations for one in pods.pods.values()]
    assert [one[ANNOTATION_GANG_SIZE] for one in written] == ["6"] * 6
    assert [one[ANNOTATION_GANG_RANK] for one in written] == ["0", "1", "2", "3", "4", "5"]

    leader = OneLeader(pods, 103)
    seen, _ = await leader.look()
    waits = decide_gang(seen, T0 + timedelta(seconds=30), Limits())
    for other in others:
        pods.put(other)
    seen, _ = await leader.look()
    submitted = decide_gang(seen, LATER, Limits())

    assert isinstance(waits, Notify)
    assert {note.text for note in waits.notes.values()} == {"PodGroup default/ring has 6 of 8 Pods"}
    assert isinstance(submitted, SubmitGang)
    made = Placeholder(script="", hooks_url="", key=KEY)
    asked = describe_gang(seen, submitted.gang, NodeChoice(), submitted.attempt, made, wanted=WANTED)
    assert (asked.minimum_nodes, asked.maximum_nodes) == (4, 8)


def member(
    index: int, *, kube_node: str = "", wanted: ValidatedPod = WANTED, terms: GangOptions | None = None
) -> MemberSeen:
    return MemberSeen(
        uid=f"u{index}",
        pod=replace(pod(kube_node=kube_node), name=f"p{index}"),
        index=str(index),
        terms=terms or GangOptions(),
        wanted=wanted,
    )


def look(members: Mapping[str, MemberSeen], record: PlacementState | None, **more: Any) -> GangSeen:  # noqa: ANN401
    nodes = {f"n{i}": f"k{i}" for i in range(8)}
    found = GangSeen(
        uid="gang-1",
        kind="Job",
        namespace="default",
        name="g",
        members=members,
        placement=record,
        kube_nodes=nodes,
        **more,
    )
    aligned = member_states_behind(found, LATER)
    return replace(found, seats={state.uid: state for state in aligned.states} if aligned else {})


def stored(count: int, **more: Any) -> PlacementState:  # noqa: ANN401
    seats = tuple(GangMember(uid=f"u{i}", pod=f"p{i}", index=str(i), node=f"n{i}") for i in range(count))
    roster = Gang(kind="Job", members=seats, cpus=1, memory_mib=100)
    return replace(placement("bound"), uid="gang-1", pod="g", roster=replace(roster, **more))


def test_an_elastic_gang_with_a_vacant_seat_gets_another_job_when_slurm_has_lost_its_own() -> None:
    record = stored(4, min_available=2)
    assert record.roster is not None
    seats = (*record.roster.members[:3], replace(record.roster.members[3], vacant=T0, node=""))
    lost = replace(
        record,
        phase="submitted",
        job=None,
        token_sha256="",
        attempt=1,
        lost=T0,
        changed=T0,
        roster=replace(record.roster, members=seats),
    )
    members = {f"u{i}": member(i, kube_node=f"k{i}") for i in range(3)}

    assert isinstance(decide_gang(look(members, lost), T0 + timedelta(minutes=5), Limits()), SubmitGang)
    alone = decide_gang(look({"u0": members["u0"]}, lost), T0 + timedelta(minutes=5), Limits())
    assert isinstance(alone, Record)
    assert alone.state.phase == "ending"


def test_a_gang_that_is_lost_gives_a_job_with_an_old_number_up_and_keeps_its_seats() -> None:
    record = replace(stored(2), phase="submitted", attempt=1, lost=T0, changed=T0)
    members = {f"u{i}": member(i, kube_node=f"k{i}") for i in range(2)}
    held = job("PENDING", is_held=True, nodes=())
    action = decide_gang(replace(look(members, record, job=held), has_old_number=True), T0, Limits())

    assert isinstance(action, GiveUp)
    assert (action.job, action.state.job, action.state.attempt) == (JOB, None, 2)
    assert action.state.roster == record.roster


def test_an_elastic_gang_asks_for_no_nodes_of_its_empty_seats_when_slurm_has_lost_its_job() -> None:
    record = stored(4, min_available=2)
    assert record.roster is not None
    first, second, third, fourth = record.roster.members
    seats = (first, replace(second, vacant=T0), replace(third, vacant=T0), fourth)
    lost = replace(record, lost=T0, roster=replace(record.roster, members=seats))
    members = {f"u{i}": member(i, kube_node=f"k{i}") for i in (0, 2, 3)}
    leaving = replace(members["u2"], pod=replace(members["u2"].pod, is_terminating=True))
    vanished = JobGone(is_lost=True)
    told = decide_gang(look({**members, "u2": leaving}, lost, job=vanished), T0, Limits())
    assert isinstance(told, ReportLoss)
    found = look({**members, "u2": leaving}, told.state, job=vanished)
    action = decide_gang(found, T0 + timedelta(minutes=5), Limits())

    assert isinstance(action, Record)
    assert action.state.roster is not None
    assert [one.node for one in action.state.roster.members] == ["n0", "", "n2", "n3"]  # A Pod is on n2 yet.
    nodes = distinct(action.state.roster)
    made = Placeholder(script="", hooks_url="", key=KEY)
    again = describe_gang(found, action.state.roster, NodeChoice(required=nodes), 1, made, wanted=WANTED)
    assert (again.minimum_nodes, again.maximum_nodes, again.tasks) == (3, 3, 3)
    assert seated(fitted(action.state.roster, nodes), nodes) == action.state.roster
    gone = {uid: one for uid, one in members.items() if uid != "u2"}
    submitted = replace(action.state, job=JOB, phase="released", changed=LATER)
    runs = job(nodes=nodes, is_marked_started=True)
    steps: list[str] = []
    for _ in range(4):
        found = look(gone, submitted, job=runs, announced_on="n0")
        step = decide_gang(found, LATER, Limits())
        if not isinstance(step, (Record, ReportLoss)):
            break
        submitted = step.state
        steps.append(step.state.phase)
    assert steps[-1] == "bound"
    assert submitted.lost is None
    heir = replace(member(1), uid="u9")
    found = look({**gone, "u9": heir}, submitted, job=runs)
    assert not isinstance(decide_gang(found, LATER, Limits()), BindMembers)


def test_a_seat_without_a_node_keeps_nobody_from_anothers_seat() -> None:
    """A seat was empty when Slurm lost the gang's job: its next job has no node for that one."""
    record = stored(4, min_available=2, policy="replace")
    assert record.roster is not None
    first, second, third, fourth = record.roster.members
    members = {f"u{i}": member(i, kube_node=f"k{i}") for i in (0, 2)}
    members["u9"] = replace(member(3), uid="u9")
    seats = (first, replace(second, vacant=T0, node=""), third, replace(fourth, uid="u9"))
    found = replace(record, roster=replace(record.roster, members=seats))
    action = decide_gang(look(members, found, job=job(nodes=("n0", "n2", "n3"))), LATER, Limits())

    assert isinstance(action, BindMembers)
    assert action.kube_nodes == {"u9": "k3"}


def test_a_member_that_fails_before_all_are_bound_is_how_the_gang_ends() -> None:
    failed = member(0, kube_node="k0")
    failed = replace(failed, pod=replace(failed.pod, is_over=True, exit_code=3))
    record = replace(stored(2), phase="started")
    found = look({"u0": failed, "u1": member(1)}, record, job=job(nodes=("n0", "n1")))
    action = decide_gang(found, LATER, Limits())

    assert isinstance(action, Record)
    assert (action.state.phase, action.state.exit_code) == ("ending", 3)


@pytest.mark.parametrize("is_stored", [True, False])
def test_nobody_with_another_user_or_account_takes_a_dead_ones_seat(*, is_stored: bool) -> None:
    record = stored(2, policy="replace", shape=shape(WANTED) if is_stored else "")
    stranger = replace(member(1, wanted=replace(WANTED, requested=JobOptions(account="rich"))), uid="u9")
    other_user = replace(member(1, wanted=replace(WANTED, identity=Identity(2, 2))), uid="u8")
    kin_of_it = replace(member(1), uid="u7")
    running = JobSeen(job=7, base="RUNNING", nodes=("n0", "n1"))

    def seat(*replacements: MemberSeen) -> str:
        members = {one.uid: one for one in (member(0, kube_node="k0"), *replacements)}
        action = decide_gang(look(members, record, job=running), LATER, Limits())
        assert isinstance(action, Record)
        assert action.state.roster is not None
        return action.state.roster.members[1].uid

    assert seat(stranger, other_user) == "u1"
    assert seat(stranger, other_user, kin_of_it) == "u7"


def test_with_two_a_node_and_one_success_the_remaining_seven_form() -> None:
    two = GangOptions(members_per_node=2)
    members = {f"u{i}": member(i, terms=two) for i in range(7)}

    assert isinstance(decide_gang(look(members, None, size=7, declared=8), T0, Limits()), SubmitGang)
    refused = decide_gang(look(members, None, size=7, declared=7), T0, Limits())
    assert isinstance(refused, Notify)
    assert {note.reason for note in refused.notes.values()} == {"ValidationFailed"}


async def test_two_members_of_one_node_that_need_the_same_host_port_are_refused_in_words() -> None:
    def with_port(number: int) -> Pod:
        found = grouped(number, annotations={"sunk.coreweave.com/gang-members-per-node": "2"})
        (container,) = found.spec.containers
        ports = (ContainerPort(host_port=29500, protocol="TCP"),)
        return replace(found, spec=replace(found.spec, containers=(replace(container, ports=ports),)))

    pods = MemoryPods(with_port(0), with_port(1))
    eyes, ring = snapshotter(pods, Held(), 2), gang_of(pods.pods["u0"])
    for uid in pods.uids():
        eyes.index.know(ring, uid)
    seen, _ = await eyes.look(ring)
    action = decide_gang(seen, T0, Limits())

    assert isinstance(action, Notify)
    assert {note.reason for note in action.notes.values()} == {"ValidationFailed"}
    assert all("29500/TCP" in note.text for note in action.notes.values())


async def test_a_pod_that_did_not_change_is_not_read_anew_at_each_look() -> None:
    pods = MemoryPods(*(grouped(number) for number in range(3)))
    eyes, ring = snapshotter(pods, Held(), 4), gang_of(pods.pods["u0"])
    for uid in pods.uids():
        eyes.index.know(ring, uid)
    before, _ = await eyes.look(ring)
    pods.put(replace(pods.pods["u1"], metadata=replace(pods.pods["u1"].metadata, resource_version="2")))
    after, _ = await eyes.look(ring)

    assert [after.members[uid] is before.members[uid] for uid in ("u0", "u1", "u2")] == [True, False, True]
    assert isinstance(pods.pods["u1"].metadata, ObjectMeta)


class Arrivals:
    """Pods of one gang that come one by one, and the loop that looks at it when it is due."""

    def __init__(self, count: int) -> None:
        self.pods = MemoryPods(*(grouped(number) for number in range(count)))
        self.ring = gang_of(self.pods.pods["u0"])
        self.snapshotter = snapshotter(self.pods, Held(), count)
        placements: Any = Held()
        unused: Any = None
        self.gangs = GangDispatcher(
            single=unused,
            pods=self.pods,
            placements=placements,
            slurm_jobs=unused,
            mailbox=Mailbox(),
            executor=unused,
            snapshotter=self.snapshotter,
            workloads=Sized(count),
            limits=Limits(),
            key=KEY,
            enqueue=self.enqueue,
        )
        self.now = 0.0
        self.due = math.inf

    def enqueue(self, key: str, /, *, after_s: float = 0.0) -> None:
        assert key == self.ring
        self.due = min(self.due, self.now + after_s)


async def test_members_that_come_one_by_one_are_looked_at_a_few_times_each_however_many_they_are() -> None:
    looked = {}
    for count in (200, 2000):
        found = Arrivals(count)
        looked[count] = 0
        for uid in found.pods.uids():
            found.now += 0.002
            await found.gangs.reconcile(uid)
            if found.now >= found.due:
                found.due = math.inf
                looked[count] += found.snapshotter.index.size_of(found.ring)

    assert looked[2000] / 2000 < 10
    assert looked[200] / 200 < 10


async def test_pods_that_are_gone_or_elsewhere_leave_nothing_of_their_gang_behind() -> None:
    found = Arrivals(3)
    for uid in found.pods.uids():
        await found.gangs.reconcile(uid)
    assert found.snapshotter.index.known == 1

    found.gangs.invalidate(found.ring)  # Its job is looked at each time: there is nothing to remember.
    for uid in found.pods.uids():
        found.snapshotter.index.leave(uid)
    assert found.snapshotter.index.known == 0


async def test_a_rank_or_an_index_of_any_length_that_a_user_writes_is_none() -> None:
    written = {ANNOTATION_GANG_RANK: "1" * 5000, ANNOTATION_COMPLETION_INDEX: "1." * 100_000}
    pods = MemoryPods(grouped(0, annotations=written), grouped(1))
    eyes, ring = snapshotter(pods, Held(), 2), gang_of(pods.pods["u0"])
    eyes.index.know(ring, "u0")
    eyes.index.know(ring, "u1")

    found, _ = await eyes.look(ring)

    assert (found.members["u0"].rank, found.members["u0"].index) == (None, "")


class Answering:
    """An API server that has one object."""

    def __init__(self, found: KubeObject) -> None:
        self.found = found

    async def find(self, *_: object) -> KubeObject:
        return self.found


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (
            "Job",
            KubeJob(metadata=ObjectMeta(uid="u"), spec=JobSpec(parallelism=1 << 30, completions=1 << 30)),
        ),
        ("PodGroup", PodGroup(spec=PodGroupSpec(min_member=1 << 30))),
        ("JobSet", JobSet(spec=JobSetSpec((ReplicatedJob(replicas=1 << 30),)))),
    ],
)
async def test_a_workload_of_more_pods_than_one_job_places_is_refused_in_words_before_they_are_counted(
    kind: Kind, found: KubeObject
) -> None:
    client: Any = Answering(found)
    size = await WorkloadClient(client).size(
        GangMembership(kind=kind, namespace="default", name="big", uid="u")
    )
    member = MemberSeen(uid="0", pod=pod(), index="0", wanted=WANTED)
    forming = GangSeen(uid="gang-1", members={"0": member}, size=size.count, size_problem=size.problem)
    action = decide_gang(forming, LATER, Limits())

    assert isinstance(action, Notify)
    assert f"{kind} default/big has 1073741824 Pods, and at most 4096 can be placed together" in size.problem


def test_of_very_many_that_are_missing_only_the_first_are_named() -> None:
    member = MemberSeen(uid="0", pod=pod(), index="0", wanted=WANTED)
    found = GangSeen(uid="gang-1", kind="Job", members={"0": member}, size=1 << 60)
    action = decide_gang(found, LATER, Limits())

    assert isinstance(action, Notify)
    assert action.notes["0"].text.endswith("missing: 1, 2, 3, 4, 5, 6, 7, 8 and 1152921504606846967 more")


@pytest.mark.parametrize("index", ["", "{}"], ids=["not counted", "counted"])
def test_the_replacements_of_thousands_of_dead_members_are_found_in_one_pass(index: str) -> None:
    size = 3000
    nodes = tuple(f"gpu-{number:04d}" for number in range(size))
    seats = tuple(
        GangMember(uid=f"u{rank}", pod=f"p{rank}", index=index.format(rank), node=nodes[rank])
        for rank in range(size)
    )
    gang = Gang(kind="Job", members=seats, policy="replace", cpus=1, memory_mib=100)
    record = replace(placement("bound"), uid="gang-1", roster=gang)
    first = MemberSeen(uid="u0", pod=pod(kube_node="k"), index=index.format(0), wanted=WANTED)
    replacements = [
        MemberSeen(
            uid=f"h{rank}", pod=replace(pod(), name=f"h{rank}"), index=index.format(rank), wanted=WANTED
        )
        for rank in range(1, size)
    ]
    looks: list[str] = []

    class Counted(dict[str, MemberSeen]):
        def values(self) -> Any:  # noqa: ANN401 - as the dict's
            looks.append("")
            return super().values()

    found = GangSeen(
        uid="gang-1",
        members=Counted({one.uid: one for one in (first, *replacements)}),
        placement=record,
        job=job(nodes=nodes),
    )
    aligned = member_states_behind(found, T0)
    assert aligned is not None
    found = replace(found, seats={state.uid: state for state in aligned.states})

    action = decide_gang(found, T0, Limits())

    assert isinstance(action, Record)
    assert action.state.roster is not None
    assert [one.uid for one in action.state.roster.members] == [
        "u0",
        *(f"h{rank}" for rank in range(1, size)),
    ]
    assert len(looks) < 10


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(job("PENDING", reason="Priority"), ("submitted", 7, 3), id="its other job waits"),
        pytest.param(JobGone(), ("bound", 7, 3), id="it has no other job yet"),
        pytest.param(JobGone(is_taken=True), ("submitted", None, 4), id="its number is another's"),
    ],
)
def test_a_bucket_that_is_lost_while_a_gang_runs_without_its_job_takes_no_pod(
    found: JobSeen | JobGone, expected: tuple[str, int | None, int]
) -> None:
    claim = Claim(job=7, attempt=3, job_mark="verified")
    members = {f"u{i}": member(i, kube_node=f"k{i}") for i in range(2)}
    members = {
        uid: replace(one, node=f"n{one.index}", pod=replace(one.pod, claim=claim, is_reported_lost=True))
        for uid, one in members.items()
    }
    first = decide_gang(look(members, None, size=2, job=found), T0, Limits())
    assert isinstance(first, Record)
    assert (first.state.phase, first.state.job, first.state.attempt) == expected
    assert first.state.lost == T0

    after = decide_gang(look(members, first.state, job=found), T0, Limits())
    assert not isinstance(after, Record) or after.state.phase != "ending"


def test_a_gang_whose_job_is_missing_stays_while_nothing_tells_and_goes_where_others_were_not_lost() -> None:
    members = {f"u{i}": member(i, kube_node=f"k{i}") for i in range(2)}
    first = decide_gang(look(members, stored(2), job=JobGone()), T0, Limits())
    assert isinstance(first, ReportLoss)
    assert (first.state.phase, first.state.lost, "the Pod stays" in first.state.reason) == ("bound", T0, True)
    again = decide_gang(look(members, first.state, job=JobGone()), LATER, Limits())
    assert isinstance(again, Wait)

    told = decide_gang(look(members, first.state, job=JobGone(is_forgotten=True)), LATER, Limits())
    assert isinstance(told, ReportLoss)
    ends = decide_gang(look(members, told.state, job=JobGone(is_forgotten=True)), LATER, Limits())
    assert isinstance(ends, Record)
    assert ends.state.phase == "ending"


def remembering(count: int, terms: GangOptions | None = None) -> dict[str, MemberSeen]:
    """Return members that run, as their Pods alone tell it."""
    claim = Claim(job=JOB, attempt=3, job_mark="verified")
    members = (member(i, kube_node=f"k{i}", terms=terms) for i in range(count))
    return {
        one.uid: replace(
            one,
            node=f"n{one.index}",
            published_size=count,
            rank=int(one.index),
            pod=replace(one.pod, claim=claim),
        )
        for one in members
    }


def settled(
    members: Mapping[str, MemberSeen],
    found: AnyJob,
    **more: Any,  # noqa: ANN401 - as `look`
) -> tuple[PlacementState, tuple[GangMember, ...]]:
    """Return what is stored of a gang, of which nothing was, once there is nothing more to store."""
    record: PlacementState | None = None
    while True:
        action = decide_gang(look(members, record, job=found, announced_on="n0", **more), T0, Limits())
        if not isinstance(action, (Record, ReportLoss)) or action.state == record:
            assert record is not None
            assert record.roster is not None
            return record, record.roster.members
        record = action.state


def seat_of(index: int) -> GangMember:
    return GangMember(uid=f"u{index}", pod=f"p{index}", index=str(index), node=f"n{index}")


RUNS_ON_FOUR = job(nodes=("n0", "n1", "n2", "n3"), is_marked_started=True)


@pytest.mark.parametrize("found", [RUNS_ON_FOUR, JobGone()], ids=["its job runs", "and its job is missing"])
def test_a_lost_bucket_takes_no_gang_of_which_one_has_done_its_work(found: AnyJob) -> None:
    members = remembering(4)
    done = members["u3"]
    members["u3"] = replace(done, pod=replace(done.pod, is_over=True, exit_code=0))

    record, seats = settled(members, found, size=3, declared=4)

    assert (record.phase, record.job) == ("bound", JOB)
    assert seats == (*(seat_of(i) for i in range(3)), replace(seat_of(3), has_succeeded=True))


@pytest.mark.parametrize("dead", range(4))
@pytest.mark.parametrize("found", [RUNS_ON_FOUR, JobGone()], ids=["its job runs", "and its job is missing"])
def test_a_lost_bucket_takes_no_gang_that_may_run_with_fewer_whichever_had_died(
    found: AnyJob, dead: int
) -> None:
    members = remembering(4, GangOptions(min_available=2))
    del members[f"u{dead}"]

    record, seats = settled(members, found, size=4)

    assert (record.phase, record.job) == ("bound", JOB)
    vacant = GangMember(uid="", pod="", vacant=T0)
    assert seats == tuple(vacant if i == dead else seat_of(i) for i in range(4))
    aligned = look(members, record, job=found).seats
    assert {(uid, seat.rank) for uid, seat in aligned.items()} == {
        (f"u{i}", i) for i in range(4) if i != dead
    }


def test_a_member_that_still_leaves_its_node_when_the_bucket_is_lost_is_waited_for() -> None:
    members = remembering(4, GangOptions(min_available=2))
    members["u1"] = replace(members["u1"], pod=replace(members["u1"].pod, is_terminating=True))
    members["u2"] = replace(members["u2"], terms=GangOptions(min_available=2), rank=None)

    record, seats = settled(members, RUNS_ON_FOUR, size=4)

    assert record.phase == "bound"
    assert {(one.uid, one.vacant) for one in seats} == {("u0", None), ("u1", T0), ("u2", None), ("u3", None)}


def test_a_lost_bucket_ends_a_gang_that_lacks_a_member_and_may_not() -> None:
    members = remembering(4)
    del members["u1"]

    action = decide_gang(look(members, None, size=4, job=RUNS_ON_FOUR), T0, Limits())

    assert isinstance(action, Record)
    assert action.state.phase == "ending"


@pytest.mark.parametrize("gone", [JobGone(), JobGone(is_lost=True), JobGone(is_taken=True)])
def test_a_gang_that_waits_for_a_replacement_waits_as_long_without_its_job_and_then_gets_another(
    gone: JobGone,
) -> None:
    members = {f"u{i}": member(i, kube_node=f"k{i}") for i in range(3)}
    record = stored(4, policy="replace")

    def after(there: Mapping[str, MemberSeen], state: PlacementState, seconds: float) -> GangAction:
        return decide_gang(look(there, state, job=gone), T0 + timedelta(seconds=seconds), Limits())

    vacated = after(members, record, 0)
    assert isinstance(vacated, Record)
    assert vacated.state.roster is not None
    assert [one.vacant for one in vacated.state.roster.members] == [None, None, None, T0]
    lost = after(members, vacated.state, 20)
    assert isinstance(lost, ReportLoss)
    assert lost.state.lost == T0 + timedelta(seconds=20)
    assert isinstance(after(members, lost.state, 299), Wait)
    ends = after(members, lost.state, 300)
    assert isinstance(ends, Record)
    assert (ends.state.phase, ends.state.reason) == ("ending", "Pod p3 was not replaced")

    replaced = {**members, "u9": replace(member(3), uid="u9")}
    filled = after(replaced, lost.state, 40)
    assert isinstance(filled, Record)
    assert filled.state.roster is not None
    assert [(one.uid, one.node) for one in filled.state.roster.members][3] == ("u9", "n3")
    again = after(replaced, filled.state, 41)
    if gone == JobGone():
        assert isinstance(again, Wait)  # Nothing tells what became of the job.
        return
    assert isinstance(again, Record)
    assert (again.state.phase, again.state.job, again.state.roster) == (
        "submitted",
        None,
        filled.state.roster,
    )


GONE = [JobGone(), JobGone(is_lost=True), JobGone(is_forgotten=True), JobGone(is_taken=True)]


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("bound", [1, 4], ids=["one member is bound", "all are"])
def test_a_gang_that_is_bound_is_treated_so_when_its_job_is_lost_though_that_is_not_stored(
    gone: JobGone, bound: int
) -> None:
    started = replace(stored(4), phase="started")
    members = {f"u{i}": member(i, kube_node=f"k{i}" if i < bound else "") for i in range(4)}

    first = decide_gang(look(members, started, job=gone), T0, Limits())

    assert isinstance(first, ReportLoss)
    assert (first.state.phase, first.state.lost, first.state.bound) == ("bound", T0, T0)
    assert first.state.roster == started.roster
    after = decide_gang(look(members, first.state, job=JobGone()), LATER, Limits())
    assert isinstance(after, (Wait, ReportLoss))


def test_a_gang_that_is_bound_has_the_seats_of_its_pods_where_the_bus_has_an_older_store_and_slurm_too() -> (
    None
):
    released = replace(stored(2), phase="released")
    assert released.roster is not None
    seats = tuple(replace(one, node="") for one in released.roster.members)
    released = replace(released, roster=replace(released.roster, members=seats))
    claim = Claim(job=JOB, attempt=0, job_mark="verified")
    members = {f"u{i}": member(i, kube_node=f"k{i}") for i in range(2)}
    members = {
        uid: replace(one, node=f"n{one.index}", pod=replace(one.pod, claim=claim))
        for uid, one in members.items()
    }

    def after(there: Mapping[str, MemberSeen], record: PlacementState) -> GangAction:
        return decide_gang(replace(look(there, record, job=JobGone()), kube_nodes={}), T0, Limits())

    first = after(members, released)
    assert isinstance(first, Record)
    assert (first.state.phase, first.state.roster) == ("released", stored(2).roster)
    assert isinstance(after(members, first.state), ReportLoss)
    elsewhere = {**members, "u1": replace(members["u1"], node="")}
    half = after(elsewhere, released)
    assert isinstance(half, Record)
    assert half.state.phase == "released"
    assert isinstance(after(elsewhere, half.state), Wait)  # Where the other one runs nobody can say.


class Lost(NoJobs):
    """slurmctld has lost every job, and its other jobs tell so."""

    async def outcome_of(self, gone: JobGone, job: int, _owner: Owner, ran: datetime | None) -> JobGone:
        assert (job, ran) == (102, T0)  # Then Slurm had it: that is when the placement was stored.
        return replace(gone, is_lost=True)


@pytest.mark.parametrize("phase", ["submitted", "released", "started"])
async def test_a_look_at_a_gang_that_is_bound_though_that_is_not_stored_asks_where_it_runs_and_of_its_job(
    phase: PlacementPhase,
) -> None:
    pods, placements, kube_pods = MemoryPods(claiming(0, 1, 102), claiming(1, 1, 102)), Held(), Held()
    ring = gang_of(pods.pods["u0"])
    placements.found[ring] = replace(placement(phase, job=102, attempt=1), uid=ring, roster=seats(""))
    kube_pods.found.update({f"n{number}": of_nodeset(number) for number in range(2)})
    eyes = snapshotter(pods, placements, 2, slurm=Lost(), kube_pods=kube_pods)
    eyes.index.learn()

    seen, _ = await eyes.look(ring)

    assert {uid: one.node for uid, one in seen.members.items()} == {"u0": "n0", "u1": "n1"}
    assert seen.job == JobGone(is_lost=True)
    first = decide_gang(seen, T0, Limits())
    assert isinstance(first, Record)
    assert first.state.roster is not None
    assert [(one.uid, one.node) for one in first.state.roster.members] == [("u1", "n1"), ("u0", "n0")]


def test_members_that_a_finalizer_keeps_are_off_their_nodes_once_their_containers_have_ended() -> None:
    record = replace(stored(2), phase="ending", is_overdue=True)
    leaving = [member(i, kube_node=f"k{i}") for i in range(2)]
    leaving = [replace(one, pod=replace(one.pod, is_terminating=True, is_over=True)) for one in leaving]
    found = look({one.uid: one for one in leaving}, record)

    action = decide_gang(found, LATER, Limits())

    assert [(seat.is_overdue, seat.is_pod_present) for seat in found.seats.values()] == [(False, False)] * 2
    assert isinstance(action, Record)
    assert (action.state.phase, action.state.is_overdue) == ("ended", False)
    assert not any(one.has_succeeded for one in leaving)  # They were deleted.


async def test_of_a_gang_of_large_pods_only_a_few_are_read_before_others_have_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = [0]
    validated = "sunk_pod_scheduler.gang_controller.snapshotter.validate"

    def counted(found: Pod, rules: Rules) -> ValidatedPod | tuple[str, ...]:
        read[-1] += 1
        return validate(found, rules)

    async def pause() -> None:
        read.append(0)

    monkeypatch.setattr(validated, counted)
    monkeypatch.setattr("sunk_pod_scheduler.placement.model.validate", counted)
    monkeypatch.setattr("sunk_pod_scheduler.gang_controller.snapshotter.checkpoint", pause)
    pods = MemoryPods(*(grouped(number) for number in range(100)))
    eyes, ring = snapshotter(pods, Held(), 100), gang_of(pods.pods["u0"])
    for uid in pods.uids():
        eyes.index.know(ring, uid)

    await eyes.look(ring)
    assert (sum(read), max(read)) == (100, ANEW)  # Each of them once.
    read[:] = [0]
    await eyes.look(ring)
    assert (sum(read), len(read)) == (0, 4)  # Those that have not changed cost next to nothing.


def test_a_lost_gang_that_may_run_with_fewer_gets_another_job_though_a_member_left_unnoticed() -> None:
    """The member is gone before its seat was noted as vacant: nobody can hold it for the next job."""
    record = stored(2, min_available=1)
    taken, alone = JobGone(is_taken=True, is_lost=True), {"u0": member(0, kube_node="k0")}
    told = decide_gang(look(alone, record, job=taken), T0, Limits())
    assert isinstance(told, ReportLoss)
    again = decide_gang(look(alone, told.state, job=taken), T0, Limits())
    assert isinstance(again, Record)
    submitted = decide_gang(look(alone, again.state, job=JobGone()), T0 + timedelta(minutes=5), Limits())

    assert isinstance(submitted, SubmitGang)
    assert [one.is_empty for one in submitted.gang.members] == [False, True]
    assert distinct(submitted.gang) == ("n0",)


def test_a_member_that_leaves_a_lost_gang_before_the_next_job_is_submitted_is_not_waited_for() -> None:
    record = replace(stored(2, min_available=1), phase="submitted", job=None, token_sha256="")
    record = replace(record, attempt=1, lost=T0, changed=T0)
    alone, later = {"u0": member(0, kube_node="k0")}, T0 + timedelta(minutes=5)
    noted = decide_gang(look(alone, record), later, Limits())
    assert isinstance(noted, Record)
    submitted = decide_gang(look(alone, noted.state), later, Limits())

    assert isinstance(submitted, SubmitGang)
    assert [one.is_empty for one in submitted.gang.members] == [False, True]
    assert distinct(submitted.gang) == ("n0",)
