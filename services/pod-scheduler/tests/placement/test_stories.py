"""Whatever happens to a Pod, its jobs and the scheduler, in any order: what must stay true of `decide`."""

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from sunk_events.placements import PlacementState
from sunk_pod_scheduler.placement.actions import (
    Action,
    Bind,
    CancelJob,
    DeletePod,
    Forget,
    GiveUp,
    MarkStarted,
    Record,
    RecordReason,
    Refuse,
    ReleaseJob,
    ReportLoss,
    Resume,
    Submit,
    Wait,
)
from sunk_pod_scheduler.placement.decide import decide
from sunk_pod_scheduler.placement.limits import Limits
from sunk_pod_scheduler.placement.marks import Claim, Mark
from sunk_pod_scheduler.placement.model import AnyJob, JobGone, JobSeen, JobUnknown, Observed, PodSeen
from sunk_pod_scheduler.placement.orphans import judge
from sunk_pod_scheduler.placement.ownership import believed
from sunk_pod_scheduler.testing.builders import JOB, KUBE_NODE, SLURM_NODE, T0, UID, job, placement, pod

LIMITS = Limits(kill_wait_s=30)
STEPS_MAX = 40
UNCUT = 9
Effect = Callable[[], object]


class Cluster:
    """One Pod, its jobs in Slurm and what is stored of them; each effect as its server makes it."""

    def __init__(self) -> None:
        self.now = T0
        self.pod: PodSeen | None = pod()
        self.stored: PlacementState | None = None
        self.copies: list[PlacementState | None] = []
        """All that was stored before."""
        self.jobs: dict[int, JobSeen] = {}
        self.attempts: dict[int, int] = {}
        self.ended: set[int] = set()
        """Jobs that the bus says to be over, when Slurm has forgotten them."""
        self.unseen: set[int] = set()
        """Jobs that ended and were forgotten while nobody looked."""
        self.does_tell = False
        """Slurm's other jobs, or accounting, tell what became of a job."""
        self.announced: set[int] = set()
        """The jobs of which the scheduler that leads has heard."""
        self.launched: set[int] = set()
        """Those whose script has ever run."""
        self.releasing: set[int] = set()
        self.is_slurm_away = False

    def look(self) -> Observed:
        """Return what the scheduler sees."""
        claim = None if self.pod is None else self.pod.claim
        is_bound = self.pod is not None and bool(self.pod.kube_node)
        stored = believed(self.stored, claim, is_bound=is_bound)
        number = stored.job if stored is not None else None if claim is None else claim.job
        return Observed(
            uid=UID,
            pod=self.pod,
            placement=stored,
            is_overtaken=stored is not self.stored,
            job=self._job(number),
            announced_on=SLURM_NODE if number in self.announced else "",
            kube_node=KUBE_NODE if stored is not None and stored.node else "",
            slurm_node=SLURM_NODE if is_bound and not (stored and stored.node) else "",
            is_release_requested=number in self.releasing,
        )

    def _job(self, number: int | None) -> AnyJob:
        if number is None:
            return JobGone()
        if self.is_slurm_away:
            return JobUnknown()
        if number in self.jobs:
            return self.jobs[number]
        is_unseen = number in self.unseen
        return JobGone(
            has_ended=number in self.ended,
            is_lost=self.does_tell and not is_unseen,
            is_forgotten=self.does_tell and is_unseen,
        )

    def turn(self, cut: int = UNCUT) -> None:
        """Let the scheduler take its steps, killed before the effect number *cut* of the first."""
        for _ in range(STEPS_MAX):
            found = self.look()
            action = decide(found, self.now, LIMITS)
            judge_step(found, action)
            if isinstance(action, Record) and action.state.phase == "ending":
                assert self.placed() is None, "the Pod's job runs"
            for number, effect in enumerate(self._effects(action)):
                if number == cut:
                    return
                effect()
            if isinstance(action, (Wait, DeletePod, CancelJob)):
                return
            if self.is_slurm_away and isinstance(action, (Submit, Resume, ReleaseJob, MarkStarted)):
                return
        raise AssertionError("the scheduler goes round in circles")

    def _effects(  # noqa: C901, PLR0911, PLR0912 - one case an action
        self, action: Action
    ) -> list[Effect]:
        match action:
            case ReportLoss():
                return [lambda: self._tell(action.state), lambda: self._store(action.state)]
            case Record() | Refuse() | RecordReason():
                return [lambda: self._store(action.state)]
            case Submit():
                return self._submission(action.attempt)
            case Forget():
                return [lambda: self._store(None)]
            case DeletePod():
                return [self.delete]
            case Bind():
                return [self._bind, lambda: self._store(action.state)]
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

    def _submission(self, attempt: int) -> list[Effect]:
        first = replace(placement("submitted", job=None, attempt=attempt), changed=self.now)
        before = self.stored
        is_lost = before is not None and before.lost is not None
        intent = (
            replace(before, attempt=attempt, token_sha256=first.token_sha256) if before and is_lost else first
        )
        number = JOB + len(self.attempts)
        effects: list[Effect] = [lambda: self._store(intent)]
        if self.is_slurm_away:
            return effects
        stored = replace(intent, job=number, changed=self.now)
        return [
            *effects,
            lambda: self._made(number, attempt),
            lambda: self._claim(number, attempt),
            lambda: self._store(stored),
        ]

    def _made(self, number: int, attempt: int) -> None:
        self.jobs[number] = replace(
            job("PENDING", is_held=True, reason="JobHeldUser"), job=number, is_ours=False
        )
        self.attempts[number] = attempt

    def _claim(self, number: int, attempt: int) -> None:
        if self.pod is not None:
            self.pod = replace(self.pod, claim=Claim(job=number, attempt=attempt, job_mark="ours"))

    def _resume(self, attempt: int) -> None:
        assert self.stored is not None
        alive = [number for number in self.alive() if self.attempts[number] == attempt]
        if not alive:
            self._store(replace(self.stored, attempt=attempt + 1, token_sha256=""))
            return
        self._claim(alive[0], attempt)
        self._store(replace(self.stored, job=alive[0], changed=self.now))

    def _tell(self, state: PlacementState) -> None:
        assert self.pod is not None
        self.pod = replace(self.pod, is_reported_lost=state.lost is not None)

    def _store(self, state: PlacementState | None) -> None:
        self.copies.append(self.stored)
        self.stored = state

    def go_back(self, steps: int) -> None:
        """Have the bus come back with what was stored some writes before."""
        if len(self.copies) >= steps and self.copies[-steps] is not None:
            self._store(self.copies[-steps])

    def _bind(self) -> None:
        assert self.pod is not None
        assert not self.pod.kube_node
        self.pod = replace(self.pod, kube_node=KUBE_NODE)

    def delete(self) -> None:
        """Delete the Pod: at once where no kubelet has it."""
        if self.pod is not None:
            self.pod = replace(self.pod, is_terminating=True) if self.pod.kube_node else None

    def placed(self) -> int | None:
        """Return the job that runs for a Pod that runs, and of which nobody wants the end."""
        found = self.pod
        if (
            found is None
            or found.claim is None
            or not found.kube_node
            or found.is_terminating
            or found.is_over
        ):
            return None
        job = self.jobs.get(found.claim.job)
        is_wanted = job is not None and job.is_running and job.job not in self.releasing
        return found.claim.job if is_wanted else None

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
        claim = None if self.pod is None else self.pod.claim
        for number in self.alive():
            mark = Mark(uid=UID, pod="default/infer", attempt=self.attempts[number])
            if judge(number, mark, self.stored, claim) == "stray":
                assert number != self.placed(), "the job of a Pod that runs is cancelled"
                self.end(number, "CANCELLED")


