"""A day in small: everybody does as they like, everything is killed, and then both sides agree."""

import logging
import random
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime

import anyio
import msgspec
import pytest
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
from sunk_runtime.testing import until
from sunk_syncer.testing import Stage, is_reason

pytestmark = [pytest.mark.lab, pytest.mark.faults, pytest.mark.anyio]
log = logging.getLogger(__name__)

OPERATIONS = 40
NODES = 4


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def slurm(request: pytest.FixtureRequest) -> Iterator[HostSlurm]:
    with running_slurm(request.param, nodes=NodeRange(count=NODES, first_port=0)) as slurm:
        yield slurm


class Day:
    """What is done, and what is known of who did it."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage = stage
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
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

    async def step(self) -> None:
        """Do one thing to one node, or to one process; not to the same node twice in a row."""
        node = self._random.choice([name for name in self._pods if name != self._touched])
        self._touched = node
        weights = {
            self.change: 12,
            self.drain_by_hand: 3,
            self.undrain_by_hand: 3,
            self.resume_by_hand: 1,
            self.submit: 5,
            self.cancel: 1,
            self.requeue_by_hand: 1,
            self.pod_goes: 2,
            self.pod_comes: 4,
            self.restart_slurmd: 1,
            self.kill_syncer: 1,
            self.kill_slurmrestd: 1,
            self.freeze_slurmrestd: 1,
            self.restart_slurmctld: 1,
            self.kill_nats: 1,
        }
        operation: Callable[[str], Awaitable[None]] = self._random.choices(
            list(weights), weights=list(weights.values())
        )[0]
        self.done[operation.__name__] += 1
        await operation(node)
        await anyio.sleep(self._random.choice([0, 0, 0.05, 0.5]))

    async def change(self, node: str) -> None:
        field = self._random.choice(["is_cordoned", "is_ready", "is_condemned"])
        if self._pods[node].phase == "running":
            changed: dict[str, bool] = {field: not getattr(self._pods[node], field)}
            await self._say(msgspec.structs.replace(self._pods[node], **changed))

    async def drain_by_hand(self, node: str) -> None:
        reason = f"ticket {self._random.randrange(10**6)}, not k8s: ours"
        await self._scontrol("update", f"node={node}", "state=drain", f"reason={reason}")
        await anyio.sleep(0.2)  # What was read just before may be written just after: Slurm cannot compare.
        if is_reason(await self._reason(node), reason):
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

    async def cancel(self, node: str) -> None:
        del node
        if self._jobs:
            self._try("scancel", self._jobs.pop())

    async def requeue_by_hand(self, node: str) -> None:
        del node
        if self._jobs:
            job = self._random.choice(self._jobs)
            self._requeued.add(job)
            self._try("scontrol", "requeue", job)

    async def freeze_slurmrestd(self, node: str) -> None:
        del node
        self._stage.slurm.freeze_daemon("slurmrestd")
        await anyio.sleep(self._random.choice([0.5, 4]))
        self._stage.slurm.thaw_daemon("slurmrestd")

    async def pod_goes(self, node: str) -> None:
        self._hit.add(node)
        self._stage.slurm.kill_daemon(node)
        await self._say(replace(self._pods[node], phase="gone", is_ready=False))

    async def pod_comes(self, node: str) -> None:
        self._stage.slurm.start_daemon(node)
        await self._say(pod(node, uid=str(self._random.random())))

    async def restart_slurmd(self, node: str) -> None:
        if self._pods[node].phase == "running":
            self._hit.add(node)
            self._stage.slurm.kill_daemon(node)
            self._stage.slurm.start_daemon(node)

    async def kill_syncer(self, node: str) -> None:
        del node
        self._stage.syncer.kill()
        self._stage.syncer.start()

    async def kill_slurmrestd(self, node: str) -> None:
        del node
        self._stage.slurm.kill_daemon("slurmrestd")
        self._stage.slurm.start_daemon("slurmrestd")

    async def restart_slurmctld(self, node: str) -> None:
        del node
        self._stage.slurm.kill_daemon("slurmctld", signal.SIGTERM)  # Killed, it may forget a drain by hand.
        self._stage.slurm.start_daemon("slurmctld")
        await self._scontrol("ping")

    async def kill_nats(self, node: str) -> None:
        del node
        self._stage.nats.kill()
        self._stage.nats.start()

    async def evening(self) -> None:
        """Everything is well again on Kubernetes' side."""
        for node in self._pods:
            await self.pod_comes(node)

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
        return {job for job in came_back if self._node_of[job] not in self._hit}

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
        with anyio.fail_after(20):
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

        await until(is_said, within_s=20)


def pod(name: str, *, uid: str = "uid-1") -> KubePodState:
    return KubePodState(
        changed=datetime.now(UTC),
        pod=name,
        namespace="slurm",
        nodeset="compute",
        kube_node=f"k-{name}",
        uid=uid,
        phase="running",
        is_ready=True,
    )


@pytest.mark.parametrize("seed", range(1, from_environment().seeds + 1))
async def test_after_a_day_both_sides_agree_and_no_drain_of_another_was_changed(
    stage: Stage, seed: int
) -> None:
    day = Day(stage, seed)
    for _ in range(OPERATIONS):
        await day.step()
    await day.evening()
    print(f"seed {seed}: {OPERATIONS} operations, {dict(day.done)}")  # noqa: T201 - to run it again

    await until(day.are_as_they_should, within_s=60)
    await until(day.are_jobs_told, within_s=60)
    stage.slurm.exec("scancel", "--full", "--user=root")
    for name in set(stage.nodes.keys()) - day.by_hand.keys():
        await stage.until_node(name, None)
    for name, reason in day.by_hand.items():
        await stage.until_node(name, reason)

    assert day.requeued_without_a_cause() == set()
