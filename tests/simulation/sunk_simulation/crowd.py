"""Many nodes that are drained and lifted at once, by us and by hand, while Slurm and the bus fail oddly.

Two syncers; nodeset-controller and pod-scheduler are played on the bus. Nothing is paused and no link is cut,
so what a service writes rests on what was true `OLD_S` ago at most: an older drain by hand is never changed.
Facts, buckets and leases are lost one by one, and whole stores go back.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import anyio

from sunk_events import subjects
from sunk_events.jobs import SlurmJobState
from sunk_events.nodes import SlurmNodeState
from sunk_events.nodesets import KubePodState, KubeWatchState
from sunk_events.placements import PlacementState
from sunk_runtime.clock import now
from sunk_runtime.errors import SunkError
from sunk_runtime.jetstream import connect
from sunk_runtime.views import following
from sunk_runtime.writer import StateWriter
from sunk_simulation.bus.model import ModelNats
from sunk_simulation.bus.store import Store
from sunk_simulation.checks import BusChecks, JobChecks, SlurmChecks, differs, facts_without_state
from sunk_simulation.proof import BUS, CLUSTER, Kube, writer
from sunk_simulation.services import TOKEN, keep
from sunk_simulation.simulation import Simulation
from sunk_simulation.slurm.commands import CommandError
from sunk_simulation.slurm.conf import SlurmConf
from sunk_simulation.slurm.model import PORT, ModelSlurm
from sunk_simulation.slurm.slurmd import NodeConf
from sunk_simulation.slurm.slurmrestd import SERVICE_USER

NODES: Final = 24
"""So many that the syncer reads one list for all of them."""
OLD_S: Final = 8
"""A look is good for 5 s, and the answer to a write takes two at most."""
EVERY_S: Final = (4.0, 20.0)
SCENES: Final = 0.15
"""How often something is a scene; what comes first is one."""
_OVERDUE: Final = "k8s: pod deletion timeout"
_BUCKETS: Final = tuple(
    subjects.bucket_stream(bucket)
    for bucket in (
        subjects.lease_bucket(CLUSTER),
        *(
            subjects.bucket(CLUSTER, kind)
            for kind in (SlurmNodeState, SlurmJobState, KubePodState, KubeWatchState, PlacementState)
        ),
    )
)


class Placements:
    """What pod-scheduler says: on which nodes a Pod is overdue, whose job is over."""

    def __init__(self, nodes: list[str]) -> None:
        self.nodes = nodes
        self.overdue: dict[str, bool] = {}
        """Nodes on which such a Pod runs; False: it has gone."""

    async def tell(self) -> None:
        """Be its process: slow to say again what was lost."""
        async with connect(BUS, "pod-scheduler") as bus:
            await bus.provision(CLUSTER, BUS)
            placements = writer(bus, PlacementState)
            async with following(placements.view):
                while True:
                    await anyio.sleep(12)
                    for node, runs in list(self.overdue.items()):
                        with anyio.move_on_after(10):
                            await self._tell(placements, node, runs=runs)

    async def _tell(self, placements: StateWriter[PlacementState], node: str, *, runs: bool) -> None:
        key = f"uid-{node}"
        try:
            revision = placements.view.revision(key)
            if not runs:
                await placements.forget(key, revision=revision)
                return
            state = PlacementState(
                changed=now(),
                uid=key,
                namespace="default",
                pod=f"p-{node}",
                phase="ending",
                node=node,
                is_overdue=True,
            )
            await placements.record(key, state, revision=revision)
        except SunkError:
            return  # The next round tells it.


class World:
    """What runs."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.nats = ModelNats(sim.loop, sim.trace, sim.random("nats"))
        self.nats.changed = sim.changed
        release = sim.random("release").choice(("24.11", "26.05"))
        self.names = [f"n{number:02}" for number in range(1, NODES + 1)]
        nodes = [NodeConf(name, gpus=8) for name in self.names]
        self.slurm = ModelSlurm(sim.loop, sim.trace, sim.random("slurm"), SlurmConf(release=release), nodes)
        self.slurm.changed = sim.changed
        checks = SlurmChecks(self.slurm, old_s=OLD_S)
        sim.never("a service touches what is another's", checks.drain_of_another_is_changed)
        sim.never("an older leader writes upon a later one", BusChecks(self.nats).older_leader_writes)
        jobs = JobChecks(self.nats, self.slurm, CLUSTER)
        sim.never("a living job is forgotten", jobs.living_job_is_forgotten)
        sim.never("a node is lifted whose Pod may run", lambda: self._lifted)
        self._lifted: str | None = None
        self._reasons: dict[str, str] = {}
        """Of nodes, as they were when somebody changed them last."""
        self._touched, self.slurm.on_node_touched = self.slurm.on_node_touched, self._node_touched
        self.nats.start()
        self.slurm.start()
        self.kube = Kube(sim, self.names, cordons=0.0)
        self.placements = Placements(self.names)
        self._older: Store | None = None
        self._drains = 0
        common = {"writes_at_once": "2", "cluster": CLUSTER, "nats_url": "nats://nats:4222"}
        slurm = {"slurm_url": f"http://slurmrestd:{PORT}", "slurm_token_file": str(TOKEN)}
        self.services = [
            keep(sim, "syncer", 0, common | slurm),
            keep(sim, "syncer", 1, common | slurm),
            sim.keep("nodeset-controller", self.kube.tell),
            sim.keep("pod-scheduler", self.placements.tell),
        ]

    def _node_touched(self, node: str, states: list[str], user: str, reason: str) -> None:
        has, self._reasons[node] = self._reasons.get(node, ""), reason
        lifts = states and "DRAIN" not in states and user == SERVICE_USER
        if lifts and has.startswith(_OVERDUE) and self.placements.overdue.get(node):
            self._lifted = f"{node} had {has!r}, and its Pod runs"
        self._touched(node, states, user, reason)

    def unsettled(self) -> str | None:
        """Return what is not as it should be when nothing goes wrong any more."""
        wanted = {node for node, is_cordoned in self.kube.cordoned.items() if is_cordoned}
        wanted |= {node for node, runs in self.placements.overdue.items() if runs}
        drained = {node.name for node in self.slurm.state.nodes.values() if "DRAIN" in node.flags}
        if wanted != drained:
            return f"to be drained are {sorted(wanted)}, drained {sorted(drained)}"
        return self.untold() or facts_without_state(self.nats, CLUSTER)

    def untold(self) -> str | None:
        """Return what the bus tells otherwise than Slurm has it."""
        return differs(self.nats, self.slurm, CLUSTER)

    def live(self, lots: Random) -> None:
        """Let people do something."""
        some = lots.sample(self.names, lots.randint(1, NODES // 3))
        deeds: list[tuple[int, Callable[[], None]]] = [
            (3, lambda: self.kube.cordoned.update(dict.fromkeys(self.names, True))),
            (2, lambda: self.kube.cordoned.update(dict.fromkeys(self.names, False))),
            (1, lambda: self.kube.cordoned.update({node: not self.kube.cordoned[node] for node in some})),
            (2, lambda: self._drain(some)),
            (1, lambda: self._submit([lots.randint(20, 600) for _ in some[:4]])),
            (1, lambda: self.placements.overdue.update({some[0]: not self.placements.overdue.get(some[0])})),
        ]
        _one(lots, deeds)()

    def strike(self, lots: Random) -> None:
        """Let something go wrong."""
        restd, nats, seconds, count = self.slurm.restd, self.nats, lots.uniform(5, 60), lots.randint(1, 4)
        faults: list[tuple[int, Callable[[], None]]] = [
            (2, lambda: self._lose_slurmrestd(seconds, count if lots.random() < 0.7 else 0)),
            (2, lambda: self._be_slow(seconds, lots.uniform(1, 1.9))),
            (1, lambda: restd.fail_lists(count)),
            (1, lambda: restd.refuse_looks(count)),
            (1, lambda: restd.empty_looks(count)),
            (1, lambda: restd.empty_lists(count)),
            (1, lambda: nats.have_no_leader(lots.choice(_BUCKETS), seconds)),
            (1, lambda: nats.lose_stream(lots.choice(_BUCKETS))),
            (1, self._remember),
            (1, lambda: self._go_back(seconds)),
            (1, lots.choice(self.services).process.kill),
        ]
        _one(lots, faults)()

    def _drain(self, nodes: list[str]) -> None:
        self._drains += 1
        for node in nodes:
            self.do("scontrol", "update", f"node={node}", "state=drain", f"reason=ticket {self._drains}")

    def _submit(self, run_s: list[int]) -> None:
        for seconds in run_s:
            self.do("sbatch", "--parsable", f"--wrap=sleep {seconds}")

    def _lose_slurmrestd(self, seconds: float, lists: int) -> None:
        self.slurm.restd.kill()
        self.sim.network.later(seconds, self.slurm.restd.start)
        self.sim.network.later(seconds, self.slurm.restd.fail_lists, lists)

    def _be_slow(self, seconds: float, most_s: float) -> None:
        self.slurm.restd.latency_s = (0.5, most_s)
        self.sim.network.later(seconds, setattr, self.slurm.restd, "latency_s", (0.001, 0.01))

    def _remember(self) -> None:
        self._older = self.nats.store.copy()

    def _go_back(self, seconds: float) -> None:
        if self._older is not None:
            self.nats.go_back(self._older)
            self.sim.network.later(seconds / 10, self.nats.start)

    async def scene(self, lots: Random) -> None:
        """Let things go wrong that hurt only together."""
        scenes = (
            self.drains_by_hand_while_lists_fail,
            self.drains_by_hand_while_writes_wait,
            self.placements_are_lost,
            self.the_store_goes_back,
            self.looks_find_nothing,
            self.states_are_not_stored,
            self.the_lease_is_lost,
        )
        await scenes[lots.randrange(len(scenes))](lots)

    async def drains_by_hand_while_lists_fail(self, lots: Random) -> None:
        """A list was read before; nobody knows of the drains, then all are to be drained."""
        self.slurm.restd.latency_s = (0.2, 0.4)  # Looks meet, so that a list is read for the rest.
        self._cordon(self.names)
        await self.sim.sleep(lots.uniform(20, 30))
        self._cordon([])
        await self.sim.sleep(lots.uniform(60, 70))  # Until all is written that was to be.
        self.slurm.restd.do_lists_fail = True
        self._drain(lots.sample(self.names, lots.randint(NODES // 2, NODES - 4)))
        await self.sim.sleep(OLD_S + lots.uniform(1, 10))
        # In another order: that list, read as the first were lifted, has those not drained.
        self.kube.cordoned = dict.fromkeys(lots.sample(self.names, NODES), True)
        await self.sim.sleep(lots.uniform(12, 30))
        self.slurm.restd.do_lists_fail = False
        self.slurm.restd.latency_s = (0.001, 0.01)
        await self.sim.sleep(15)

    async def drains_by_hand_while_writes_wait(self, lots: Random) -> None:
        """Slurm is slow, and many nodes are to be lifted."""
        self._cordon(self.names)
        await self.sim.sleep(lots.uniform(20, 30))
        self._cordon([])
        self.slurm.restd.latency_s = (1, 1.9)
        await self.sim.sleep(lots.uniform(12, 20))
        self._drain(lots.sample(self.names, lots.randint(NODES // 2, NODES)))
        await self.sim.sleep(40)
        self.slurm.restd.latency_s = (0.001, 0.01)

    async def placements_are_lost(self, lots: Random) -> None:
        """Who wrote them does not know it at once."""
        self.placements.overdue.update(dict.fromkeys(lots.sample(self.names, 3), True))
        await self.sim.sleep(lots.uniform(25, 40))
        self.nats.lose_stream(subjects.bucket_stream(subjects.bucket(CLUSTER, PlacementState)))
        for kept in self.services[:2]:
            kept.process.kill()  # So nobody remembers.
        self.services[3].process.pause(lots.uniform(10, 60))
        await self.sim.sleep(60)

    async def the_store_goes_back(self, lots: Random) -> None:
        """Much has happened since the copy."""
        older = self.nats.store.copy()
        self._cordon(lots.sample(self.names, lots.randint(2, NODES)))
        self._submit([600, 600])
        await self.sim.sleep(lots.uniform(15, 40))
        self.nats.go_back(older)
        self.sim.network.later(lots.uniform(0.1, 5), self.nats.start)
        await self.sim.sleep(20)

    async def looks_find_nothing(self, lots: Random) -> None:
        """Some show nothing of a job that is there."""
        self._submit([600] * 4)
        await self.sim.sleep(lots.uniform(61, 70))
        self.slurm.restd.empty_looks(lots.randint(1, 4))
        await self.sim.sleep(40)

    async def states_are_not_stored(self, lots: Random) -> None:
        """Facts are; and what they tell is over before their states can be."""
        bucket = subjects.bucket(CLUSTER, SlurmNodeState)
        some = lots.sample(self.names, lots.randint(2, 10))
        self.nats.have_no_leader(subjects.bucket_stream(bucket), 30)
        self._drain(some)
        await self.sim.sleep(lots.uniform(6, 15))
        for node in some:
            self.do("scontrol", "update", f"node={node}", "state=undrain")
        await self.sim.sleep(40)

    async def the_lease_is_lost(self, lots: Random) -> None:
        """Its holder has much to write."""
        for _ in range(4):
            some = lots.sample(self.names, 8)
            self.nats.lose_stream(subjects.bucket_stream(subjects.lease_bucket(CLUSTER)))
            for _ in range(5):
                self._drain(some)
                await self.sim.sleep(lots.uniform(1, 3))
                for node in some:
                    self.do("scontrol", "update", f"node={node}", "state=undrain")
                await self.sim.sleep(lots.uniform(1, 3))

    def _cordon(self, nodes: list[str]) -> None:
        self.kube.cordoned.update({node: node in nodes for node in self.names})

    def do(self, *words: str) -> None:
        """Do it, if Slurm lets it be done now."""
        try:
            self.slurm.exec(*words)
        except CommandError as error:
            self.sim.trace.write("user", "is refused", error=error)

    def end(self) -> None:
        """Leave no job and no drain by hand."""
        self.do("scancel", "--user=root")
        for node in self.names:
            record = self.slurm.state.nodes[node]
            if "DRAIN" in record.flags and record.reason.startswith("ticket"):
                self.do("scontrol", "update", f"node={node}", "state=undrain")


def _one(lots: Random, deeds: list[tuple[int, Callable[[], None]]]) -> Callable[[], None]:
    return lots.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])[0]


async def story(sim: Simulation, *, hours: float, faults: bool) -> None:
    """Let the world run, with faults or without, and see how it is at the end."""
    world, random = World(sim), sim.random("story")
    ends = hours * 3600
    await sim.sleep(30)
    is_scene = True
    while sim.now_s < ends:
        if is_scene and (lots := sim.item("scene")) is not None and faults:
            await world.scene(lots)
        is_scene = random.random() < SCENES
        is_fault = random.random() < 0.5
        pause_s = random.uniform(*EVERY_S)
        lots = sim.item("fault" if is_fault else "deed") if faults or not is_fault else None
        if lots is not None:
            (world.strike if is_fault else world.live)(lots)
        await sim.sleep(pause_s)
    await sim.sleep(60)  # What was to come back is back.
    await sim.settles("the bus tells what Slurm has", world.untold, within_s=300)
    world.end()
    await sim.settles("all is as it is wanted", world.unsettled, within_s=600)
    for kept in world.services:
        kept.stop()
