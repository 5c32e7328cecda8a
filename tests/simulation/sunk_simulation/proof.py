"""The proof that all of it works: two syncers and an exporter between the models of NATS and of Slurm.

Kubernetes is played by a process that cordons and uncordons, on the bus, in nodeset-controller's place. What
must hold: whatever was killed, paused, cut, lost or stale meanwhile, no drain of another's was changed and no
job of another's cancelled, and at the end the bus tells what Slurm has and Slurm has what is wanted.
"""

from datetime import UTC, datetime
from random import Random
from typing import Final, TypeVar

import anyio

from sunk_events import subjects
from sunk_events.base import State
from sunk_events.nodesets import KubePodState, KubeWatchState
from sunk_runtime.errors import SunkError
from sunk_runtime.jetstream import Bus, BusSettings, connect
from sunk_runtime.views import StateView, following
from sunk_runtime.writer import StateWriter
from sunk_simulation.bus.model import ModelNats
from sunk_simulation.checks import BusChecks, SlurmChecks, differs, facts_without_state
from sunk_simulation.services import TOKEN, keep
from sunk_simulation.simulation import Simulation
from sunk_simulation.slurm.conf import SlurmConf
from sunk_simulation.slurm.life import Life
from sunk_simulation.slurm.model import PORT, ModelSlurm
from sunk_simulation.slurm.slurmd import NodeConf

CLUSTER: Final = "c1"
NODES: Final = 4
_SEEN_EVERY_S: Final = 10.0
_CORDONS: Final = 0.3
"""How likely a node is cordoned or uncordoned then."""
BUS: Final = BusSettings(url="nats://nats:4222")


class Kube:
    """What nodeset-controller says of Kubernetes: which Nodes are cordoned."""

    def __init__(self, sim: Simulation, nodes: list[str], *, cordons: float = _CORDONS) -> None:
        self.cordoned: dict[str, bool] = dict.fromkeys(nodes, False)
        self._sim = sim
        self._cordons = cordons
        self.is_over = False

    async def tell(self) -> None:
        """Be its process."""
        async with connect(BUS, "nodeset-controller") as bus:
            await bus.provision(CLUSTER, BUS)
            pods, watch = writer(bus, KubePodState), writer(bus, KubeWatchState)
            async with following(pods.view, watch.view):
                while True:
                    with anyio.move_on_after(_SEEN_EVERY_S):
                        await self._tell_all(pods, watch)
                    await anyio.sleep(_SEEN_EVERY_S)
                    if self.is_over or not self._cordons:
                        continue
                    lots = self._sim.item("cordon")
                    if lots is not None and lots.random() < self._cordons:
                        node = lots.choice(sorted(self.cordoned))
                        self.cordoned[node] = not self.cordoned[node]

    async def _tell_all(self, pods: StateWriter[KubePodState], watch: StateWriter[KubeWatchState]) -> None:
        now = datetime.now(UTC)
        try:
            await watch.record(
                subjects.LEADER_KEY,
                KubeWatchState(changed=now, seen=now),
                revision=watch.view.revision(subjects.LEADER_KEY),
            )
            for node, is_cordoned in self.cordoned.items():
                state = KubePodState(
                    changed=now,
                    pod=node,
                    namespace="slurm",
                    nodeset="compute",
                    kube_node=f"k-{node}",
                    uid=f"uid-{node}",
                    phase="running",
                    is_ready=True,
                    is_cordoned=is_cordoned,
                )
                known = pods.view.get(node)
                if known is None or known.is_cordoned != is_cordoned:
                    await pods.record(node, state, revision=pods.view.revision(node))
        except SunkError:
            return  # The next round tells it.


S = TypeVar("S", bound=State)


def writer(bus: Bus, kind: type[S]) -> StateWriter[S]:
    return StateWriter(bus, StateView(bus, CLUSTER, kind), fence=None)


