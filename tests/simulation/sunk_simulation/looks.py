"""Scenes of what the bus is told, in a crowd's world: Slurm answers wrongly for a moment, streams are gone.

Nothing else goes wrong.
"""

from random import Random
from typing import Final

from sunk_events import subjects
from sunk_events.nodes import SlurmNodeState
from sunk_simulation.crowd import World
from sunk_simulation.proof import CLUSTER
from sunk_simulation.simulation import Simulation

KNOWN_S: Final = 65.0
"""A job that is older has its number for sure."""
WITHIN_S: Final = 120.0
"""So long until the bus is right: less than Slurm remembers a job that has ended."""
_NODES: Final = subjects.bucket_stream(subjects.bucket(CLUSTER, SlurmNodeState))
_LEASES: Final = subjects.bucket_stream(subjects.lease_bucket(CLUSTER))


class Scenes:
    """Plays them in a world."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._restd: Final = world.slurm.restd
        self._sim: Final = world.sim

    async def play(self, lots: Random) -> None:
        """Play the one that is drawn, and see that the bus is right."""
        scenes = (
            self.looks_are_refused,
            self.the_only_job_is_not_found,
            self.slurmctlds_clock_goes_back,
            self.facts_are_removed,
            self.leases_are_removed,
            self.a_bucket_is_emptied,
        )
        await scenes[lots.randrange(len(scenes))](lots)
        await self._sim.settles("the bus tells what Slurm has", self._world.untold, within_s=WITHIN_S)
        self._world.end()

    async def looks_are_refused(self, lots: Random) -> None:
        """Those that would see how jobs have ended."""
        for _ in range(3):
            self._submit(600)
        await self._sim.sleep(lots.uniform(20, 30))
        self._restd.refuse_looks(lots.randint(3, 8))
        self._world.do("scancel", "--user=root")
        await self._sim.sleep(10)
        self._restd.recover()

    async def the_only_job_is_not_found(self, lots: Random) -> None:
        """For as short as nobody believes it: lists are empty, and looks find nothing."""
        self._submit(600)
        await self._sim.sleep(KNOWN_S + lots.uniform(0, 5))
        self._restd.empty_lists(8)
        self._restd.empty_looks(8)
        self._submit(1)  # So that they are asked for.
        await self._sim.sleep(lots.uniform(4, 7))
        self._restd.recover()

    async def slurmctlds_clock_goes_back(self, lots: Random) -> None:
        """By more than the bus has time, and by less than makes nodes silent; then nodes change."""
        await self._sim.sleep(lots.uniform(5, 30))
        if (ctld := self._world.slurm.ctld) is not None:
            ctld.process.clock.jump(-lots.uniform(150, 250))
        await self._sim.sleep(lots.uniform(0, 5))
        self._drain(lots)

    async def facts_are_removed(self, lots: Random) -> None:
        """With their stream, by somebody."""
        self._world.nats.lose_stream(subjects.fact_stream(CLUSTER))
        await self._sim.sleep(lots.uniform(0, 5))
        self._drain(lots)

    async def leases_are_removed(self, lots: Random) -> None:
        """With their bucket, by somebody, when others have led before."""
        for _ in range(lots.randint(1, 3)):
            for kept in self._world.services[:2]:
                kept.process.kill()
            await self._sim.sleep(lots.uniform(30, 40))
        self._drain(lots)
        await self._sim.sleep(10)
        self._world.nats.lose_stream(_LEASES)
        await self._sim.sleep(lots.uniform(20, 30))
        self._world.end()

    async def a_bucket_is_emptied(self, lots: Random) -> None:
        """Nobody is told of a purge; or somebody removes all of it."""
        nats = self._world.nats
        lots.choice((nats.purge_stream, nats.lose_stream))(_NODES)
        await self._sim.sleep(lots.uniform(0, 5))

    def _drain(self, lots: Random) -> None:
        for node in lots.sample(self._world.names, 3):
            self._world.do("scontrol", "update", f"node={node}", "state=drain", "reason=ticket")

    def _submit(self, seconds: int) -> None:
        self._world.do("sbatch", "--parsable", f"--wrap=sleep {seconds}")


async def story(sim: Simulation, *, hours: float, faults: bool) -> None:
    """Play one scene after another."""
    world = World(sim)
    scenes = Scenes(world)
    await sim.sleep(30)
    while faults and sim.now_s < hours * 3600:
        if (lots := sim.item("scene")) is not None:
            await scenes.play(lots)
        await sim.sleep(10)
    for kept in world.services:
        kept.stop()