def judge_step(found: Observed, action: Action) -> None:
    """Hold what is about to be done against what must never be done."""
    gone = found.pod is None or found.pod.is_terminating or found.pod.is_over
    if isinstance(action, Record) and action.state.phase == "ending" and not gone:
        assert not isinstance(found.job, JobUnknown) or found.is_release_requested
        is_well = isinstance(found.job, JobSeen) and found.job.is_running
        assert not is_well or found.is_release_requested
        is_lost = isinstance(found.job, JobGone) and not found.job.has_ended
        if is_lost and found.placement is not None and not found.is_release_requested:
            assert found.placement.lost is not None

    is_untold = found.job == JobGone() and not found.is_release_requested and not gone
    is_bound = found.pod is not None and bool(found.pod.kube_node)
    has_job = found.placement is not None and found.placement.job is not None
    is_placed = found.placement is not None and found.placement.lost is None
    if is_untold and is_bound and has_job and is_placed:
        assert isinstance(action, (ReportLoss, Wait))


class Stories(RuleBasedStateMachine):
    """Things happen in any order; in the end they calm down, and all must be well."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()

    @initialize(is_placed=st.booleans())
    def begins(self, *, is_placed: bool) -> None:
        if is_placed:
            self.all_goes_on()

    @rule()
    def all_goes_on(self) -> None:
        for _ in range(3):
            self.cluster.turn()
            self.slurm_starts_what_waits()
            self.scripts_announce_themselves()
            self.cluster.turn()
            self.cluster.now += timedelta(seconds=8)

    @rule(cut=st.sampled_from([0, 1, 2, 3, UNCUT, UNCUT, UNCUT]))
    def the_scheduler_looks(self, cut: int) -> None:
        self.cluster.turn(cut)

    @rule()
    def the_scheduler_sweeps(self) -> None:
        if not self.cluster.is_slurm_away:
            self.cluster.sweep()

    @rule()
    def another_scheduler_takes_over(self) -> None:
        self.cluster.announced.clear()
        self.cluster.releasing.clear()

    @rule(after_s=st.integers(1, 100))
    def time_passes(self, after_s: int) -> None:
        self.cluster.now += timedelta(seconds=after_s)

    @rule()
    def slurm_starts_what_waits(self) -> None:
        for number in self.cluster.alive():
            found = self.cluster.jobs[number]
            if found.base == "PENDING" and not found.is_held:
                self.cluster.change(number, base="RUNNING", reason="None", nodes=(SLURM_NODE,))

    @rule(does_say_started=st.booleans())
    def the_user_releases_his_job(self, *, does_say_started: bool) -> None:
        for number in self.cluster.alive():
            if self.cluster.jobs[number].is_held:
                self.cluster.change(
                    number, is_held=False, reason="Resources", is_marked_started=does_say_started
                )

    @rule()
    def scripts_announce_themselves(self) -> None:
        running = {n for n in self.cluster.alive() if self.cluster.jobs[n].base == "RUNNING"}
        self.cluster.announced |= running
        self.cluster.launched |= running

    @rule(base=st.sampled_from(["CANCELLED", "PREEMPTED", "TIMEOUT", "NODE_FAIL"]))
    def slurm_ends_the_job(self, base: str) -> None:
        for number in self.cluster.alive():
            self.cluster.end(number, base)

    @rule()
    def no_slurmd_acknowledges_the_launch(self) -> None:
        for number in self.cluster.alive():
            found = self.cluster.jobs[number]
            if found.is_running and not found.is_marked_started and number not in self.cluster.launched:
                again = {"reason": "BeginTime", "nodes": (), "is_requeued": True}
                self.cluster.change(number, base="PENDING", **again)

    @rule()
    def the_job_is_suspended(self) -> None:
        for number in self.cluster.alive():
            if self.cluster.jobs[number].is_running:
                self.cluster.change(number, base="SUSPENDED")

    @rule()
    def the_script_asks_for_the_pods_end(self) -> None:
        self.cluster.releasing |= self.cluster.announced & set(self.cluster.alive())

    @rule()
    def slurm_forgets_jobs_that_are_over(self) -> None:
        over = self.cluster.jobs.keys() - set(self.cluster.alive())
        self.cluster.ended |= over
        for number in over:
            del self.cluster.jobs[number]

    @rule()
    def slurm_forgets_jobs_that_ended_while_nobody_looked(self) -> None:
        over = self.cluster.jobs.keys() - set(self.cluster.alive())
        self.cluster.unseen |= over
        for number in over:
            del self.cluster.jobs[number]

    @rule()
    def slurm_loses_its_state(self) -> None:
        self.cluster.jobs.clear()

    @rule()
    def something_tells_of_missing_jobs_or_does_not(self) -> None:
        self.cluster.does_tell = not self.cluster.does_tell

    @rule()
    def the_bucket_is_lost(self) -> None:
        found, claim = self.cluster.pod, None if self.cluster.pod is None else self.cluster.pod.claim
        if found is None or claim is None or not found.kube_node or found.is_over:
            return  # Of a Pod that waits another attempt may have the number of a lost one.
        if all(self.cluster.attempts[number] <= claim.attempt for number in self.cluster.alive()):
            self.cluster.stored = None

    @rule(steps=st.integers(1, 8))
    def the_bus_comes_back_with_an_older_store(self, steps: int) -> None:
        self.cluster.go_back(steps)

    @rule()
    def slurm_goes_away_or_comes_back(self) -> None:
        self.cluster.is_slurm_away = not self.cluster.is_slurm_away

    @rule()
    def the_user_deletes_the_pod(self) -> None:
        self.cluster.delete()

    @rule()
    def the_pod_succeeds(self) -> None:
        found = self.cluster.pod
        if found is not None and found.kube_node:
            self.cluster.pod = replace(found, is_over=True)

    @rule()
    def the_kubelet_has_ended_the_pod(self) -> None:
        if self.cluster.pod is not None and self.cluster.pod.is_terminating:
            self.cluster.pod = None

    @invariant()
    def no_second_job_is_let_start(self) -> None:
        found = self.cluster
        let = [
            number
            for number in found.alive()
            if found.jobs[number].base != "SUSPENDED"
            and not found.jobs[number].is_held
            and number not in found.releasing
        ]
        assert sum(found.stored is not None and found.stored.job == number for number in let) <= 1
        assert len({found.attempts[number] for number in let}) == len(let)

    @invariant()
    def the_job_of_a_pod_that_is_bound_says_whose_it_is(self) -> None:
        state = self.cluster.stored
        if state is not None and state.phase == "bound" and state.lost is None:
            found = self.cluster.jobs.get(state.job or 0)
            assert found is None or found.is_ours

    def teardown(self) -> None:
        """Let everything calm down."""
        found = self.cluster
        found.is_slurm_away, found.does_tell = False, True
        for _ in range(STEPS_MAX):
            found.turn()
            found.sweep()
            self.slurm_starts_what_waits()
            self.scripts_announce_themselves()
            self.the_kubelet_has_ended_the_pod()
            found.now += timedelta(seconds=60)
        alive = found.alive()
        if found.pod is None or found.pod.is_over:
            assert alive == []
            assert found.stored is None
        else:
            assert found.stored is not None
            assert (found.stored.phase, [found.stored.job]) == ("bound", alive)
            assert found.pod.kube_node == KUBE_NODE
            assert found.jobs[alive[0]].is_running


TestStories = Stories.TestCase
TestStories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_pod_that_runs_runs_on_whatever_older_copy_of_its_placement_the_bus_comes_back_with() -> None:
    story = Stories()
    for _ in range(3):  # The first two jobs are cancelled while they wait.
        story.cluster.now += timedelta(seconds=10)
        story.cluster.turn()
        if story.cluster.attempts.keys() != {JOB, JOB + 1, JOB + 2}:
            story.slurm_ends_the_job("CANCELLED")
            story.cluster.turn()
    story.all_goes_on()
    placed = story.cluster.placed()
    copies = [copy for copy in story.cluster.copies if copy is not None]
    assert placed == JOB + 2
    assert {(copy.attempt, copy.job) for copy in copies} >= {(1, None), (1, JOB + 1), (2, None), (2, placed)}

    for copy in copies:
        for sweeps_first in (True, False):
            found = deepcopy(story.cluster)
            found.stored = copy
            if sweeps_first:
                found.sweep()
            found.turn()
            found.sweep()
            assert found.placed() == placed
            assert found.stored is not None
            assert (found.stored.phase, found.stored.job) == ("bound", placed)


def test_five_hundred_pods_that_come_and_go_within_a_second_leave_nothing_behind() -> None:
    clusters = [Cluster() for _ in range(500)]
    for number, found in enumerate(clusters):
        found.turn(cut=number % 5)
        found.delete()
    for _ in range(10):
        for found in clusters:
            found.turn()
            found.sweep()
            found.now += timedelta(seconds=1)

    assert all(found.stored is None and found.alive() == [] for found in clusters)
