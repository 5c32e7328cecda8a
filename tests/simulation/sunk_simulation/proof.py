"""The proof that all of it works: syncer and exporter against the bus' model and a small stub of slurmrestd.

The stub is no model of Slurm: it has nodes that go down and come back, and jobs that run for a while. What
must hold: whatever was killed, paused or cut meanwhile, the bus tells at the end what Slurm has.
"""

import time
from random import Random
from typing import Final

import anyio
import msgspec

from sunk_events import subjects
from sunk_events.codec import decode_state
from sunk_events.nodes import SlurmNodeState
from sunk_simulation.bus.model import ModelNats
from sunk_simulation.http import Reply, Request, serve
from sunk_simulation.services import TOKEN, keep
from sunk_simulation.simulation import Simulation
from sunk_slurm.diag import Diag, DiagAnswer
from sunk_slurm.wire import (
    Answer,
    Job,
    JobsAnswer,
    JobStateRow,
    JobStatesAnswer,
    Node,
    NodesAnswer,
    Number,
    Partition,
    PartitionsAnswer,
    Problem,
)

CLUSTER: Final = "c1"
NODES: Final = 4
PORT: Final = 6820
_VERSION: Final = "v0.0.44"
_NO_SUCH_JOB: Final = 2017
_FORGET_S: Final = 300.0


class SlurmStub:
    """Nodes that go down and come back, jobs that run for a while."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._random = sim.random("slurm")
        self.nodes = {f"n{number}": "IDLE" for number in range(1, NODES + 1)}
        self.jobs: dict[int, Job] = {}
        self._changed = 1
        self._submitted = 0

    async def serve(self) -> None:
        """Be slurmrestd."""
        await serve(PORT, self._answer)

    async def live(self) -> None:
        """Let things happen, for ever."""
        while True:
            await self._sim.sleep(self._random.uniform(5, 60))
            node = self._random.choice(sorted(self.nodes))
            if self._random.random() < 0.3:
                self._turn(node, "IDLE" if self.nodes[node] == "DOWN" else "DOWN")
            elif self.nodes[node] == "IDLE":
                self._run(node)

    def _turn(self, node: str, state: str) -> None:
        self.nodes[node] = state
        self._changed = int(time.time())
        self._sim.trace.write("slurm", "node is", node=node, state=state)
        self._sim.changed()

    def _run(self, node: str) -> None:
        self._submitted += 1
        number = self._submitted
        self._set(number, node, "RUNNING")
        self._turn(node, "ALLOCATED")
        self._sim.network.later(self._random.uniform(10, 90), self._end, number, node)

    def _end(self, number: int, node: str) -> None:
        self._set(number, node, "COMPLETED")
        if self.nodes[node] == "ALLOCATED":
            self._turn(node, "IDLE")
        self._sim.network.later(_FORGET_S, lambda: self.jobs.pop(number))

    def _set(self, number: int, node: str, state: str) -> None:
        now = Number.of(int(time.time()))
        self.jobs[number] = Job(
            job_id=number,
            job_state=(state,),
            nodes=node,
            submit_time=now,
            start_time=now,
            node_count=Number.of(1),
        )
        self._sim.trace.write("slurm", "job is", job=number, state=state, node=node)

    async def _answer(self, request: Request) -> Reply:
        await anyio.sleep(self._random.uniform(0.001, 0.02))
        if request.path == "/openapi/v3":
            return Reply(body=msgspec.json.encode({"paths": {f"/slurm/{_VERSION}/diag/": {}}}))
        path = request.path.removeprefix(f"/slurm/{_VERSION}/")
        if path == "nodes/" and int(request.query.get("update_time") or 0) >= self._changed + 1:
            return Reply(304)
        return Reply(body=msgspec.json.encode(self._said(path)))

    def _said(self, path: str) -> Answer:
        if path == "nodes/":
            nodes = tuple(map(self._node, self.nodes))
            return NodesAnswer(nodes=nodes, last_update=Number.of(int(time.time())))
        if path.startswith("node/"):
            return NodesAnswer(nodes=(self._node(path.removeprefix("node/")),))
        if path == "jobs/state/":
            rows = (JobStateRow(job_id=str(number), state=job.job_state) for number, job in self.jobs.items())
            return JobStatesAnswer(jobs=tuple(rows))
        if path.startswith("job/"):
            job = self.jobs.get(int(path.removeprefix("job/")))
            if job is None:
                return Answer(errors=(Problem(error_number=_NO_SUCH_JOB, error="Invalid job id specified"),))
            return JobsAnswer(jobs=(job,))
        if path == "partitions/":
            return PartitionsAnswer(partitions=(Partition(name="all"),))
        if path == "diag/":
            diag = Diag(req_time=Number.of(int(time.time())), jobs_submitted=self._submitted)
            return DiagAnswer(statistics=diag)
        return Answer()

    def _node(self, name: str) -> Node:
        return Node(name=name, state=(self.nodes[name],), cpus=8, effective_cpus=8, real_memory=1000)


class World:
    """What runs in the proof."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.nats = ModelNats(sim.loop, sim.trace, sim.random("nats"))
        self.nats.changed = sim.changed
        self.slurm = SlurmStub(sim)
        self.nats.start()
        self.slurmrestd = sim.keep("slurmrestd", self.slurm.serve)
        common = {"cluster": CLUSTER, "nats_url": "nats://nats:4222"}
        slurm = {"slurm_url": f"http://slurmrestd:{PORT}", "slurm_token_file": str(TOKEN)}
        self.services = [
            keep(sim, "syncer", 0, common | slurm),
            keep(sim, "syncer", 1, common | slurm),
            keep(sim, "metrics-exporter", 0, common),
        ]

    def told(self) -> dict[str, str]:
        """Return the states of nodes that the bus tells."""
        bucket = subjects.bucket(CLUSTER, SlurmNodeState)
        stream = self.nats.store.streams.get(subjects.bucket_stream(bucket))
        found: dict[str, str] = {}
        for message in stream.messages.values() if stream else ():
            if message.data:
                state = decode_state(SlurmNodeState, message.data)
                found[state.node] = state.state
        return found

    def differs(self) -> str | None:
        """Return how the bus and Slurm differ."""
        told, has = self.told(), self.slurm.nodes
        return None if told == has else f"Slurm has {has}, the bus tells {told}"

    def strike(self, random: Random) -> None:
        """Let something go wrong."""
        victim = random.choice(self.services).process
        seconds = random.uniform(1, 60)
        match random.randrange(7):
            case 0:
                victim.kill()
            case 1:
                victim.pause(seconds)
            case 2:
                self.nats.kill()
                self.sim.network.later(seconds, self.nats.start)
            case 3:
                self.slurmrestd.process.kill()
            case 4:
                for link in self.sim.network.between(victim.host, random.choice(["nats", "slurmrestd"])):
                    link.hold(seconds)
            case 5:
                self.nats.lose_answers(random.randint(1, 3))
            case _:
                self.nats.lose_power()
                self.sim.network.later(seconds, self.nats.start)


async def story(sim: Simulation, *, hours: float, faults: bool) -> None:
    """Let the world run, with faults or without, and see what the bus tells at the end."""
    world = World(sim)
    life = sim.loop.outside.spawn(world.slurm.live())
    random = sim.random("faults")
    ends = hours * 3600
    while sim.now_s < ends:
        await sim.sleep(min(random.uniform(30, 300), max(0.0, ends - sim.now_s)))
        if faults and sim.now_s < ends:
            world.strike(random)
    life.cancel()
    await sim.settles("the bus tells what Slurm has", world.differs, within_s=600)
    for kept in world.services:
        kept.stop()
