"""Slurmrestd with little processor time, in a cluster's world: it stands still while many Pods come or go.

It works on a request to its end although the caller has gone, so requests that are given up keep it from
others. What must stay true: services ask for so little then that it catches up. Nothing else goes wrong.
"""

from random import Random
from typing import Final

from sunk_simulation.cluster import World
from sunk_simulation.simulation import Simulation
from sunk_simulation.tenants import NAMESPACE

PODS: Final = 24
SHARES: Final = (0.04, 0.1)
"""Of a processor: an answer takes 0.1 to 0.25 s, a list twice that, all versions' document 1.5 to 4 s."""
STANDS_S: Final = (10.0, 30.0)
WITHIN_S: Final = 300.0
"""So long until it has caught up: some calls of each Pod, one after the other at that pace."""


async def _stand_still(world: World, lots: Random) -> None:
    """Have slurmrestd stand still while Pods come or go, and see that all is done in the end."""
    restd, keys = world.slurm.restd, [f"{NAMESPACE}/busy-{number}" for number in range(PODS)]
    are_there = lots.random() < 0.5
    for key in keys if are_there else ():
        world.tenants.work(key)
    if are_there:
        await world.sim.sleep(lots.uniform(5, 40))
    restd.share = lots.uniform(*SHARES)
    if restd.process is not None:
        restd.process.pause(lots.uniform(*STANDS_S))
    if not are_there:
        for key in keys:
            world.tenants.work(key)
        await world.sim.sleep(lots.uniform(20, 60))
    world.tenants.end()
    await world.sim.settles("what went is gone from Slurm too", world.undone, within_s=WITHIN_S)
    restd.share = 1.0


async def story(sim: Simulation, *, hours: float, faults: bool) -> None:
    """Have it stand still, again and again."""
    world = World(sim, replicas=(0,))
    await sim.settles("all is as it is wanted", world.undone, within_s=WITHIN_S)
    while faults and sim.now_s < hours * 3600:
        if (lots := sim.item("stand")) is not None:
            await _stand_still(world, lots)
        await sim.sleep(10)
    for kept in world.services:
        kept.stop()
    world.bugs.end()
