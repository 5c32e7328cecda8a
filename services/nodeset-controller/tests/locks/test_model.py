"""The lock among prologs, epilogs, kubelet, scheduler, a bus that lags and a controller that dies anywhere.

A small world around the real machine: hypothesis chooses who acts next. Never does a job run beside a
workload; when all is over and told, no lock remains.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from sunk_events.locks import LockLevel
from sunk_nodeset_controller.locks.holders import still_released
from sunk_nodeset_controller.locks.machine import decide
from sunk_nodeset_controller.locks.model import (
    OPEN,
    Answer,
    Blockers,
    Granted,
    JobPlace,
    JobSeen,
    LockRequest,
    NodeLock,
    NotRunning,
    Rules,
    Seen,
    Step,
)

T0 = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
RULES = Rules()
EVICTING = Rules(clear_s=0.5)
JOBS = (1, 2, 3)
DEADLINE_S = 50.0
"""A prolog that has no lock by then drains its node and takes its job back."""
ADMITTED_S = 0.4
"""Past a NoSchedule taint a Pod that was bound before it comes up to this late."""
REQUEUE_S = 121.0
"""Slurm does not start a requeued job before this has passed."""

Slurm = Literal["away", "running", "completing"]


class Job:
    """A job of one node as Slurm has it, and its prolog there."""

    def __init__(self) -> None:
        self.slurm: Slurm = "away"
        self.level: LockLevel = "normal"
        self.is_prolog_waiting = False
        self.has_started = False
        self.may_start_from = 0.0
        self.called = 0.0
        """When its prolog began to ask."""


class Pod:
    """Another workload on the Node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_running = True
        self.is_leaving = False


