"""Whatever happens to a gang, its job and the scheduler, in any order: what must stay true."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from datetime import timedelta

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from sunk_events.locks import LockState
from sunk_events.placements import Gang, PlacementState
from sunk_pod_scheduler.gangs.decide import decide_gang
from sunk_pod_scheduler.gangs.model import (
    BindMembers,
    DeleteMembers,
    GangAction,
    GangSeen,
    MemberSeen,
    Notify,
    SubmitGang,
    SyncMemberStates,
)
from sunk_pod_scheduler.gangs.ownership import newest
from sunk_pod_scheduler.placement.actions import (
    CancelJob,
    Forget,
    GiveUp,
    MarkStarted,
    Record,
    RecordReason,
    Refuse,
    ReleaseJob,
    ReportLoss,
    Resume,
    Wait,
)
from sunk_pod_scheduler.placement.gang_membership import GangOptions, order
from sunk_pod_scheduler.placement.limits import Limits, tries
from sunk_pod_scheduler.placement.marks import Claim, Mark
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen, JobUnknown
from sunk_pod_scheduler.placement.orphans import judge
from sunk_pod_scheduler.placement.ownership import believed
from sunk_pod_scheduler.podspec.namespace_policy import Identity
from sunk_pod_scheduler.podspec.validation import ValidatedPod
from sunk_pod_scheduler.testing.builders import JOB, T0, job, lock, pod

GANG = "gang-1"
SIZE = 3
DIGEST = "digest"
NODES = tuple(f"gpu-{number}" for number in range(SIZE))
LIMITS = Limits(kill_wait_s=30, gang_wait_s=300, lost_s=60)
WANTED = ValidatedPod(cpus=1, memory_mib=100, identity=Identity(1, 1))
STEPS_MAX = 60
UNCUT = 99
Effect = Callable[[], object]


class Cluster:
    """Three indexed Pods and whoever replaces them, their jobs, and what is stored of them."""

    def __init__(self, terms: GangOptions) -> None:
        self.now = T0
        self.terms = terms
        self.made = 0
        self.pods: dict[str, MemberSeen] = {}
        self.done: set[int] = set()
        """Indexes whose Pod has succeeded: their workload makes no more of them."""
        self.record: PlacementState | None = None
        self.seats: dict[str, PlacementState] = {}
        self.copies: list[tuple[PlacementState | None, dict[str, PlacementState]]] = []
        """All that was stored before."""
        self.jobs: dict[int, JobSeen] = {}
        self.attempts: dict[int, int] = {}
        self.meant: dict[int, frozenset[str]] = {}
        """The Pods that each job was submitted for."""
        self.ended: set[int] = set()
        self.announced: set[int] = set()
        self.releasing: set[int] = set()
        self.unwanted: set[int] = set()
        """Whose end somebody has asked for, whether or not who leads now has heard it."""
        self.locking: frozenset[str] | None = frozenset()
        """The nodes whose locks are not granted to any job; None: the locks are not read yet."""
        self.is_slurm_away = False
        self.does_tell = False
        """Slurm's other jobs, or accounting, tell that slurmctld has lost its state."""

    def make_pods(self) -> None:
        """Have the workload make the Pods that it lacks, as the Job controller does."""
        for index in range(SIZE):
            alive = [one for one in self.pods.values() if one.index == str(index) and one.is_well]
            if not alive and index not in self.done and not self._is_leaving(index):
                uid = f"uid-{self.made}"
                self.made += 1
                seen = replace(pod(), name=f"pod-{uid}", created=self.now)
                self.pods[uid] = MemberSeen(
                    uid=uid, pod=seen, index=str(index), terms=self.terms, wanted=WANTED
                )

    def _is_leaving(self, index: int) -> bool:
        return any(one.index == str(index) and one.pod.is_terminating for one in self.pods.values())

    def look(self) -> GangSeen:
        """Return what the scheduler sees."""
        record = self.record
        seated = () if record is None or record.roster is None else record.roster.members
        names = {member.uid for member in seated}
        members = {
            uid: one
            for uid, one in sorted(self.pods.items(), key=lambda item: order(item[1].index, item[0]))
            if uid in names or not one.pod.is_finished or record is None
        }
        claimed = newest(GangSeen(uid=GANG, members=members))
        is_bound = any(one.is_on_node and one.pod.claim == claimed for one in members.values())
        record = believed(self.record, claimed, is_bound=is_bound)
        number = record.job if record is not None else claimed.job if claimed is not None else None
        found, roster = self._job(number), None if record is None else record.roster
        seated = {member.uid for member in (() if roster is None else roster.members) if member.node}
        return GangSeen(
            uid=GANG,
            kind="Job",
            namespace="default",
            name="train",
            size=SIZE - len(self.done),
            members={uid: replace(one, node="") if uid in seated else one for uid, one in members.items()},
            placement=record,
            is_overtaken=record is not self.record,
            seats=dict(self.seats) if record is self.record else {},
            job=found,
            ungranted=self._ungranted(found) if record is not None else (),
            announced_on=NODES[0] if number in self.announced else "",
            is_release_requested=number in self.releasing,
            kube_nodes={node: f"kube-{node}" for node in (found.nodes if isinstance(found, JobSeen) else ())},
        )

    def _ungranted(self, found: AnyJob) -> tuple[LockState, ...] | None:
        is_unbound = any(one.is_well and not one.pod.kube_node for one in self.pods.values())
        if not isinstance(found, JobSeen) or not found.is_running or not is_unbound:
            return ()
        return None if self.locking is None else tuple(lock(n) for n in found.nodes if n in self.locking)

    def _job(self, number: int | None) -> AnyJob:
        if number is None:
            return JobGone()
        if self.is_slurm_away:
            return JobUnknown()
        return self.jobs.get(number) or JobGone(
            has_ended=number in self.ended, is_lost=self.does_tell and number not in self.ended
        )

    def turn(self, cut: int = UNCUT) -> None:
        """Let the scheduler take its steps, killed before the effect number *cut* of them all."""
        for _ in range(STEPS_MAX):
            found = self.look()
            action = decide_gang(found, self.now, LIMITS)
            self.judge_step(found, action)
            if isinstance(action, DeleteMembers):
                assert not self.runs(), "the job of a gang that is deleted runs"
            for effect in self._effects(action, found):
                if cut == 0:
                    return
                cut -= 1
                effect()
            if isinstance(action, (Wait, Notify, DeleteMembers, CancelJob)):
                return
            if self.is_slurm_away and isinstance(action, (SubmitGang, Resume, ReleaseJob, MarkStarted)):
                return
        raise AssertionError("the scheduler goes round in circles")

    def judge_step(self, found: GangSeen, action: GangAction) -> None:
        """Hold what is about to be done against what must never be done."""
        if isinstance(action, BindMembers):
            assert isinstance(found.job, JobSeen)
            assert found.job.is_running
            assert found.job.job in self.announced
            assert {member.node for member in action.gang.members} <= {*found.job.nodes, ""}
            assert found.ungranted is not None
            assert found.placement is not None
            unlocked = {f"kube-{one.node}" for one in found.ungranted}
            assert not unlocked & {*action.kube_nodes.values()}
            assert not unlocked or found.placement.phase == "bound"
        if isinstance(action, MarkStarted) or is_started_now(found, action):
            # Pods that run with a job that Slurm has lost are not kept from their next one.
            assert found.ungranted == () or (found.placement is not None and found.placement.lost is not None)
        if isinstance(action, DeleteMembers):
            assert found.placement is not None
            assert found.placement.phase == "ending"
        if isinstance(action, Record) and action.state.phase == "ending":
            if isinstance(found.job, JobGone) and not found.job.has_ended and found.placement is not None:
                # Nothing ends a gang that runs, and has all its Pods, because Slurm does not know its job.
                assert found.placement.lost is not None or not self.has_enough(found)
            is_known = not isinstance(found.job, JobUnknown) or found.is_release_requested
            assert is_known or not self.has_enough(found)

    @staticmethod
    def has_enough(found: GangSeen) -> bool:
        """Whether the Pods themselves are no reason for the gang to end."""
        record = found.placement
        if record is None or record.roster is None:
            return False
        seats = record.roster.members
        there = [found.members.get(seat.uid) for seat in seats if not seat.has_succeeded]
        lack = sum(one is None or not (one.is_well or one.has_succeeded) for one in there)
        may_lack = record.phase == "bound" and record.roster.min_available
        return len(seats) - lack >= (record.roster.min_available if may_lack else len(seats))

    def _effects(  # noqa: C901, PLR0911, PLR0912 - one case an action
        self, action: GangAction, found: GangSeen
    ) -> list[Effect]:
        match action:
            case Record() | Refuse() | RecordReason() | ReportLoss():
                return [lambda: self._store(action.state)]
            case SyncMemberStates():
                stored: list[Effect] = [lambda s=state: self._seat(s) for state in action.states]
                return [*stored, *(lambda u=uid: self.seats.pop(u, None) for uid in action.gone)]
            case SubmitGang():
                return self._submission(action.attempt, action.gang)
            case Forget():
                gone: list[Effect] = [lambda u=uid: self.seats.pop(u, None) for uid in found.seats]
                return [*gone, lambda: self._store(None)]
            case DeleteMembers():
                return [lambda u=uid: self.delete(u) for uid in action.uids]
            case BindMembers():
                return [lambda u=uid, n=node: self._bind(u, n) for uid, node in action.kube_nodes.items()]
            case _ if self.is_slurm_away:
                return []
            case Resume():
                return [lambda: self._resume(action.attempt)]
            case ReleaseJob():
                return [
                    lambda: self.change(
                        action.job,
                        is_held=False,
                        is_ours=True,
                        reason="Resources",
                        priority=action.priority,
                    )
                ]
            case MarkStarted():
                return [lambda: self.change(action.job, is_marked_started=True, is_ours=True)]
            case CancelJob():
                return [lambda: self.end(action.job, "CANCELLED")]
            case GiveUp():
                ends: list[Effect] = [
                    lambda: self.end(action.job, "CANCELLED"),
                    lambda: self._store(action.state),
                ]
                return ends if action.state.lost is None else ends[::-1]
            case _:
                return []

    def _submission(self, attempt: int, gang: Gang) -> list[Effect]:
        intent = PlacementState(
            changed=self.now,
            uid=GANG,
            namespace="default",
            pod="train",
            phase="submitted",
            attempt=attempt,
            token_sha256=DIGEST,
            roster=gang,
        )
        if self.record is not None and self.record.lost is not None:
            intent = replace(self.record, changed=self.now, attempt=attempt, token_sha256=DIGEST)
        effects: list[Effect] = [lambda: self._store(intent)]
        if self.is_slurm_away:
            return effects
        number = JOB + len(self.attempts)
        uids = [member.uid for member in gang.members]
        return [
            *effects,
            lambda: self._made(number, attempt, uids),
            *(lambda u=uid: self._claim(u, number, attempt) for uid in uids),
            lambda: self._store(replace(intent, job=number, changed=self.now)),
        ]

    def _made(self, number: int, attempt: int, uids: Iterable[str]) -> None:
        self.jobs[number] = replace(
            job("PENDING", is_held=True, reason="JobHeldUser"), job=number, is_ours=False
        )
        self.attempts[number] = attempt
        self.meant[number] = frozenset(uids)

    def _claim(self, uid: str, number: int, attempt: int) -> None:
        if uid in self.pods:
            self.put(uid, claim=Claim(job=number, attempt=attempt, job_mark="ours"))

    def _resume(self, attempt: int) -> None:
        assert self.record is not None
        assert self.record.roster is not None
        alive = [number for number in self.alive() if self.attempts[number] == attempt]
        if not alive:
            self._store(replace(self.record, attempt=attempt + 1, token_sha256=""))
            return
        for member in self.record.roster.members:
            self._claim(member.uid, alive[0], attempt)
        self._store(replace(self.record, job=alive[0], changed=self.now))

    def _store(self, state: PlacementState | None) -> None:
        self.copies.append((self.record, dict(self.seats)))
        self.record = state if state is None or state.token_sha256 else replace(state, token_sha256="")
        if state is not None and state.job is not None:
            self.record = replace(state, token_sha256=DIGEST)

    def go_back(self, record: PlacementState | None, seats: Mapping[str, PlacementState]) -> None:
        """Have the bus come back with what was stored before."""
        self.copies.append((self.record, dict(self.seats)))
        self.record, self.seats = record, dict(seats)

    def _seat(self, state: PlacementState) -> None:
        self.copies.append((self.record, dict(self.seats)))
        self.seats[state.uid] = state

    def _bind(self, uid: str, node: str) -> None:
        found = self.pods.get(uid)
        if found is None or found.pod.kube_node or not found.is_well:
            return  # The API server refuses.
        number = self.record.job if self.record is not None else None
        self._claim(uid, number or 0, self.attempts.get(number or 0, 0))
        self.put(uid, kube_node=node)
        rank = [member.uid for member in self.roster().members].index(uid)
        self.pods[uid] = replace(self.pods[uid], node=node.removeprefix("kube-"), rank=rank)

    def roster(self) -> Gang:
        """Return the gang as it is stored."""
        assert self.record is not None
        assert self.record.roster is not None
        return self.record.roster

    def roster_uids(self) -> list[str]:
        """Return who has a seat."""
        return [member.uid for member in self.roster().members]

    def put(self, uid: str, **fields: object) -> None:
        """Change a Pod."""
        found = self.pods[uid]
        self.pods[uid] = replace(found, pod=replace(found.pod, **fields))

    def delete(self, uid: str) -> None:
        """Delete a Pod: at once where no kubelet has it."""
        found = self.pods.get(uid)
        if found is None:
            return
        if found.is_on_node:
            self.put(uid, is_terminating=True)
        else:
            del self.pods[uid]

    def vanish(self) -> None:
        """Have the kubelets end what terminates."""
        for uid in [uid for uid, one in self.pods.items() if one.pod.is_terminating]:
            del self.pods[uid]

    def runs(self) -> bool:
        """Whether all of the gang runs with its last job, and nobody wants the end of any of it."""
        number = max(self.alive(), default=0)
        ours = [one for one in self.pods.values() if one.is_able and one.pod.kube_node and one.pod.claim]
        are_there = len(ours) == SIZE and all(one.pod.claim and one.pod.claim.job == number for one in ours)
        return bool(number) and self.jobs[number].is_running and are_there and number not in self.unwanted

    def alive(self) -> list[int]:
        """Return the jobs that are not over."""
        return [number for number, found in self.jobs.items() if not found.is_over]

    def change(self, number: int, **fields: object) -> None:
        """Change a job that is not over."""
        if number in self.alive():
            self.jobs[number] = replace(self.jobs[number], **fields)

    def end(self, number: int, base: str) -> None:
        """End a job."""
        self.change(number, base=base, is_over=True, ended=self.now)

    def sweep(self) -> None:
        """Cancel what carries our mark and is nobody's."""
        for number in self.alive():
            claimants = [one.pod for one in self.pods.values() if not one.pod.is_finished]
            claims = [one.claim for one in claimants if one.claim is not None]
            claim = next((one for one in claims if one.job == number), None)
            mark = Mark(uid=GANG, pod="default/train", attempt=self.attempts[number])
            if judge(number, mark, self.record, claim) == "stray":
                assert not self.runs() or number != max(self.alive()), (
                    "the job of a gang that runs is cancelled"
                )
                self.end(number, "CANCELLED")


