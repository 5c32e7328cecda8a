"""Scenes of Slurm's own jobs in a cluster's world: tasks of arrays, and jobs that are suspended.

They are played one after another, with one of each service; nothing else goes wrong.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from sunk_simulation.cluster import NAMESPACE, SIZE, World
from sunk_simulation.loop import Process
from sunk_simulation.simulation import Simulation
from sunk_simulation.slurm.records import JobRecord

WITHIN_S: Final = 300.0
"""So long what a scene waits for may take: each of the NodeSet's Pods may be replaced meanwhile."""
_LONG_S: Final = 3600
"""Longer than any scene."""


class Scenes:
    """Plays them in a world, and looks at what they must not do."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._slurm: Final = world.slurm
        self._sim: Final = world.sim
        self._staying: dict[str, str] = {}
        """The uids of slurmds' Pods that are to stay, by key."""
        self._sim.never("a Pod goes under a suspended job", self._gone)

    async def play(self, lots: Random) -> None:
        """Play the one that is drawn, and clear up."""
        scenes = (self.a_task_loses_its_prolog, self.jobs_are_suspended_unseen)
        await scenes[lots.randrange(len(scenes))](lots)
        self._staying = {}
        self._do("scancel", "--user=root")
        await self._sim.settles("all is as it is wanted", self._world.undone, within_s=WITHIN_S)

    async def a_task_loses_its_prolog(self, lots: Random) -> None:
        """It is the last of its array, whose number it has, and its slurmd ends; the others run."""
        last = lots.choice(sorted(self._slurm.state.nodes))
        self._do("scontrol", "update", f"node={last}", "state=drain", "reason=ticket")
        self._submit(_LONG_S, "--exclusive", f"--array=1-{SIZE}")
        await self._until(lambda: self._not_running(SIZE - 1))
        away = self._processes("hook-gateway")
        for process in away:
            process.pause()  # So that a prolog takes as long as that.
        self._do("scontrol", "update", f"node={last}", "state=undrain")
        await self._until(lambda: None if any(self._in_prolog()) else "no prolog runs")
        await self._sim.sleep(lots.uniform(1, 4))
        self._world.lose_slurmd(last)
        await self._sim.sleep(lots.uniform(1, 8))
        for process in away:
            process.resume()
        await self._until(lambda: self._not_running(SIZE))

    async def jobs_are_suspended_unseen(self, lots: Random) -> None:
        """An update comes, and a syncer that has seen none of them, and for which no list is answered."""
        syncers = self._processes("syncer")
        for process in syncers:
            process.pause()
        for _ in range(SIZE):
            self._submit(_LONG_S, "--exclusive")
        await self._until(lambda: self._not_running(SIZE))
        for job in self._running():
            self._do("scontrol", "suspend", str(job.job_id))
        self._staying = {key: pod.meta["uid"] for key, pod in self._world.pods(NAMESPACE).items()}
        self._world.nodeset.update()
        self._slurm.restd.do_lists_fail = True
        for process in syncers:
            process.kill()
        await self._sim.sleep(lots.uniform(20, 60))
        self._slurm.restd.do_lists_fail = False
        await self._sim.sleep(lots.uniform(20, 60))

    def _running(self) -> list[JobRecord]:
        return [job for job in self._slurm.state.jobs.values() if job.base == "RUNNING"]

    def _in_prolog(self) -> list[JobRecord]:
        return [job for job in self._running() if job.reason == "Prolog"]

    def _not_running(self, count: int) -> str | None:
        """Return how many jobs do not run yet of so many."""
        runs = len(self._running()) - len(self._in_prolog())
        return f"{runs} of {count} jobs run" if runs != count else None

    def _do(self, *words: str) -> None:
        self._slurm.exec(*words)

    def _submit(self, seconds: int, *options: str) -> None:
        self._do("sbatch", "--parsable", *options, f"--wrap=sleep {seconds}")

    def _processes(self, *services: str) -> list[Process]:
        found = (one.process for one in self._world.services)
        return [process for process in found if process.name.rpartition("-")[0] in services]

    async def _until(self, check: Callable[[], str | None]) -> None:
        await self._sim.settles("the scene goes on", check, within_s=WITHIN_S)

    def _gone(self) -> str | None:
        """Return which Pod is deleted whose node has a job."""
        pods = self._world.pods(NAMESPACE) if self._staying else {}
        for key, uid in self._staying.items():
            pod = pods.get(key)
            if pod is None or pod.meta["uid"] != uid or pod.meta.get("deletionTimestamp"):
                return f"{key} is deleted"
        return None


async def story(sim: Simulation, *, hours: float, faults: bool) -> None:
    """Play one scene after another; without faults see that all becomes as it is wanted."""
    world = World(sim, replicas=(0,))
    scenes = Scenes(world)
    await sim.settles("all is as it is wanted", world.undone, within_s=WITHIN_S)
    while faults and sim.now_s < hours * 3600:
        if (lots := sim.item("scene")) is not None:
            await scenes.play(lots)
        await sim.sleep(10)
    for kept in world.services:
        kept.stop()
    world.bugs.end()
