# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Scenes of a cluster: what hurts Pods through Slurm only together, each with a check of its own.

They are played one after another in a cluster's world, with one of each service; nothing else goes wrong.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from sunk_events import subjects
from sunk_events.placements import PlacementState
from sunk_kube.wellknown import ANNOTATION_GANG_MIN_AVAILABLE, ANNOTATION_GANG_SIZE, ANNOTATION_JOB
from sunk_simulation.cluster import CLUSTER, SIZE, World
from sunk_simulation.kubernetes.kinds import Object
from sunk_simulation.loop import Process
from sunk_simulation.simulation import Simulation
from sunk_simulation.slurm.records import JobRecord
from sunk_simulation.slurm.scripts import PLACEHOLDER
from sunk_simulation.slurm.slurmrestd import SERVICE_USER
from sunk_simulation.tenants import NAMESPACE, POD_GROUP

WITHIN_S: Final = 180.0
"""So long what a scene waits for may take."""
KNOWN_S: Final = 65.0
"""What is so much older or younger than a job is evidence of what became of it."""
_PLACEMENTS: Final = subjects.bucket_stream(subjects.bucket(CLUSTER, PlacementState))
_OTHER: Final = "other"


class Scenes:
    """Plays them in a world, and looks at what they must not do."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._slurm: Final = world.slurm
        self._tenants: Final = world.tenants
        self._sim: Final = world.sim
        self._staying: dict[str, str] = {}
        """The uids of Pods that are to stay, by key."""
        self._cancelled: dict[str, int] = {}
        """The numbers of jobs that a user has cancelled, by the key of their Pods."""
        self._wrong: str | None = None
        submitted = self._slurm.on_submitted

        def on_submitted(job: JobRecord, user: str) -> None:
            submitted(job, user)
            self._submitted(job, user)

        self._slurm.on_submitted = on_submitted
        self._sim.never("a Pod goes whose job was lost", self._gone)
        self._sim.never("a Pod has a job too many", lambda: self._wrong)

    async def play(self, lots: Random) -> None:
        """Play the one that is drawn, and clear up."""
        scenes = (
            self.slurmctld_loses_its_jobs,
            self.a_job_is_forgotten_unseen,
            self.an_annotation_is_edited,
            self.a_pod_changes_its_gang,
            self.a_node_changes_hands,
        )
        await scenes[lots.randrange(len(scenes))](lots)
        self._staying, self._cancelled = {}, {}
        self._slurm.is_launch_lost = lambda _job: False
        self._tenants.end()
        self._do("scancel", "--user=root")
        await self._sim.settles("all is as it is wanted", self._world.undone, within_s=WITHIN_S)

    async def slurmctld_loses_its_jobs(self, lots: Random) -> None:
        """Pods run, alone and in a gang that has lost a member; some of their numbers are strangers' then."""
        alone = [self._pod(f"alone-{number}") for number in range(2)]
        terms = {ANNOTATION_GANG_SIZE: "3", ANNOTATION_GANG_MIN_AVAILABLE: "2"}
        gang = [self._pod(f"member-{number}", terms, group="elastic") for number in range(3)]
        await self._run(*alone, *gang)
        self._tenants.delete(gang.pop())
        await self._sim.sleep(lots.uniform(20, 30))
        self._staying = {key: self._world.pods(NAMESPACE)[key].meta["uid"] for key in (*alone, *gang)}
        self._slurm.lose_jobs()
        self._world.checks.forget_what_slurm_lost()
        await self._sim.sleep(lots.uniform(1, 5))
        self._slurm.start_ctld()
        for _ in range(lots.randint(1, 2)):
            self._hold()
        for _ in range(lots.choice((0, 4))):  # They may have a node before its Pods have jobs again.
            self._submit(lots.randint(10, 30))
        if lots.random() < 0.5:
            self._lose_a_launch()
        await self._until(lambda: self._without_job(*alone, f"{NAMESPACE}/elastic"))

    async def a_job_is_forgotten_unseen(self, lots: Random) -> None:
        """Its user cancels it while nobody listens; Slurm has a job that came after it, while it waited."""
        jobs, partition = self._slurm.state.jobs, next(iter(self._slurm.state.partitions))
        self._do("scontrol", "update", f"partitionname={partition}", "state=down")
        key = self._pod("cancelled")
        await self._until(lambda: None if any(one.name == key for one in jobs.values()) else "no job")
        await self._sim.sleep(2)  # Slurm's moments are whole seconds.
        self._submit(3600)
        await self._sim.sleep(KNOWN_S + lots.uniform(0, 5))
        self._do("scontrol", "update", f"partitionname={partition}", "state=up")
        await self._run(key)
        away = self._processes("syncer", "pod-scheduler", "hook-gateway")
        for process in away:
            process.pause()
        job = next(one for one in self._slurm.state.jobs.values() if one.name == key)
        self._cancelled[key] = job.job_id
        self._do("scancel", str(job.job_id))
        await self._until(lambda: "Slurm has it" if job.job_id in self._slurm.state.jobs else None)
        for process in away:
            process.resume()
        await self._until(lambda: f"{key} is there" if key in self._world.pods(NAMESPACE) else None)

    async def an_annotation_is_edited(self, lots: Random) -> None:
        """It names a stranger's job, and what was stored of the Pod is lost."""
        self._submit(3600)
        stranger = max(self._slurm.state.jobs)
        key = self._pod("edited")
        await self._run(key)

        def edit(pod: Object) -> None:
            annotations = pod["metadata"]["annotations"]
            claim = msgspec.json.decode(annotations[ANNOTATION_JOB])
            annotations[ANNOTATION_JOB] = msgspec.json.encode({**claim, "job": stranger}).decode()

        self._tenants.change(key, edit)
        self._world.nats.lose_stream(_PLACEMENTS)
        for process in self._processes("pod-scheduler"):
            process.kill()  # So nobody remembers.
        await self._sim.sleep(lots.uniform(20, 30))
        self._tenants.delete(key)
        await self._sim.sleep(30)

    async def a_pod_changes_its_gang(self, lots: Random) -> None:
        """It is being submitted with one gang, and is what another one lacks."""
        await self._sim.sleep(15)  # Until pod-scheduler leads.
        self._submit_everywhere(20)
        restd, pair = self._slurm.restd, {ANNOTATION_GANG_SIZE: "2"}
        restd.latency_s = (0.5, 1)
        self._pod("first-0", pair, group="first")
        changes = self._pod("first-1", pair, group="first")
        self._pod("second-0", pair, group="second")
        await self._sim.sleep(lots.uniform(0.1, 1))
        self._tenants.change(changes, lambda pod: pod["metadata"]["labels"].update({POD_GROUP: "second"}))
        await self._sim.sleep(10)
        restd.latency_s = (0.001, 0.01)
        await self._run("tenant/first-0", changes)

    async def a_node_changes_hands(self, lots: Random) -> None:
        """Another NodeSet takes it, and its Slurm node is another one that has a job."""
        self._submit_everywhere(10)
        await self._sim.sleep(lots.uniform(3, 8))
        self._world.nodeset.scale(SIZE - 1)
        self._world.add_nodeset(_OTHER)
        await self._until(
            lambda: None if any(self._takes(node) for node in self._slurm.state.nodes) else "none"
        )
        self._submit_everywhere(20)
        await self._sim.sleep(20)
        self._world.delete_nodeset(_OTHER)

    def _takes(self, node: str) -> bool:
        """Whether a Slurm node is the other NodeSet's, and takes jobs."""
        record = self._slurm.state.nodes[node]
        return node.startswith(_OTHER) and record.base == "IDLE" and record.flags == {"DYNAMIC_NORM"}

    def _pod(self, name: str, annotations: dict[str, str] | None = None, *, group: str = "") -> str:
        """Make a Pod that Slurm places, and return its key."""
        key = f"{NAMESPACE}/{name}"
        self._tenants.work(key, annotations, {POD_GROUP: group} if group else None)
        return key

    def _do(self, *words: str) -> None:
        self._slurm.exec(*words)

    def _submit(self, seconds: int, *options: str) -> None:
        self._do("sbatch", "--parsable", *options, f"--wrap=sleep {seconds}")

    def _submit_everywhere(self, seconds: int) -> None:
        for _ in range(SIZE):
            self._submit(seconds, "--exclusive")

    def _hold(self) -> None:
        """Submit a job that has a number and no more."""
        self._submit(1, "--hold")

    def _lose_a_launch(self) -> None:
        """Lose the launch of the first placeholder that starts from now on."""

        def is_lost(job: JobRecord) -> bool:
            if PLACEHOLDER not in job.script:
                return False
            self._slurm.is_launch_lost = lambda _job: False
            self._sim.trace.write("scene", "loses a launch", job=job.job_id)
            return True

        self._slurm.is_launch_lost = is_lost

    def _processes(self, *services: str) -> list[Process]:
        found = (one.process for one in self._world.services)
        return [process for process in found if process.name.rpartition("-")[0] in services]

    async def _run(self, *keys: str) -> None:
        """Return when these Pods run."""
        await self._until(lambda: ", ".join(sorted({*keys} - self._world.running())) or None)

    def _without_job(self, *names: str) -> str | None:
        """Return the scripts of which jobs do not run, by whose they are."""
        jobs = self._slurm.state.jobs.values()
        steps = {key for slurmd in self._slurm.slurmds.values() for key in slurmd.steps}
        runs = {job.name for job in jobs if (job.job_id, job.life) in steps}
        return ", ".join(sorted({*names} - runs)) or None

    async def _until(self, check: Callable[[], str | None]) -> None:
        await self._sim.settles("the scene goes on", check, within_s=WITHIN_S)

    def _gone(self) -> str | None:
        """Return which Pod is not left to run on until it has another job."""
        pods = self._world.pods(NAMESPACE) if self._staying else {}
        for key, uid in self._staying.items():
            pod = pods.get(key)
            if pod is None or pod.meta["uid"] != uid or pod.meta.get("deletionTimestamp"):
                return f"{key} is deleted"
        return None

    def _submitted(self, job: JobRecord, user: str) -> None:
        """Look whether it is of a Pod that is over, or has a job already."""
        if user != SERVICE_USER or PLACEHOLDER not in job.script:
            return
        if before := self._cancelled.get(job.name):
            self._wrong = f"{job.name}, whose job {before} was cancelled, has job {job.job_id}"
        ours = [one for one in self._slurm.state.jobs.values() if PLACEHOLDER in one.script]
        places, pods = sum(one.min_nodes for one in ours if not one.is_over), len(self._world.pods(NAMESPACE))
        if places > pods:
            self._wrong = f"with job {job.job_id} Slurm is asked for {places} places for {pods} Pods"


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
