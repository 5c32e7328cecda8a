"""A day in small: everybody does as they like, everything is killed, and then both sides agree."""

import re
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import anyio
import pytest
from anyio import from_thread, to_thread
from hypothesis import Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from msgspec.structs import replace

from sunk_events.jobs import JobRequeued
from sunk_events.nodesets import KubePodState
from sunk_lab.config import from_environment
from sunk_lab.errors import LabError
from sunk_lab.slurm.conf import NodeRange
from sunk_lab.slurm.host import HostSlurm
from sunk_lab.slurm.releases import RELEASES
from sunk_lab.slurm.testing import running_slurm
from sunk_runtime.errors import SunkError
from sunk_runtime.testing import WITHIN_S, until
from sunk_syncer.testing.stage import Stage, is_reason, ready_pod

pytestmark = [pytest.mark.lab, pytest.mark.faults, pytest.mark.anyio]

HOURS = 10
"""Of a day. What may happen in each hypothesis chooses anew; in the first one nothing but time passes."""
OPERATIONS = 5
"""In an hour."""
NODES = 4
LEASE_S = "3"
"""As users have it: a syncer that is killed is missed for so long."""


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def slurm(request: pytest.FixtureRequest) -> Iterator[HostSlurm]:
    with running_slurm(request.param, nodes=NodeRange(count=NODES, first_port=0)) as slurm:
        yield slurm