class World(RuleBasedStateMachine):
    """One Node; times are seconds."""

    lock_rules = RULES
    admits_s = float("-inf")
    """How long past the taint the kubelet admits a Pod."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.lock: NodeLock = OPEN
        self.tainted = float("-inf")
        """When the taint came on last."""
        self.pods: list[Pod] = []
        self.on_their_way = 0
        """Pods that the scheduler has chosen this Node for."""
        self.born = 0
        self.drained_for: frozenset[str] = frozenset()
        """The Pods that the node's drain names, if a prolog has drained it."""
        self.in_the_way: tuple[str, ...] = ()
        """Whom the bus says to be in the way."""
        self.jobs = {job: Job() for job in JOBS}
        self.told: dict[int, JobSeen] = {}
        """What the bus has of each job."""
        self.observed: float | None = None
        self.is_busy = False
        self.on_the_way: list[tuple[float, dict[int, Slurm]]] = []
        """What the syncer has seen and the bus does not have yet."""
        self.forget()

    def forget(self) -> None:
        """What a controller that begins knows."""
        self.requests: dict[int, LockRequest] = {}
        self.released: dict[int, datetime] = {}
        self.idle_since: datetime | None = None
        self.clear_since: dict[LockLevel, datetime] = {}

    def at(self, seconds: float) -> datetime:
        return T0 + timedelta(seconds=seconds)

    # --- Slurm ----------------------------------------------------------------------------------

    @rule(job=st.sampled_from(JOBS), level=st.sampled_from(["normal", "strict"]))
    def a_job_is_allocated(self, job: int, level: LockLevel) -> None:
        found = self.jobs[job]
        if found.slurm == "away" and self.now >= found.may_start_from and not self.drained_for:
            found.slurm, found.level, found.is_prolog_waiting = "running", level, True
            found.called = self.now

    @rule(job=st.sampled_from(JOBS), level=st.sampled_from(["normal", "strict"]))
    def a_job_is_allocated_and_nothing_goes_wrong(self, job: int, level: LockLevel) -> None:
        """The usual way, so that what goes wrong afterwards is found sooner."""
        self.a_job_is_allocated(job, level)
        self.the_controller_turns(dies_after=None)
        self.the_others_leave()
        for _ in range(2):
            self.now += 0.6
            self.the_controller_turns(dies_after=None)

    @rule(job=st.sampled_from(JOBS))
    def a_job_is_refused(self, job: int) -> None:
        """The usual way to a drain."""
        self.a_pod_comes_as_soon_as_it_may()
        self.a_job_is_allocated(job, "normal")
        self.the_controller_turns(dies_after=None)
        self.now += DEADLINE_S
        self.the_controller_turns(dies_after=None)
        self.a_prolog_comes_to_its_deadline(job)
        self.an_epilog_runs(job, does_release=True)
        self.the_controller_turns(dies_after=None)

    @rule(job=st.sampled_from(JOBS), late_s=st.sampled_from([0.1, 0.3, 0.5]))
    def a_pod_comes_while_a_job_gets_its_lock(self, job: int, late_s: float) -> None:
        self.the_scheduler_chooses_the_node()
        self.a_job_is_allocated(job, "normal")
        self.the_controller_turns(dies_after=None)
        self.the_others_leave()
        self.the_controller_turns(dies_after=None)
        self.now += late_s
        self.the_controller_turns(dies_after=None)
        if self.on_their_way:
            self.a_pod_comes()

    def a_pod_comes_as_soon_as_it_may(self) -> None:
        self.the_scheduler_chooses_the_node()
        if self.on_their_way:
            self.a_pod_comes()

    @rule()
    def the_bus_has_caught_up(self) -> None:
        self.the_syncer_looks()
        while self.on_the_way:
            self.the_bus_is_told()

    def the_others_leave(self) -> None:
        self.a_pod_is_driven_out()
        for _ in tuple(self.pods):
            self.a_pod_has_ended()
        self.an_ended_pod_is_gone()

    @rule(job=st.sampled_from(JOBS))
    def a_job_ends_or_is_cancelled(self, job: int) -> None:
        if self.jobs[job].slurm == "running":
            self.jobs[job].slurm, self.jobs[job].has_started = "completing", False

    @rule(job=st.sampled_from(JOBS), does_release=st.booleans())
    def an_epilog_runs(self, job: int, *, does_release: bool) -> None:
        found = self.jobs[job]
        if found.slurm == "completing" and not found.is_prolog_waiting:
            found.slurm, found.may_start_from = "away", self.now + REQUEUE_S
            if does_release:
                self.released[job] = self.at(self.now)

    @rule()
    def the_syncer_looks(self) -> None:
        self.on_the_way.append((self.now, {job: found.slurm for job, found in self.jobs.items()}))

    @precondition(lambda self: self.on_the_way)
    @rule()
    def the_bus_is_told(self) -> None:
        seen_at, states = self.on_the_way.pop(0)
        places: dict[Slurm, JobPlace] = {"away": "left", "running": "running", "completing": "completing"}
        for job, state in states.items():
            before, place = self.told.get(job), places[state]
            if (before is None and state == "away") or (before is not None and before.place == place):
                continue
            self.told[job] = JobSeen(place=place, state=state.upper(), changed=self.at(seen_at))
        self.observed, self.is_busy = seen_at, any(state != "away" for state in states.values())

    # --- Kubernetes -----------------------------------------------------------------------------

    @rule()
    def the_scheduler_chooses_the_node(self) -> None:
        if not self.lock.is_tainted:
            self.on_their_way += 1

    @precondition(lambda self: self.on_their_way)
    @rule()
    def a_pod_comes(self) -> None:
        """The scheduler may not have known of a taint yet: then the kubelet decides."""
        self.on_their_way -= 1
        if not self.lock.is_tainted or self.now - self.tainted <= self.admits_s:
            self.born += 1
            self.pods.append(Pod(f"ns/p{self.born}"))

    @rule()
    def a_pod_is_driven_out(self) -> None:
        for pod in self.pods:
            pod.is_leaving = pod.is_leaving or self.lock.is_tainted

    @rule()
    def a_pod_has_ended(self) -> None:
        leaving = next((pod for pod in self.pods if pod.is_leaving and pod.is_running), None)
        if leaving is not None:
            leaving.is_running = False

    @rule()
    def an_ended_pod_is_gone(self) -> None:
        self.pods = [pod for pod in self.pods if pod.is_running]

    @rule(job=st.sampled_from(JOBS))
    def a_prolog_comes_to_its_deadline(self, job: int) -> None:
        """It drains its node for whom it was told of, and takes its job back."""
        found = self.jobs[job]
        if found.is_prolog_waiting and self.now >= found.called + DEADLINE_S:
            self.requests.pop(job, None)
            found.is_prolog_waiting = False
            self.drained_for = self.drained_for or frozenset(self.in_the_way)
            self.a_job_ends_or_is_cancelled(job)

    @precondition(lambda self: self.drained_for and not self.in_the_way)
    @rule()
    def the_syncer_lifts_the_drain(self) -> None:
        assert not self.drained_for & {pod.name for pod in self.pods}
        self.drained_for = frozenset()

    @rule()
    def somebody_takes_the_taint_off_while_nobody_runs(self) -> None:
        if not any(found.has_started for found in self.jobs.values()):
            self.lock = replace(self.lock, is_tainted=False)

    # --- The controller -------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 0.6, 3.0, 6.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def the_controller_dies(self) -> None:
        self.forget()

    @rule(dies_after=st.none() | st.integers(0, 5))
    def the_controller_turns(self, dies_after: int | None) -> None:
        """One turn, as the loop does it; it may die after any of its writes and looks."""
        for job, found in self.jobs.items():
            if found.is_prolog_waiting and job not in self.requests:
                since = self.at(found.called)
                self.requests[job] = LockRequest(
                    job=job, level=found.level, requested_at=self.at(self.now), since=since
                )
        way: Blockers | None = None
        for deed in range(8):
            if deed == dies_after:
                self.forget()
                return
            decision = decide(self.seen(way), self.lock_rules)
            if decision.step is Step.LOOK:
                way = self.look()
                continue
            if decision.lock.is_tainted and not self.lock.is_tainted:
                self.tainted = self.now
            self.lock = decision.lock
            self.in_the_way = decision.in_the_way
            self.now += 0.01
            if decision.step is Step.CLOSE:
                self.clear_since = {}
                continue
            if dies_after != deed + 1:  # Else it dies between its write and its answers.
                self.answer(decision.answers)
            self.idle_since = decision.idle_since if decision.step is Step.LINGER else None
            if not decision.lock.is_tainted:
                self.clear_since = {}
            self.released = still_released(self.released, self.told, self.at(self.now))
            return
        pytest.fail("a turn does not end")

    def seen(self, way: Blockers | None) -> Seen:
        return Seen(
            lock=self.lock,
            now=self.at(self.now),
            requests=tuple(self.requests.values()),
            released=dict(self.released),
            jobs=dict(self.told),
            is_node_busy=self.is_busy,
            observed=None if self.observed is None else self.at(self.observed),
            idle_since=self.idle_since,
            drained_for=tuple(sorted(self.drained_for)),
            way=way,
            clear_since=dict(self.clear_since),
        )

    def look(self) -> Blockers:
        found = Blockers(
            normal=tuple(pod.name for pod in self.pods if pod.is_running),
            strict=tuple(pod.name for pod in self.pods),
        )
        levels: tuple[LockLevel, ...] = ("normal", "strict")
        self.clear_since = {
            level: self.clear_since.get(level, self.at(self.now)) for level in levels if not found.of(level)
        }
        return found

    def answer(self, answers: Mapping[int, Answer]) -> None:
        for job, said in answers.items():
            found = self.jobs[job]
            if not isinstance(said, Granted | NotRunning):
                continue
            self.requests.pop(job, None)
            is_wrong = isinstance(said, NotRunning) and found.slurm == "running"
            if found.is_prolog_waiting and not is_wrong:  # A prolog looks by itself, and asks again.
                found.is_prolog_waiting = False
                found.has_started = found.slurm == "running"

    # --- Never, and in the end ------------------------------------------------------------------

    @invariant()
    def no_job_runs_beside_a_workload(self) -> None:
        assert not (
            any(found.has_started for found in self.jobs.values())
            and any(pod.is_running for pod in self.pods)
        )

    @invariant()
    def no_job_runs_on_a_node_that_is_not_locked_for_it(self) -> None:
        running = {job for job, found in self.jobs.items() if found.has_started}
        granted = {holder.job for holder in self.lock.holders if holder.granted is not None}
        assert running <= granted
        assert not running or self.lock.is_tainted

    def teardown(self) -> None:
        """Everything is let go: the Node is free, and no prolog has been left without an answer."""
        self.on_their_way = 0
        for pod in self.pods:
            pod.is_leaving = True
        for job in JOBS:
            self.a_job_ends_or_is_cancelled(job)
        for _ in range(2):
            self.the_bus_has_caught_up()
            for _ in range(12):
                self.the_others_leave()
                self.now += 1.0
                self.the_controller_turns(dies_after=None)
            for job in JOBS:
                self.an_epilog_runs(job, does_release=False)
            self.now += 70.0
        self.the_bus_has_caught_up()
        for _ in range(3):
            self.the_controller_turns(dies_after=None)
            self.now += 6.0
        self.the_controller_turns(dies_after=None)

        assert not [job for job, found in self.jobs.items() if found.is_prolog_waiting]
        assert self.lock == OPEN
        assert self.in_the_way == ()


class EvictingWorld(World):
    """The same where the taint drives nobody out."""

    lock_rules = EVICTING
    admits_s = ADMITTED_S


TestLock = World.TestCase
BUSY = [HealthCheck.too_slow]
"""Other work on the machine is no failure."""
TestLock.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=BUSY
)
TestEvictingLock = EvictingWorld.TestCase
TestEvictingLock.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=BUSY
)