class World:
    """What runs in the proof."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.nats = ModelNats(sim.loop, sim.trace, sim.random("nats"))
        self.nats.changed = sim.changed
        release = sim.random("release").choice(("24.11", "26.05"))
        nodes = [NodeConf(f"n{number}", gpus=8) for number in range(1, NODES + 1)]
        self.slurm = ModelSlurm(sim.loop, sim.trace, sim.random("slurm"), SlurmConf(release=release), nodes)
        self.slurm.changed = sim.changed
        self.checks = SlurmChecks(self.slurm)
        sim.never("a service touches what is another's", self.checks.drain_of_another_is_changed)
        sim.never("an older leader writes upon a later one", BusChecks(self.nats).older_leader_writes)
        self.nats.start()
        self.slurm.start()
        self.kube = Kube(sim, [node.name for node in nodes])
        common = {"cluster": CLUSTER, "nats_url": "nats://nats:4222"}
        slurm = {"slurm_url": f"http://slurmrestd:{PORT}", "slurm_token_file": str(TOKEN)}
        self.services = [
            keep(sim, "syncer", 0, common | slurm),
            keep(sim, "syncer", 1, common | slurm),
            keep(sim, "metrics-exporter", 0, common),
            sim.keep("nodeset-controller", self.kube.tell),
        ]

    def unsettled(self) -> str | None:
        """Return what is not as it should be when nothing goes wrong any more."""
        wanted = sorted(node for node, is_cordoned in self.kube.cordoned.items() if is_cordoned)
        drained = sorted(node.name for node in self.slurm.state.nodes.values() if "DRAIN" in node.flags)
        if wanted != drained:
            return f"cordoned are {wanted}, drained {drained}"
        return differs(self.nats, self.slurm, CLUSTER) or facts_without_state(self.nats, CLUSTER)

    def strike(self, random: Random) -> None:
        """Let something go wrong."""
        victim = random.choice(self.services).process
        seconds = random.uniform(1, 60)
        match random.randrange(9):
            case 0:
                victim.kill()
            case 1:
                victim.pause(seconds)
            case 2:
                self.nats.kill()
                self.sim.network.later(seconds, self.nats.start)
            case 3:
                for link in self.sim.network.between(victim.host, random.choice(["nats", "slurmrestd"])):
                    link.hold(seconds)
            case 4:
                self.nats.lose_answers(random.randint(1, 3))
            case 5:
                self.nats.lose_power()
                self.sim.network.later(seconds, self.nats.start)
            case 6 | 7:
                self.slurm.restd.strike(random, seconds)
            case _:
                self._strike_slurmctld(random, seconds)

    def _strike_slurmctld(self, random: Random, seconds: float) -> None:
        match random.randrange(4):
            case 0:
                self.slurm.kill_ctld()
            case 1:
                self.slurm.stop_ctld()
            case 2:
                self.slurm.lose_jobs()
            case _:
                if self.slurm.ctld is not None:
                    self.slurm.ctld.process.pause(seconds)
                return
        self.checks.forget_what_slurm_lost()
        self.sim.network.later(seconds, self.slurm.start_ctld)


async def story(sim: Simulation, *, hours: float, faults: bool) -> None:
    """Let the world run, with faults or without, and see how it is at the end."""
    world = World(sim)
    life = Life(sim, world.slurm)
    going_on = sim.loop.outside.spawn(life.go_on())
    random = sim.random("faults")
    ends = hours * 3600
    while sim.now_s < ends:
        await sim.sleep(min(random.uniform(30, 300), max(0.0, ends - sim.now_s)))
        if faults and sim.now_s < ends and (lots := sim.item("fault")) is not None:
            world.strike(lots)
    going_on.cancel()
    await sim.sleep(120)  # What was to come back is back.
    world.kube.is_over = True
    life.end()
    await sim.settles("all is as it is wanted", world.unsettled, within_s=600)
    for kept in world.services:
        kept.stop()