class Day:
    """What is done, and what is known of who did it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._pods = {name: pod(name) for name in sorted(stage.nodes.keys())}
        self.by_hand: dict[str, str] = {}
        """Drains of somebody else, by node."""
        self._jobs: list[str] = []
        self._node_of: dict[str, str] = {}
        self._requeued: set[str] = set()
        """Jobs that somebody requeued by hand."""
        self._hit: set[str] = set()
        """Nodes whose slurmd was lost, and with it whatever ran there."""
        self.done = Counter[str]()
        self._touched = ""

    def node(self, number: int) -> str:
        """Return a node, not the same twice in a row: Slurm has no compare-and-set."""
        names = [name for name in self._pods if name != self._touched]
        self._touched = names[number % len(names)]
        return self._touched

    async def change(self, node: str, **fields: bool) -> None:
        if self._pods[node].phase == "running":
            await self._say(replace(self._pods[node], **fields))

    async def drain_by_hand(self, node: str, ticket: int) -> None:
        reason = f"ticket {ticket}, not k8s: ours"
        before = len(self._stage.syncer.log)
        await self._scontrol("update", f"node={node}", "state=drain", f"reason={reason}")

        async def is_seen() -> bool:
            told = self._stage.nodes.get(node)
            is_told = told is not None and is_reason(told.reason, reason)
            return is_told or not is_reason(await self._reason(node), reason)

        # What the syncer had read before it may write until it sees this: Slurm cannot compare.
        await until(is_seen)
        await anyio.sleep(0.2)
        writes = self._stage.syncer.log[before:]
        if is_reason(await self._reason(node), reason) or any(is_upon(line, node, reason) for line in writes):
            self.by_hand[node] = reason

    async def undrain_by_hand(self, node: str) -> None:
        await self._scontrol("update", f"node={node}", "state=undrain")
        self.by_hand.pop(node, None)

    async def resume_by_hand(self, node: str) -> None:
        shown = await self._scontrol("show", "node", node)
        if "DRAIN" in shown or "DOWN" in shown:
            self._try("scontrol", "update", f"node={node}", "state=resume")
            if "DRAIN" not in await self._scontrol("show", "node", node):
                self.by_hand.pop(node, None)

    async def submit(self, node: str) -> None:
        """A job that runs for the whole day, on that node when it may."""
        words = ("--requeue", f"--nodelist={node}", "-D/", "-o/dev/null", "--wrap=sleep 3600")
        if job := self._try("sbatch", "--parsable", *words):
            self._jobs.append(job)
            self._node_of[job] = node

    async def cancel(self) -> None:
        if self._jobs:
            self._try("scancel", self._jobs.pop())

    async def requeue_by_hand(self, number: int) -> None:
        if self._jobs:
            job = self._jobs[number % len(self._jobs)]
            self._requeued.add(job)
            self._try("scontrol", "requeue", job)

    async def freeze_slurmrestd(self, for_s: float) -> None:
        self._stage.slurm.freeze_daemon("slurmrestd")
        await anyio.sleep(for_s)
        self._stage.slurm.thaw_daemon("slurmrestd")

    async def pod_goes(self, node: str) -> None:
        self._hit.add(node)
        self._stage.slurm.kill_daemon(node)
        await self._say(replace(self._pods[node], phase="gone", is_ready=False))

    async def pod_comes(self, node: str) -> None:
        self._stage.slurm.start_daemon(node)
        await self._say(pod(node, uid=f"uid-{self.done.total()}"))

    async def restart_slurmd(self, node: str) -> None:
        if self._pods[node].phase == "running":
            self._hit.add(node)
            self._stage.slurm.kill_daemon(node)
            self._stage.slurm.start_daemon(node)

    async def kill_syncer(self) -> None:
        self._stage.syncer.kill()
        self._stage.syncer.start(lease_ttl_s=LEASE_S)

    async def kill_slurmrestd(self) -> None:
        self._stage.slurm.kill_daemon("slurmrestd")
        self._stage.slurm.start_daemon("slurmrestd")

    async def restart_slurmctld(self) -> None:
        self._stage.slurm.kill_daemon("slurmctld", signal.SIGTERM)  # Killed, it may forget a drain by hand.
        self._stage.slurm.start_daemon("slurmctld")
        await self._scontrol("ping")

    async def kill_nats(self) -> None:
        bus, before = self._stage.bus, self._stage.bus.reconnects
        self._stage.nats.kill()
        self._stage.nats.start()
        # nats-py leaves a connection open that breaks while it is made: not the next kill before that.
        await until(lambda: bus.reconnects > before and bus.is_connected)

    async def evening(self) -> None:
        """Have everything be well again on Kubernetes' side, and both sides agree."""
        for node in self._pods:
            await self.pod_comes(node)
        await until(self.are_as_they_should)
        await until(self.are_jobs_told)
        self._stage.slurm.exec("scancel", "--full", "--user=root")
        for name in self._pods:
            await self._stage.until_node(name, self.by_hand.get(name))

    async def are_as_they_should(self) -> bool:
        """Whether Slurm itself shows the drains by hand, each with its reason, and no other."""
        shown = {name: await self._scontrol("show", "node", name) for name in self._pods}
        drained = {name for name, text in shown.items() if "DRAIN" in text}
        if drained != self.by_hand.keys():
            return False
        return all([is_reason(await self._reason(name), self.by_hand[name]) for name in drained])

    async def are_jobs_told(self) -> bool:
        """Whether the bus has the jobs that run in Slurm as running, and no other."""
        running = self._try("squeue", "-h", "-t", "RUNNING", "-o", "%i").split()
        told = {str(job.job) for job in self._stage.jobs.values() if job.state == "RUNNING"}
        return told == set(running)

    def requeued_without_a_cause(self) -> set[str]:
        """Jobs that came back into the queue though nobody asked for it and no slurmd of theirs was lost."""
        facts = self._stage.facts
        came_back = {fact.subject for fact in facts if isinstance(fact, JobRequeued)} - self._requeued
        return {job for job in came_back & self._node_of.keys() if self._node_of[job] not in self._hit}

    def _try(self, *words: str) -> str:
        """Do it if Slurm lets it be done now."""
        try:
            return self._stage.slurm.exec(*words).strip()
        except LabError:
            return ""

    async def _reason(self, node: str) -> str:
        found = re.search(r"Reason=(.*) \[", await self._scontrol("show", "node", node))
        return found[1] if found else ""

    async def _scontrol(self, *words: str) -> str:
        """Run it, again where slurmctld is not there yet or does not know the node's state yet."""
        with anyio.fail_after(WITHIN_S):
            while True:
                try:
                    return self._stage.slurm.exec("scontrol", *words)
                except LabError:
                    await anyio.sleep(0.2)

    async def _say(self, state: KubePodState) -> None:
        self._pods[state.pod] = state

        async def is_said() -> bool:
            try:
                await self._stage.pod(state)
            except SunkError:  # The bus was killed a moment ago.
                return False
            return True

        await until(is_said)


def is_upon(line: dict[str, Any], node: str, reason: str) -> bool:  # Any: log lines carry what they like.
    """Whether *line* is of a change of the state of *node* that was decided upon a look at that *reason*."""
    if (line["message"], line.get("node")) != ("node changed", node) or line["action"] == "DescribeNode":
        return False
    return is_reason(line["reason_before"], reason)


def pod(name: str, *, uid: str = "uid-1") -> KubePodState:
    return replace(ready_pod(name), kube_node=f"k-{name}", uid=uid)