def is_started_now(found: GangSeen, action: GangAction) -> bool:
    """Whether *action* stores that the job's script has announced itself."""
    was_started = found.placement is not None and found.placement.phase == "started"
    return isinstance(action, Record) and action.state.phase == "started" and not was_started


class GangStories(RuleBasedStateMachine):
    """Things happen in any order; in the end they calm down, and all must be well."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(GangOptions())
        self.was_lost = False

    @initialize(
        is_placed=st.booleans(),
        policy=st.sampled_from(["fail", "replace"]),
        least=st.sampled_from([None, None, 1, 2]),
    )
    def begins(self, *, is_placed: bool, policy: str, least: int | None) -> None:
        self.cluster = Cluster(msgspec.convert({"policy": policy, "min_available": least}, GangOptions))
        self.cluster.make_pods()
        if is_placed:
            self.all_goes_on()

    @rule()
    def all_goes_on(self) -> None:
        for _ in range(3):
            self.cluster.turn()
            self.slurm_starts_what_waits()
            self.the_script_announces_itself()
            self.cluster.turn()
            self.cluster.now += timedelta(seconds=8)

    @rule(cut=st.integers(0, 12))
    def the_scheduler_looks(self, cut: int) -> None:
        self.cluster.turn(cut)

    @rule()
    def the_scheduler_sweeps(self) -> None:
        if not self.cluster.is_slurm_away:
            self.cluster.sweep()

    @rule()
    def another_scheduler_takes_over(self) -> None:
        self.cluster.releasing.clear()

    @rule()
    def the_bucket_is_lost(self) -> None:
        self.cluster.record = None
        self.cluster.seats.clear()
        self.was_lost = True

    @rule(steps=st.integers(1, 24))
    def the_bus_comes_back_with_an_older_store(self, steps: int) -> None:
        copies = self.cluster.copies
        if len(copies) >= steps and copies[-steps][0] is not None:
            self.cluster.go_back(*copies[-steps])
            self.was_lost = True  # Its Pods tell then, of whom some may be gone.

    @rule(after_s=st.integers(1, 400))
    def time_passes(self, after_s: int) -> None:
        self.cluster.now += timedelta(seconds=after_s)

    @rule()
    def slurm_starts_what_waits(self) -> None:
        self.slurm_starts_it_on(SIZE)

    @rule(count=st.integers(1, SIZE))
    def slurm_starts_it_on(self, count: int) -> None:
        for number in self.cluster.alive():
            found = self.cluster.jobs[number]
            if found.base == "PENDING" and not found.is_held:
                least = self.cluster.terms.min_available or SIZE
                self.cluster.change(number, base="RUNNING", reason="None", nodes=NODES[: max(count, least)])

    @rule()
    def the_script_announces_itself(self) -> None:
        alive = self.cluster.alive()
        self.cluster.announced |= {n for n in alive if self.cluster.jobs[n].base == "RUNNING"}

    @rule(base=st.sampled_from(["CANCELLED", "PREEMPTED", "TIMEOUT", "NODE_FAIL"]))
    def slurm_ends_the_job(self, base: str) -> None:
        for number in self.cluster.alive():
            self.cluster.end(number, base)

    @rule()
    def no_slurmd_acknowledges_the_launch(self) -> None:
        for number in self.cluster.alive():
            if self.cluster.jobs[number].base == "RUNNING" and number not in self.cluster.announced:
                again = {"reason": "BeginTime", "nodes": (), "is_requeued": True}
                self.cluster.change(number, base="PENDING", **again)

    @rule()
    def the_script_asks_for_the_end(self) -> None:
        asked = self.cluster.announced & set(self.cluster.alive())
        self.cluster.releasing |= asked
        self.cluster.unwanted |= asked

    @rule()
    def slurm_forgets_jobs_that_are_over(self) -> None:
        over = self.cluster.jobs.keys() - set(self.cluster.alive())
        self.cluster.ended |= over
        for number in over:
            del self.cluster.jobs[number]

    @rule()
    def slurm_loses_its_state(self) -> None:
        self.cluster.jobs.clear()

    @rule(nodes=st.none() | st.frozensets(st.sampled_from(NODES)))
    def the_locks_of_nodes_change(self, nodes: frozenset[str] | None) -> None:
        self.cluster.locking = nodes

    @rule()
    def something_tells_of_missing_jobs_or_does_not(self) -> None:
        self.cluster.does_tell = not self.cluster.does_tell

    @rule()
    def slurm_goes_away_or_comes_back(self) -> None:
        self.cluster.is_slurm_away = not self.cluster.is_slurm_away

    @rule(which=st.integers(0, 9))
    def a_pod_is_deleted(self, which: int) -> None:
        uids = list(self.cluster.pods)
        if uids:
            self.cluster.delete(uids[which % len(uids)])

    @rule(which=st.integers(0, 9), exit_code=st.sampled_from([0, 0, 3]))
    def a_pod_ends_by_itself(self, which: int, exit_code: int) -> None:
        running = [uid for uid, one in self.cluster.pods.items() if one.is_on_node and one.is_well]
        if running:
            uid = running[which % len(running)]
            self.cluster.put(uid, is_over=True, exit_code=exit_code)
            if exit_code == 0:
                self.cluster.done.add(int(self.cluster.pods[uid].index))

    @rule()
    def the_kubelets_have_ended_what_terminates(self) -> None:
        self.cluster.vanish()

    @rule()
    def the_workload_makes_what_it_lacks(self) -> None:
        self.cluster.make_pods()

    @invariant()
    def no_second_job_is_let_start(self) -> None:
        found = self.cluster
        let = [number for number in found.alive() if not found.jobs[number].is_held]
        # Where the bucket was lost and all Pods were replaced, the next ones know nothing of the first's job.
        assert len({(found.attempts[number], found.meant[number]) for number in let}) == len(let)

    @invariant()
    def who_is_bound_is_on_the_node_of_its_seat(self) -> None:
        found = self.cluster
        for rank, member in enumerate(found.roster().members if found.record else ()):
            one = found.pods.get(member.uid)
            if one is not None and one.pod.kube_node and member.node:
                assert one.pod.kube_node == f"kube-{member.node}"
                assert one.rank == rank or self.was_lost  # Of an adopted gang some may be gone.

    def teardown(self) -> None:
        """Let everything calm down."""
        found = self.cluster
        found.is_slurm_away, found.does_tell, found.locking = False, True, frozenset()
        for _ in range(STEPS_MAX):
            found.make_pods()
            found.turn()
            found.sweep()
            self.slurm_starts_what_waits()
            self.the_script_announces_itself()
            found.vanish()
            found.now += timedelta(seconds=60)
        alive, left = found.alive(), SIZE - len(found.done)
        if left == 0:
            assert alive == []
            assert (found.record, found.seats) == (None, {})
            return
        running = [one for one in found.pods.values() if one.is_on_node]
        assert found.record is not None
        assert (found.record.phase, [found.record.job]) == ("bound", alive)
        there = {int(one.index) for one in running}
        assert len(there) == len(running)
        if found.terms.min_available is None:
            assert there == set(range(SIZE)) - found.done
        else:
            assert there <= set(range(SIZE)) - found.done
            assert any(not member.is_empty for member in found.roster().members)
        assert {one.uid for one in running} <= found.seats.keys()


def test_a_gang_that_runs_runs_on_whatever_older_copy_of_its_placements_the_bus_comes_back_with() -> None:
    story = GangStories()
    story.cluster.make_pods()
    for _ in range(3):  # The first two jobs are cancelled while they wait.
        story.cluster.now += timedelta(seconds=10)
        story.cluster.turn()
        if len(story.cluster.attempts) < SIZE:
            story.slurm_ends_the_job("CANCELLED")
            story.cluster.turn()
    story.all_goes_on()
    placed, copies = JOB + 2, [copy for copy in story.cluster.copies if copy[0] is not None]
    assert story.cluster.runs()
    known = {(tries(record.attempt), record.job) for record, _ in copies if record is not None}
    assert known >= {(1, None), (1, JOB + 1), (2, None), (2, placed)}

    for record, seats in copies:
        runs_on_with(placed, story.cluster, record, seats)


def test_a_gang_that_came_anew_runs_on_where_the_bus_comes_back_with_the_one_before_it() -> None:
    """A PodGroup, or a group of a LeaderWorkerSet, has the same key whenever it is made again."""
    story = GangStories()
    cluster = story.cluster
    cluster.make_pods()
    for _ in range(2):  # Its first job is cancelled while it waits.
        cluster.now += timedelta(seconds=10)
        cluster.turn()
        if len(cluster.attempts) < 2:
            story.slurm_ends_the_job("CANCELLED")
            cluster.turn()
    story.all_goes_on()
    assert cluster.runs()
    story.slurm_ends_the_job("CANCELLED")
    while cluster.record is not None:
        cluster.turn()
        cluster.vanish()
    copies = [copy for copy in cluster.copies if copy[0] is not None]
    cluster.now += timedelta(seconds=60)
    cluster.make_pods()
    story.all_goes_on()
    placed = max(cluster.attempts)
    assert cluster.runs()
    # Who may edit its Pods has kept a claim of before, and writes it on a free one where no policy forbids.
    old = Claim(job=JOB + 1, attempt=cluster.attempts[JOB + 1], job_mark="ours")
    free = replace(pod(), name="free", created=cluster.now, claim=old)
    replayed = deepcopy(cluster)
    replayed.pods["free"] = MemberSeen(uid="free", pod=free, index="0", terms=replace(GangOptions(), size=1))
    copies.append((replayed.record, replayed.seats))

    for record, seats in copies:
        runs_on_with(placed, replayed if record is replayed.record else cluster, record, seats)


def runs_on_with(
    placed: int, cluster: Cluster, record: PlacementState | None, seats: Mapping[str, PlacementState]
) -> None:
    """Hold that the gang of *cluster* has the job *placed* where the bus comes back with older placements."""
    for sweeps_first in (True, False):
        found = deepcopy(cluster)
        found.go_back(record, seats)
        if sweeps_first:
            found.sweep()
        for _ in range(3):
            found.turn()
        found.sweep()
        assert found.runs()
        assert found.record is not None
        assert (found.record.phase, found.record.job) == ("bound", placed)
        assert {(seat.phase, seat.job) for seat in found.seats.values()} == {("bound", placed)}


def test_who_took_a_dead_ones_seat_has_it_whatever_older_copy_of_its_gangs_placements_the_bus_has() -> None:
    story = GangStories()
    story.cluster = Cluster(GangOptions(policy="replace"))
    story.cluster.make_pods()
    story.all_goes_on()
    story.cluster.put(next(iter(story.cluster.pods)), is_over=True, exit_code=3)
    story.cluster.turn()
    story.cluster.make_pods()
    for _ in range(2):
        story.all_goes_on()
    copies = [copy for copy in story.cluster.copies if copy[0] is not None]
    assert story.cluster.runs()
    heir = next(uid for uid in story.cluster.roster_uids() if uid == f"uid-{SIZE}")

    for record, seats in copies:
        found = deepcopy(story.cluster)
        found.go_back(record, seats)
        for _ in range(6):
            found.turn()
            found.sweep()
            found.now += timedelta(seconds=200)
        assert found.runs()
        assert heir in found.roster_uids()
        assert found.record is not None
        assert (found.record.phase, found.record.job) == ("bound", JOB)
        assert {(seat.phase, seat.job) for seat in found.seats.values()} == {("bound", JOB)}


TestGangStories = GangStories.TestCase
TestGangStories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