NODE = st.integers(0, 10**6)


Done = Coroutine[Any, Any, None]  # Any: nobody sends, nobody returns.


def on_a_node(name: str, action: Callable[[Day, str], Done]) -> Callable[["Hour", int], None]:
    """Return a rule: it may happen to any node."""

    @rule(node=NODE)
    def happens(hour: "Hour", node: int) -> None:
        hour.do(name, partial(action, hour.day, hour.day.node(node)))

    return happens


def somewhere(name: str, action: Callable[[Day], Done]) -> Callable[["Hour"], None]:
    """Return a rule: it may happen, to no node in particular."""

    @rule()
    def happens(hour: "Hour") -> None:
        hour.do(name, partial(action, hour.day))

    return happens


class Hour(RuleBasedStateMachine):
    """What may happen in an hour, in any order. Each rule ends when it was done, not when anybody noticed."""

    day: Day

    def do(self, name: str, action: Callable[[], Done]) -> None:
        self.day.done[name] += 1
        from_thread.run(action)

    @rule()
    def a_bit_of_time_passes(self) -> None:
        self.do("a moment", partial(anyio.sleep, 0.3))

    @rule(node=NODE, is_cordoned=st.sampled_from([True, True, False]))
    def cordon_or_uncordon(self, node: int, *, is_cordoned: bool) -> None:
        action = partial(self.day.change, self.day.node(node), is_cordoned=is_cordoned)
        self.do("cordon" if is_cordoned else "uncordon", action)

    @rule(node=NODE, is_ready=st.booleans())
    def a_pod_is_ready_or_not(self, node: int, *, is_ready: bool) -> None:
        self.do("readiness", partial(self.day.change, self.day.node(node), is_ready=is_ready))

    @rule(node=NODE, is_condemned=st.booleans())
    def a_pod_is_to_go_or_not(self, node: int, *, is_condemned: bool) -> None:
        self.do("condemned", partial(self.day.change, self.day.node(node), is_condemned=is_condemned))

    @rule(node=NODE, ticket=st.integers(1, 10**6))
    def somebody_drains(self, node: int, ticket: int) -> None:
        self.do("drain by hand", partial(self.day.drain_by_hand, self.day.node(node), ticket))

    @rule(job=NODE)
    def a_job_is_requeued(self, job: int) -> None:
        self.do("requeue by hand", partial(self.day.requeue_by_hand, job))

    @rule(for_s=st.sampled_from([0.5, 2.0]))
    def slurmrestd_hangs(self, for_s: float) -> None:
        self.do("slurmrestd hangs", partial(self.day.freeze_slurmrestd, for_s))

    somebody_undrains = on_a_node("undrain by hand", Day.undrain_by_hand)
    somebody_resumes = on_a_node("resume by hand", Day.resume_by_hand)
    a_job_comes = on_a_node("job", Day.submit)
    a_pod_goes = on_a_node("pod gone", Day.pod_goes)
    a_pod_comes = on_a_node("pod back", Day.pod_comes)
    slurmd_is_killed = on_a_node("slurmd killed", Day.restart_slurmd)
    a_job_is_cancelled = somewhere("cancel", Day.cancel)
    the_syncer_is_killed = somewhere("syncer killed", Day.kill_syncer)
    slurmrestd_is_killed = somewhere("slurmrestd killed", Day.kill_slurmrestd)
    slurmctld_starts_again = somewhere("slurmctld restarted", Day.restart_slurmctld)
    the_bus_is_killed = somewhere("nats killed", Day.kill_nats)


@pytest.mark.parametrize("number", range(1, from_environment().seeds + 1))
async def test_after_a_day_both_sides_agree_and_no_drain_of_another_was_changed(
    stage: Stage, number: int
) -> None:
    await stage.stop_syncer()
    stage.syncer.start(lease_ttl_s=LEASE_S)
    today = Day(stage)

    @seed(number)
    class Today(Hour):
        day = today

    hours = settings(
        max_examples=HOURS,
        stateful_step_count=OPERATIONS,
        database=None,
        phases=[Phase.generate],  # What is tried again meets another hour.
    )
    await to_thread.run_sync(partial(run_state_machine_as_test, Today, settings=hours))
    print(f"seed {number}: {today.done.total()} operations, {dict(today.done)}")  # noqa: T201 - to run it again

    await today.evening()
    assert today.requeued_without_a_cause() == set()
